"""Where the commands begin: nothing imported here takes long, so Ctrl-C always ends them well."""

from __future__ import annotations

from dledger.program.entering import enter


def mqchaos() -> None:
    """Entry point of the console command `mqchaos`."""
    enter("mqchaos", "mqchaos.mqchaos", "server")


def mqcluster() -> None:
    """Entry point of the console command `mqcluster`."""
    enter("mqcluster", "mqchaos.mqcluster", "server")
