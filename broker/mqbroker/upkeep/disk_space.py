"""How full the disk is, and what is done about it: RocketMQ's three levels, with its names.

Above `diskMaxUsedSpaceRatio` percent of the partition RocketMQ removes expired segments at once.
This broker always does that, so here it is a warning. Above `diskSpaceCleanForciblyRatio` the
oldest segments are removed even if they have not expired, if `cleanFileForciblyEnable` is set. That
is RocketMQ's default but not ours: acknowledged messages are kept for their time. Above
`diskSpaceWarningLevelRatio` no messages are taken, while everything else goes on: pulls, commits,
tools, and retention, which makes room. Messages are taken again when there is room. The ledger is
told, so that another replica can lead whose disk is less full.

"Used" is the figure of `df`, without the blocks that only root may use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dledger.observe import get_logger
from dledger.program.pulse import look
from mqbroker import limits
from mqbroker.config import BrokerConfig

_log = get_logger(__name__)


def used_percent(path: Path) -> float:
    """How much of a path's partition is used. OSError."""
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    entire = used + found.f_bavail
    return 100 * used / entire if entire else 0.0


class DiskSpace:
    """The level that the disk has reached. `refusal`: why no messages are taken, or None."""

    def __init__(self, config: BrokerConfig, refuses: Callable[[str | None], None]) -> None:
        """`refuses` is called at each look with why messages are refused, or that they are not."""
        self._config = config
        self._refuses = refuses
        self._path = Path(config.store_path_root_dir)
        self._warned = False
        self.refusal: str | None = None
        #: Whether the oldest segments are removed even if they have not expired.
        self.cleans_forcibly = False

    async def run(self) -> None:
        """Measure the disk every `limits.DISK_LOOK_S` seconds until cancelled."""
        while True:
            self.look()
            await look(limits.DISK_LOOK_S)

    def look(self) -> None:
        """Check how full the disk is."""
        config, path = self._config, str(self._path)
        try:
            used = round(used_percent(self._path), 1)
        except OSError as error:
            _log.warning("disk not measured", path=path, reason=str(error))
            return
        self.cleans_forcibly = (
            config.clean_file_forcibly_enable and used > config.disk_space_clean_forcibly_ratio
        )
        if used > config.disk_max_used_space_ratio and not self._warned:
            _log.warning("disk fills up", path=path, used_percent=used)
        self._warned = used > config.disk_max_used_space_ratio
        level = config.disk_space_warning_level_ratio
        refused, self.refusal = self.refusal, None
        if used > level:
            self.refusal = (
                f"the disk of {path} is full: {used} % used, above diskSpaceWarningLevelRatio "
                f"{level}; stored messages can be read. Make room there: writing goes on by itself"
            )
        if (refused is None) != (self.refusal is None):
            what = "messages taken again" if self.refusal is None else "no messages taken"
            _log.warning(what, path=path, used_percent=used, level_percent=level)
        self._refuses(self.refusal)
