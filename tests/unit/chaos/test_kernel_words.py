"""Commands for the kernel: a table of nftables for each fault, a tree of tc for each port."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from dledger.errors import ConfigError
from mqchaos.cluster.layout import CLIENTS, broker_toml, host_in_namespace, namesrv_toml, plan
from mqchaos.faults import machine
from mqchaos.faults.kinds import OF_MEMBERS, OF_NETWORK, OF_PACKETS
from mqchaos.network import needs
from mqchaos.network.kernel import Plug, packets_met, shaped, table_added, table_removed
from mqchaos.network.rules import CUT, Rule, combined
from mqchaos.run import again
from mqchaos.run.planned import Made
from mqchaos.run.scenarios import SCENARIOS, planned_of, random_plan

PLUGS = {"one": Plug(1, "10.77.0.1"), "two": Plug(2, "10.77.0.2")}
FORTH = ("one", "two")


def rules_of(rule: Rule) -> list[str]:
    """Rules for packets from one to two."""
    lines = table_added("it", [FORTH], rule, PLUGS)
    start = "add rule netdev it port-1 ip daddr 10.77.0.2 "
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


def test_a_fault_is_a_table_at_the_senders_port() -> None:
    """A fault is a table at the sender's port that names the receiver, and is removed whole."""
    assert table_added("it", [FORTH], CUT, PLUGS)[:2] == [
        "add table netdev it",
        'add chain netdev it port-1 { type filter hook ingress device "port-1" priority 0; '
        "policy accept; }",
    ]
    assert table_removed("it") == ["delete table netdev it"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (CUT, ["counter drop"]),
        (Rule(loss=0.01), ["numgen random mod 100000 < 1000 counter drop"]),
        (Rule(loss=1e-9), ["numgen random mod 100000 < 1 counter drop"]),
        (Rule(doubled=1.0), ['numgen random mod 100000 < 100000 counter dup to "port-2"']),
        (
            Rule(garbled=0.5),
            ["ip protocol tcp numgen random mod 100000 < 50000 counter @th,160,16 set 0xdead"],
        ),
        (Rule(delay_s=0.01), ["counter"]),
        (Rule(bytes_per_s=1e6), ["counter"]),
    ],
)
def test_each_rule_has_its_words_and_a_counter(rule: Rule, words: list[str]) -> None:
    """A rule has its words; one that only delays has a counter, which shows that packets came."""
    assert rules_of(rule) == words


def test_what_rules_have_met_is_summed_up_by_fault() -> None:
    """Packets that rules have met are summed up by fault, over all directions."""

    def rule(table: str, packets: int) -> dict[str, object]:
        counter = {"counter": {"packets": packets, "bytes": 1}}
        return {"rule": {"table": table, "chain": "port-1", "expr": [{"match": {}}, counter]}}

    listed = {"nftables": [{"metainfo": {}}, {"table": {"name": "f1"}}]}
    listed["nftables"] += [rule("f1", 3), rule("f2", 0), rule("f1", 4)]  # type: ignore[list-item]

    assert packets_met(json.dumps(listed)) == {"f1": 7, "f2": 0}


def test_packets_wait_at_the_receivers_port() -> None:
    """Packets wait at the receiver's port, in a class for each sender with its link's rate."""
    assert shaped({FORTH: Rule(bytes_per_s=1e6)}, PLUGS) == {
        "port-2": [
            "qdisc add dev port-2 root handle 1: htb default 0",
            "class add dev port-2 parent 1: classid 1:1 htb rate 8000000bit burst 64k cburst 64k "
            "quantum 60000",
            "filter add dev port-2 parent 1: protocol ip prio 1 u32 match ip src 10.77.0.1/32 "
            "flowid 1:1",
        ]
    }


def test_late_packets_wait_in_netem() -> None:
    """Late packets wait in netem, around the middle of our delay; a share overtakes."""
    rule = Rule(delay_s=0.02, jitter_s=0.02, hasty=0.25)
    (netem,) = [line for line in shaped({FORTH: rule}, PLUGS)["port-2"] if "netem" in line]
    assert netem.endswith("netem limit 100000 delay 30.000ms 10.000ms reorder 25.000%")
    assert "rate 10000000000bit" in shaped({FORTH: rule}, PLUGS)["port-2"][1]


@pytest.mark.parametrize("rule", [CUT, Rule(loss=0.1), Rule(doubled=0.1), Rule(garbled=0.1)])
def test_what_nftables_does_needs_no_queue(rule: Rule) -> None:
    """Queues that are made anew lose what waits in them."""
    assert shaped({FORTH: rule}, PLUGS) == {}


def test_two_faults_of_packets_are_both_in_force() -> None:
    """Two faults of packets together are the worse of each."""
    both = combined([Rule(doubled=0.1, hasty=0.2), Rule(doubled=0.3, garbled=0.4)])
    assert both == Rule(doubled=0.3, hasty=0.2, garbled=0.4)
    assert both.of_packets
    assert not Rule(loss=0.1, delay_s=1.0).of_packets


def test_each_server_has_an_address_of_its_own(tmp_path: Path) -> None:
    """A server binds to an address of its own, and all others are told the same one."""
    layout = plan(range(5000, 5100), nodes=3, namesrvs=2, namespaces=True)
    hosts = {server.name: server.host for server in layout.servers}
    assert len({*hosts.values(), host_in_namespace(), host_in_namespace(254)}) == 7
    node = layout.nodes[1]
    assert {layout.host(other, node.name) for other in (*hosts, CLIENTS)} == {node.host}
    text = broker_toml(layout, node, tmp_path)
    assert f'brokerIP1 = "{node.host}"' in text
    assert f"n0-{layout.nodes[0].host}:{layout.nodes[0].raft_port}" in text
    assert f'bindAddress = "{hosts["namesrv-1"]}"' in namesrv_toml(
        layout, layout.namesrvs[1], tmp_path
    )
    assert layout.breakable
    assert not layout.network


def test_a_plan_that_needs_what_the_machine_lacks_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that the machine can't run is refused with what is missing, before any start."""
    late = planned_of(SCENARIOS["late-packets"], 1, 2, made=Made(namespaces=True))
    monkeypatch.setattr(machine, "kernel_lacks", lambda rule: "no netem in this kernel")
    monkeypatch.setattr(again, "no_namespaces", lambda: None)
    with pytest.raises(ConfigError, match="slow is not available here: no netem in this kernel"):
        again.order_of(late, tmp_path / "run")
    monkeypatch.setattr(again, "no_namespaces", lambda: "only root may")
    with pytest.raises(ConfigError, match="--network namespaces is not available here: only root"):
        again.order_of(replace(late, steps=()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_proxy_is_not_asked_for_packets(tmp_path: Path) -> None:
    """A proxy can't hurt packets, so a plan with that is refused."""
    with pytest.raises(ConfigError, match="doubled is not available here: the proxy forwards"):
        again.order_of(planned_of(SCENARIOS["bad-packets"], 1, 2), tmp_path / "run")


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that is not root is told so before any tool is tried."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert needs.no_namespaces.__wrapped__() == "only root may make network namespaces"


@pytest.mark.parametrize("seed", range(20))
def test_random_plans_have_what_their_network_can(seed: int) -> None:
    """Random plans hurt packets in namespaces alone, and add no members on fixed links."""
    proxied = {step.fault for step in random_plan(seed, 200.0).steps}
    assert not proxied & OF_PACKETS
    planned = random_plan(seed, 200.0, made=Made(namespaces=True), lacking=["slow"])
    faults = {step.fault for step in planned.steps}
    assert planned.namespaces
    assert faults & OF_NETWORK
    assert not faults & (OF_MEMBERS | {"slow"})
    assert "--network namespaces" in planned.drawn_by
