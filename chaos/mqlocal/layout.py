"""The layout of a cluster inside a test: names, addresses, configs. Pure.

Servers have the names that `mqcluster` gives them: "namesrv-0", and "broker-a-n0" for the node n0
of the group broker-a.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dledger.errors import ConfigError
from dledger.program.config import parse_config
from mqbroker.config import BrokerConfig
from mqlocal.limits import GROUPS_MAX, REPLICAS_MAX, SEGMENT_BYTES
from mqnamesrv.config import NamesrvConfig

Address = tuple[str, int]

NAMESRV = "namesrv-0"
OURS = [
    "brokerName",
    "brokerIP1",
    "listenPort",
    "bindAddress",
    "namesrvAddr",
    "storePathRootDir",
    "dLegerGroup",
    "dLegerPeers",
    "dLegerSelfId",
    "groupClientAddrs",
    "vipChannelEnable",
]
"""Keys of a broker's config that say where it is: they are not the user's to set."""


def addresses_needed(replicas: int, groups: int) -> int:
    """The number of a cluster's addresses: two for each broker, one for the name server. Raises
    ConfigError."""
    if not 1 <= replicas <= REPLICAS_MAX:
        raise ConfigError(f"replicas={replicas} is not within 1 to {REPLICAS_MAX}")
    if not 1 <= groups <= GROUPS_MAX:
        raise ConfigError(f"groups={groups} is not within 1 to {GROUPS_MAX}")
    return 1 + 2 * replicas * groups


@dataclass(frozen=True, slots=True)
class Layout:
    """The servers' configs, by name."""

    namesrv: NamesrvConfig
    brokers: Mapping[str, BrokerConfig]

    @property
    def namesrv_addr(self) -> str:
        """Address of the name server, as host:port."""
        return f"{self.namesrv.bind_address}:{self.namesrv.listen_port}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The broker groups, in order."""
        return tuple(dict.fromkeys(config.broker_name for config in self.brokers.values()))

    def group(self, broker_name: str) -> Iterator[tuple[str, BrokerConfig]]:
        """The nodes of one broker group."""
        for name, config in self.brokers.items():
            if config.broker_name == broker_name:
                yield name, config


def plan(
    addresses: Sequence[Address],
    replicas: int,
    groups: int,
    directory: Path,
    settings: Mapping[str, object],
) -> Layout:
    """The layout of a cluster at these addresses. `settings` are keys of a broker's config.

    Raises ConfigError for a key that is unknown, wrong, or not the user's to set.
    """
    for key in settings:
        if key in OURS:
            raise ConfigError(f"settings: {key} is the cluster's own")
    template = parse_config(settings, BrokerConfig, "settings")
    if "mappedFileSizeCommitLog" not in settings:
        template = msgspec.structs.replace(template, mapped_file_size_commit_log=SEGMENT_BYTES)
    # A disk that others have filled is no reason for a test to fail.
    template = msgspec.structs.replace(
        template,
        disk_max_used_space_ratio=100,
        disk_space_clean_forcibly_ratio=100,
        disk_space_warning_level_ratio=100,
    )
    (host, port), *rest = addresses
    brokers: dict[str, BrokerConfig] = {}
    for letter in string.ascii_lowercase[:groups]:
        places, rest = rest[: 2 * replicas], rest[2 * replicas :]
        group = msgspec.structs.replace(
            template, broker_name=f"broker-{letter}", namesrv_addr=f"{host}:{port}"
        )
        brokers |= _group(group, places, directory)
    return Layout(NamesrvConfig(listen_port=port, bind_address=host), brokers)


def _group(
    template: BrokerConfig, places: Sequence[Address], directory: Path
) -> Iterator[tuple[str, BrokerConfig]]:
    """The nodes of a group; the first half of its addresses is for clients, the other for peers."""
    replicas = len(places) // 2

    def members(part: Sequence[Address]) -> str:
        return ";".join(f"n{number}-{host}:{port}" for number, (host, port) in enumerate(part))

    for number, (host, port) in enumerate(places[:replicas]):
        name = f"{template.broker_name}-n{number}"
        yield (
            name,
            msgspec.structs.replace(
                template,
                broker_ip1=host,
                listen_port=port,
                d_leger_self_id=f"n{number}",
                d_leger_peers=members(places[replicas:]),
                group_client_addrs=members(places[:replicas]),
                store_path_root_dir=str(directory / name),
            ),
        )
