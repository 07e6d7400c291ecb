"""A cluster's layout: names, ports and config files that fit together."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from mqchaos.cluster.layout import broker_toml, namesrv_toml, plan, ports_needed


def test_every_server_has_ports_of_its_own() -> None:
    """Ports are each given once, whatever the size."""
    needed = ports_needed(nodes=3, groups=2, namesrvs=2)
    layout = plan(range(5000, 5000 + needed), nodes=3, groups=2, namesrvs=2)

    ports = [server.port for server in layout.namesrvs]
    ports += [port for node in layout.nodes for port in (node.port, node.raft_port)]

    assert len(set(ports)) == needed == 14


def test_groups_and_nodes_are_named_in_order() -> None:
    """Names are those of RocketMQ's examples."""
    layout = plan(range(5000, 5009), nodes=2, groups=2)

    assert layout.brokers == ("broker-a", "broker-b")
    assert [node.name for node in layout.group("broker-b")] == ["broker-b-n0", "broker-b-n1"]


def test_a_brokers_config_names_its_own_group_only() -> None:
    """The peers of a node are the nodes of its group, itself among them."""
    layout = plan(range(5000, 5013), nodes=3, groups=2)

    config = tomllib.loads(broker_toml(layout, layout.group("broker-b")[1], Path("/c/b")))

    assert config["brokerName"] == config["dLegerGroup"] == "broker-b"
    assert config["dLegerSelfId"] == "n1"
    assert config["listenPort"] == 5009
    assert config["namesrvAddr"] == "127.0.0.1:5000"
    assert config["dLegerPeers"] == "n0-127.0.0.1:5008;n1-127.0.0.1:5010;n2-127.0.0.1:5012"
    assert config["groupClientAddrs"] == "n0-127.0.0.1:5007;n1-127.0.0.1:5009;n2-127.0.0.1:5011"
    assert config["storePathRootDir"] == "/c/b/store"
    assert config["exportDir"] == "/c/b/exports"


def test_a_directory_with_odd_characters_stays_whole_in_the_config() -> None:
    """Quotes, backslashes and blanks in a path don't break the TOML."""
    folder = Path('/srv/a "b" \\ c')
    layout = plan(range(9))

    config = tomllib.loads(namesrv_toml(layout, layout.namesrvs[0], folder))

    assert config["kvConfigPath"] == str(folder / "kv.json")


def test_a_size_out_of_bounds_is_refused_by_name() -> None:
    """The message says which option, which value, which bounds."""
    with pytest.raises(ConfigError, match="--nodes is 0; it must be from 1 to 7"):
        ports_needed(nodes=0, groups=1, namesrvs=1)


def test_behind_a_proxy_each_is_told_addresses_of_its_own() -> None:
    """A broker listens where it always did; peers, clients and it know different addresses."""
    layout = plan(range(5000, 5007), network=True)
    first, second, _ = layout.nodes

    configs = [tomllib.loads(broker_toml(layout, node, Path("/c"))) for node in (first, second)]

    assert [config["bindAddress"] for config in configs] == ["127.0.0.1"] * 2
    assert [config["brokerIP1"] for config in configs] == ["127.77.254.2", "127.77.254.3"]
    assert [config["namesrvAddr"] for config in configs] == ["127.77.2.1:5000", "127.77.3.1:5000"]
    assert configs[0]["dLegerPeers"].startswith("n0-127.0.0.1:5002;n1-127.77.2.3:5004;")
    assert configs[1]["dLegerPeers"].startswith("n0-127.77.3.2:5002;n1-127.0.0.1:5004;")
    assert configs[0]["groupClientAddrs"] == configs[1]["groupClientAddrs"]
    assert layout.client_address(first) == "127.77.254.2:5001"
    assert first.address == "127.0.0.1:5001"
