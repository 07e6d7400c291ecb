"""Partitions as data: which nodes each shape separates, and which groups can still work."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqchaos.cluster.layout import CLIENTS, HOST, Layout, plan
from mqchaos.cluster.links import links
from mqchaos.network import rules
from mqchaos.network.rules import PLAIN, Rule, combined, cut_off


def layout_of(nodes: int) -> Layout:
    return plan(range(5000, 5100), nodes=nodes, groups=2, namesrvs=2, network=True)


THREE, FIVE = layout_of(3), layout_of(5)


def names(*numbers: int) -> set[str]:
    return {f"broker-a-n{number}" for number in numbers}


def heard(layout: Layout, cut: frozenset[tuple[str, str]]) -> set[tuple[int, int]]:
    """Which pairs of the first group talk in both directions."""
    group = [node.name for node in layout.group("broker-a")]
    return {
        (group.index(one), group.index(other))
        for one, other in permutations(group, 2)
        if (one, other) not in cut and (other, one) not in cut and one < other
    }


def test_a_side_does_not_hear_the_other() -> None:
    """A side hears itself alone, and the other broker group is untouched."""
    cut = rules.from_peers(FIVE, names(0, 3))

    assert heard(FIVE, cut) == {(0, 3), (1, 2), (1, 4), (2, 4)}
    assert not any("broker-b" in name for pair in cut for name in pair)
    assert cut_off(FIVE, cut) == names(0, 3)


def test_an_island_is_alone() -> None:
    """An island hears no peer, no client and no name server, in either direction."""
    cut = rules.from_everybody(THREE, names(1))
    others = names(0, 2) | {CLIENTS, "namesrv-0", "namesrv-1"}

    assert cut == {(one, "broker-a-n1") for one in others} | {
        ("broker-a-n1", one) for one in others
    }


def test_a_bridge_is_heard_by_both_sides() -> None:
    """The leader does not hear one of the others; nobody is cut off from a majority."""
    cut = rules.but_for_a_bridge(THREE, names(0))

    assert heard(THREE, cut) == {(0, 1), (1, 2)}
    assert cut_off(THREE, cut) == set()


def test_a_ring_leaves_two_neighbours_each() -> None:
    """In a ring of five each node hears two neighbours, a majority, though no two hear the same."""
    cut = rules.ring(FIVE, names(0, 1, 2, 3, 4))

    assert heard(FIVE, cut) == {(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)}
    assert cut_off(FIVE, cut) == set()


def test_one_way_is_one_way() -> None:
    """A node that is unheard still hears, and the reverse."""
    mute, deaf = rules.unheard(THREE, names(2)), rules.unhearing(THREE, names(2))

    assert mute == {("broker-a-n2", name) for name in names(0, 1)}
    assert deaf == {(name, "broker-a-n2") for name in names(0, 1)}
    assert cut_off(THREE, mute) == cut_off(THREE, deaf) == names(2)


@pytest.mark.parametrize(
    "shape", [rules.from_clients, rules.from_namesrvs, rules.among], ids=lambda s: s.__name__
)
def test_other_shapes_are_about_links_that_exist(shape: rules.Shape) -> None:
    """Each direction is one of a link that the proxy has, and takes no majority."""
    known = {(link.source, link.target) for link in links(THREE)}
    directions = shape(THREE, names(0, 1, 2))

    assert directions
    assert all(way in known or way[::-1] in known for way in directions)


def test_every_dialler_has_an_address_of_its_own_for_every_server() -> None:
    """The proxy knows who dials by nothing else; behind it is the server itself."""
    found = list(links(FIVE))
    peers, to_clients, to_namesrvs = 2 * 5 * 4, 2 * 5, 2 * (1 + 2 * 5)

    assert len({link.listen for link in found}) == len(found)
    assert len(found) == peers + to_clients + to_namesrvs
    assert all(link.connect == (HOST, link.listen[1]) for link in found)
    assert all(link.listen[0].startswith("127.77.") for link in found)


some_rules = st.builds(
    Rule, st.booleans(), *[st.sampled_from([0.0, 0.5, 1.0])] * 3, st.sampled_from([0.0, 5.0, 9.0])
)


@given(st.lists(some_rules, max_size=4))
def test_several_faults_on_a_link_are_no_milder_than_each(some: list[Rule]) -> None:
    """Combined faults of a link are at least as bad as each, in any order."""
    both = combined(some)

    assert both == combined(some[::-1])
    assert both == PLAIN or some
    for rule in some:
        assert both.cut >= rule.cut
        assert both.delay_s >= rule.delay_s
        assert both.loss >= rule.loss
        assert not rule.bytes_per_s or 0 < both.bytes_per_s <= rule.bytes_per_s
