"""A config is a value; what changes at run time is which one counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.remoting.codes import RequestCode, ResponseCode
from mqbroker.config import BrokerConfig
from mqbroker.testing import served
from mqbroker.testing.requests import ask


async def test_a_setting_replaces_the_config_that_counts_and_changes_no_other(
    tmp_path: Path,
) -> None:
    """The file's stays, since an empty setting gives its value back; one that was kept stays."""
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
