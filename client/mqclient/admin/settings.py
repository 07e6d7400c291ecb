"""Configs of brokers and name servers, key-value entries, and write permissions.

A broker group's settings are entries of its log and hold for all its members. Name servers share no
state: a change goes to each of them. A setting lasts until the next start. A permission and a
key-value entry last for ever where the name server has a `kvConfigPath`; a warning says where not.
"""

from __future__ import annotations

from collections.abc import Mapping

from dledger.errors import RemotingError
from dledger.program.settings import parse_properties
from dledger.remoting.bodies import BrokerData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.headers import (
    AddWritePermOfBrokerHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKvConfigHeader,
    GetKvConfigHeader,
    GetKvConfigResponseHeader,
    PutKvConfigHeader,
    WipeWritePermOfBrokerHeader,
    WipeWritePermOfBrokerResponseHeader,
    decode_header,
)
from mqclient.admin.requests import expect_success
from mqclient.admin.results import PermChange, ServerConfig
from mqclient.admin.session import Part, UnknownTarget, run_for_each


class Settings(Part):
    """Part `admin.settings`: reads and changes configs, key-value entries and write permissions."""

    async def broker_config(
        self, broker: str | None = None, cluster: str | None = None
    ) -> tuple[ServerConfig, ...]:
        """The configs of one member by its address, or of the leaders of a name or cluster."""
        code = RequestCode.GET_BROKER_CONFIG
        if broker is not None and ":" in broker:
            answer = expect_success(await self._requests.ask(broker, code), code.name, broker)
            return (ServerConfig(broker, parse_properties(answer.payload)),)

        async def config(group: BrokerData) -> ServerConfig:
            answer = await self._requests.ask_leader(group, code)
            return ServerConfig(self._requests.leader(group), parse_properties(answer.payload))

        return await run_for_each(config, await self._session.broker_groups(cluster, broker))

    async def update_broker_config(
        self, key: str, value: str, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Change a key on all members of groups, for good; "" restores the config file's value.

        `broker` is a group's name or the address of any member. Returns the broker names. Raises
        Refused (code 16) for a key that can't change while a broker runs.
        """
        body = f"{key}={value}\n".encode()
        return await self._change(RequestCode.UPDATE_BROKER_CONFIG, body, cluster, broker)

    async def namesrv_config(self) -> tuple[ServerConfig, ...]:
        """The config of every name server."""
        answers = await self._requests.ask_every_name_server(RequestCode.GET_NAMESRV_CONFIG)
        return tuple(
            ServerConfig(address, parse_properties(answer.payload))
            for address, answer in answers.items()
        )

    async def update_namesrv_config(self, key: str, value: str) -> tuple[str, ...]:
        """Change a key on every name server until it is restarted. Returns their addresses."""
        code, body = RequestCode.UPDATE_NAMESRV_CONFIG, f"{key}={value}\n".encode()
        return tuple(await self._requests.ask_every_name_server(code, body=body))

    async def kv_config(self, namespace: str, key: str) -> str | None:
        """A value of the first name server that answers."""
        header = GetKvConfigHeader(namespace=namespace, key=key)
        answer = await self._requests.ask_name_server(header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        expect_success(answer, "GET_KV_CONFIG", "the name server")
        return decode_header(GetKvConfigResponseHeader, answer).value

    async def has_kv_config(self, namespace: str, key: str) -> bool:
        """Whether any name server has a value, or may have: one that can't be asked is away."""
        header = GetKvConfigHeader(namespace=namespace, key=key)
        for address in self._requests.name_servers:
            try:
                answer = await self._requests.ask(address, header)
            except RemotingError:
                return True
            if answer.code != ResponseCode.QUERY_NOT_FOUND:
                expect_success(answer, "GET_KV_CONFIG", address)
                return True
        return False

    async def update_kv_config(self, namespace: str, key: str, value: str) -> tuple[str, ...]:
        """Set a value on every name server. Returns their addresses."""
        header = PutKvConfigHeader(namespace=namespace, key=key, value=value)
        return tuple(await self._requests.ask_every_name_server(header))

    async def delete_kv_config(self, namespace: str, key: str) -> tuple[str, ...]:
        """Remove a key, if it exists, on every name server. Returns their addresses."""
        header = DeleteKvConfigHeader(namespace=namespace, key=key)
        return tuple(await self._requests.ask_every_name_server(header))

    async def set_write_perm(self, broker_name: str, *, writable: bool) -> tuple[PermChange, ...]:
        """Set whether routes say that a broker group's topics are writable.

        A group that is away can be named, too, if the name servers remember it.
        """
        unknown: UnknownTarget | None = None
        try:
            await self._session.broker_groups(broker=broker_name)
        except UnknownTarget as error:
            unknown = error
        if writable:
            answers = await self._requests.ask_every_name_server(
                AddWritePermOfBrokerHeader(broker_name=broker_name),
            )
            counts: Mapping[str, int] = {
                address: decode_header(AddWritePermOfBrokerResponseHeader, answer).add_topic_count
                for address, answer in answers.items()
            }
        else:
            answers = await self._requests.ask_every_name_server(
                WipeWritePermOfBrokerHeader(broker_name=broker_name),
            )
            counts = {
                address: decode_header(WipeWritePermOfBrokerResponseHeader, answer).wipe_topic_count
                for address, answer in answers.items()
            }
        if unknown is not None and not any(counts.values()):
            raise unknown
        return tuple(
            PermChange(broker_name, address, writable, count) for address, count in counts.items()
        )
