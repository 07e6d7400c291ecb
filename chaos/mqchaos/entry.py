"""Where the commands begin: nothing imported here takes long, so Ctrl-C always ends them well."""

from __future__ import annotations

from dledger.program.entering import enter


def mqchaos() -> None:
    """The console command."""
    enter("mqchaos", "mqchaos.mqchaos", "server")


def mqcluster() -> None:
    """The console command."""
    enter("mqcluster", "mqchaos.mqcluster", "server")
