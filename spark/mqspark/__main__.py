"""Where the command begins: nothing imported here takes long, so Ctrl-C always ends it well."""

from __future__ import annotations

from dledger.program.entering import enter


def main() -> None:
    """Entry point of the console command `mqaudit`."""
    enter("mqaudit", "mqspark.mqaudit", "spark")


if __name__ == "__main__":
    main()
