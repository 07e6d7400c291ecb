"""Where the command begins: nothing imported here takes long, so Ctrl-C always ends it well."""

from __future__ import annotations

from dledger.program.entering import enter


def main() -> None:
    """Entry point of the console command `mqadmin`."""
    enter("mqadmin", "mqclient.commands.mqadmin", "tools")


if __name__ == "__main__":
    main()
