"""Each request code has one handler, which declares it, or a reason why there is none."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dledger.net import Connection
from dledger.net.serving import Right, Served, declared_by, serves, table_of
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.trust.proof import NONCE_BYTES
from dledger.trust.rights import PUB, topic
from mqbroker import requests
from mqbroker.requests.needs import Needs
from mqbroker.requests.unsupported import REASONS, not_supported
from mqbroker.testing import memory_broker
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.requests.dispatch import Dispatcher as NameServer
from mqnamesrv.saved.kv_file import KvStore


class Handler:
    """Serves two codes with one method."""

    @serves(
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        needs=Needs.LEADER,
        right=Right.ANYONE,
        rights=topic(PUB),
    )
    def send(self, request: Command, _: Connection) -> Command:
        """Answer every request with success."""
        return request.reply()


def handler_classes() -> set[type]:
    """Classes below `mqbroker.requests` that declare codes, whether the broker has them or not."""
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(requests.__path__, "mqbroker.requests.")
    ]
    return {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and any(declared_by(each))
    }


async def test_each_code_is_served_once_or_not_served_for_a_reason(tmp_path: Path) -> None:
    """Each RequestCode has one handler, or its reason in unsupported.py."""
    declared = Counter(code for each in handler_classes() for _, code, *_ in declared_by(each))
    async with memory_broker(tmp_path) as broker:
        served = set(broker.broker.handler.table)

    assert {code.name for code, times in declared.items() if times > 1} == set()
    assert served == set(declared), "a handler that declares codes is not part of the broker"
    assert served & set(REASONS) == set()
    assert {code.name for code in RequestCode if code not in served | set(REASONS)} == set()
    assert all(REASONS.values())


def test_a_code_that_two_handlers_declare_is_a_mistake() -> None:
    """A code with two handlers is an error when the server is built."""
    assert set(table_of([Handler()], Needs)) == {10, 310}
    with pytest.raises(ValueError, match="SEND_MESSAGE is served by send and by"):
        table_of([Handler(), Handler()], Needs)


def test_what_is_not_served_says_why() -> None:
    """A code of RocketMQ's is refused with its reason, any other by its number."""
    assert str(not_supported(12345)) == "request code 12345 is not supported"
    said = str(not_supported(RequestCode.GET_ROUTEINFO_BY_TOPIC))
    assert said == "request code 105 is not supported: name servers answer this: ask one of them"


async def test_the_docs_show_the_rights_of_each_code(tmp_path: Path) -> None:
    """docs/reference/rights.md has the handlers' declarations; `WRITE_DOCS=1` writes it anew."""
    async with memory_broker(tmp_path) as broker:
        at_broker = broker.broker.handler.table
    config = NamesrvConfig()
    door = config.door(lambda: bytes(NONCE_BYTES))
    at_namesrv = NameServer(config, KvStore(None), lambda: 0.0, door).table
    rows = [
        f"| {code.value} | `{code.name}` "
        f"| {_rights(at_broker, code)} | {_rights(at_namesrv, code)} |"
        for code in RequestCode
        if code in at_broker or code in at_namesrv
    ]
    page = Path(__file__).parents[3] / "docs" / "reference" / "rights.md"
    kept = page.read_text()
    head = kept[: kept.index("| code |")]
    wanted = head + "\n".join(
        ["| code | name | broker | name server |", "|---|---|---|---|", *rows]
    )
    if "WRITE_DOCS" in os.environ:
        page.write_text(wanted + "\n")
    assert kept == wanted + "\n"


def _rights(table: Mapping[int, Served[Any]], code: RequestCode) -> str:
    return table[code].rights.shown if code in table else ""
