"""A broker's config: what it may say, how it says what is wrong, and which one counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import Busy, ConfigError, NotLeader, OutcomeUnknown, TooLarge
from dledger.program.config import load_config
from dledger.remoting.codes import RequestCode, ResponseCode
from mqbroker.config import BrokerConfig
from mqbroker.flow.rates import Counter
from mqbroker.leader.role import Role
from mqbroker.testing import served
from mqbroker.testing.requests import ask

GROUP = BrokerConfig(
    listen_port=10912,
    d_leger_self_id="n1",
    d_leger_peers="n0-127.0.0.1:40911;n1-127.0.0.1:40912;",
    group_client_addrs="n0-127.0.0.1:10911;n1-127.0.0.1:10912",
    namesrv_addr="127.0.0.1:9876; [::1]:9877",
)


def test_a_config_file_with_the_familiar_keys(tmp_path: Path) -> None:
    """Keys are RocketMQ's; what is left out has its default."""
    path = tmp_path / "broker.toml"
    path.write_text(
        'brokerName = "broker-b"\nbrokerIP1 = "127.0.0.1"\nlistenPort = 10921\n'
        'dLegerSelfId = "n2"\nflushDiskType = "ASYNC_FLUSH"\nmappedFileSizeCommitLog = 1048576\n'
        'autoCreateTopicEnable = false\nstorePathRootDir = "/tmp/x"\n'
        'flushIntervalCommitLog = 200\npreferredLeaderId = "n2"\n'
    )
    config = load_config(path, BrokerConfig)
    config.check()
    assert config.ledger().group == "broker-b"
    assert (config.ledger().flush, config.ledger().segment_bytes) == ("interval", 1048576)
    assert (config.ledger().flush_interval_s, config.ledger().preferred_leader) == (0.2, "n2")
    assert config.client_addresses() == {"n2": "127.0.0.1:10921"}
    assert not config.auto_create_topic_enable


def test_a_misspelt_key_is_refused_by_name(tmp_path: Path) -> None:
    """An ignored `flushDiskTyp` would cost messages."""
    path = tmp_path / "broker.toml"
    path.write_text('flushDiskTyp = "ASYNC_FLUSH"\n')
    with pytest.raises(ConfigError, match="flushDiskType"):
        load_config(path, BrokerConfig)


def test_a_group_is_named_member_by_member() -> None:
    """A group is named by the peer ports and client ports of the same members."""
    GROUP.check()
    assert GROUP.peers() == {"n0": ("127.0.0.1", 40911), "n1": ("127.0.0.1", 40912)}
    assert GROUP.name_servers()[0] == ("127.0.0.1", 9876)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"d_leger_self_id": "n7"}, "dLegerSelfId 'n7'"),
        ({"message_delay_level": "1s 5y"}, "messageDelayLevel has '5y'"),
        ({"d_leger_peers": "n0:127.0.0.1"}, "dLegerPeers has"),
        ({"group_client_addrs": "n1-127.0.0.1:10912"}, "same members"),
        ({"group_client_addrs": "n0-127.0.0.1:10911;n1-127.0.0.1:1"}, "make them equal"),
        ({"listen_port": 70_000, "group_client_addrs": "", "d_leger_peers": ""}, "listenPort"),
        ({"max_message_size": 0}, "maxMessageSize"),
        ({"namesrv_addr": "localhost"}, "namesrvAddr"),
        ({"preferred_leader_id": "n7"}, "preferredLeaderId 'n7'"),
        ({"flush_interval_commit_log": 0}, "flushIntervalCommitLog"),
    ],
)
def test_values_that_do_not_go_together_are_named(values: dict[str, object], text: str) -> None:
    """Values that exclude each other are a ConfigError when the config is checked."""
    fields = {name: getattr(GROUP, name) for name in GROUP.__struct_fields__}
    with pytest.raises(ConfigError, match=text):
        BrokerConfig(**{**fields, **values}).check()


def test_a_broker_id_says_who_leads() -> None:
    """Broker id 0 is the leader's; followers are numbered by their node ids."""
    role = Role("n1", GROUP.client_addresses())
    assert role.broker_id == 2
    role.leading(3)
    assert role.broker_id == 0
    role.following("n0", 4)
    assert (role.broker_id, role.leader_address) == (2, "127.0.0.1:10911")


def test_every_failed_append_has_its_answer() -> None:
    """A failed append has RocketMQ's code 14, which stock producers retry, and our fields."""
    role = Role("n1", GROUP.client_addresses())
    role.following("n0", 4)
    answers = [
        role.refusal_of(error)
        for error in (
            NotLeader("n0"),
            Busy("full", 0.25),
            TooLarge("9 MiB"),
            OutcomeUnknown("lost"),
        )
    ]
    unavailable = ResponseCode.SERVICE_NOT_AVAILABLE
    codes = [unavailable, unavailable, ResponseCode.MESSAGE_ILLEGAL, unavailable]
    assert [answer.code for answer in answers] == codes
    assert [dict(answer.ext) for answer in answers] == [
        {"leaderAddr": "127.0.0.1:10911"},
        {"retryAfterMillis": "250"},
        {},
        {"outcome": "unknown"},
    ]


def test_rates_are_means_over_the_time_there_is() -> None:
    """Rates are means over 10 s, 1 min and 10 min, or less in a young broker."""
    counter = Counter()
    assert counter.per_second() == [0, 0, 0]
    for _ in range(21):
        counter.sample()
        counter.total += 3
    assert counter.per_second() == [3, 3, 3]
    for _ in range(10):
        counter.sample()
    assert counter.per_second() == [0.3, 2.1, 2.1]


def test_a_replica_may_listen_elsewhere_than_others_are_told() -> None:
    """Sockets listen at `bindAddress`; clients and members are told another address."""
    told = {"broker_ip1": "192.0.2.7", "d_leger_peers": "n0-192.0.2.7:40911"}

    plain, bound = BrokerConfig(**told), BrokerConfig(**told, bind_address="0.0.0.0")

    assert plain.client_host == "192.0.2.7"
    assert plain.ledger().peer_port == ("192.0.2.7", 40911)
    assert bound.client_host == "0.0.0.0"
    assert bound.ledger().peer_port == ("0.0.0.0", 40911)
    assert bound.client_addresses() == plain.client_addresses() == {"n0": "192.0.2.7:10911"}
    assert bound.peers() == plain.peers()


async def test_a_setting_replaces_the_config_that_counts_and_changes_no_other(
    tmp_path: Path,
) -> None:
    """A setting replaces the value in force; an empty one gives the file's value back."""
    file_config = BrokerConfig(max_message_size=2000)
    async with served(tmp_path, config=file_config) as (broker, peer):
        core = broker.broker.core
        before, update = core.config, RequestCode.UPDATE_BROKER_CONFIG
        assert (await ask(peer, update, b"maxMessageSize=77\n")).code == ResponseCode.SUCCESS
        sizes = (core.config, before, core.file_config, file_config)
        assert [each.max_message_size for each in sizes] == [77, 2000, 2000, 2000]
        assert (await ask(peer, update, b"maxMessageSize=\n")).code == ResponseCode.SUCCESS
        assert core.config == before
        with pytest.raises(AttributeError):
            core.config.max_message_size = 1  # type: ignore[misc]
