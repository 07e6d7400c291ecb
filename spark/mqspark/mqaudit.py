"""`mqaudit`: proves from a history and the replicas' own files that nothing acknowledged was lost.

::

    mqaudit --history H --store n0/store --store n1/store --store n2/store [--report DIR]
    mqaudit --store copies/broker-a-n0 --store copies/broker-a-n1    # without a history
    mqaudit pack --history H --to DIR                                # as Parquet, for long runs
    spark-submit spark/mqspark/mqaudit.py --history H --store ...

Exit status: 0 if every property holds, 1 if one is violated, 2 if the input can't be judged. The
stores must not be written to meanwhile. `--report` gets `verdict.json`, `report.html`
and `junit.xml`.
"""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from dledger.program.console import let_reader_leave
from dledger.program.ending import BY_INPUT, sentence
from dledger.program.entering import EXIT_INTERRUPTED
from dledger.program.extras import require
from dledger.program.helping import FlowingHelp
from dledger.program.logs import configure_logging
from dledger.program.whole import Whole
from mqspark.paths import check_inputs, check_report
from mqspark.processes.interrupting import own_temporary_files, was_interrupted

if TYPE_CHECKING:
    from mqspark.verdict import Verdict

EXIT_VIOLATED = 1
EXIT_UNUSABLE = 2

app = App(
    name="mqaudit",
    help="Prove from a history and the replicas' own files that nothing acknowledged was lost. "
    "Exit status: 0 if every property holds, 1 if one is violated, 2 if nothing can be judged."
    "\n\nFor example:\n\n    mqaudit --store copies/n0 --store copies/n1 --store copies/n2\n"
    "    mqaudit --history /tmp/run/history --store copies/n0 --report /tmp/verdict",
    help_format="plaintext",
    help_formatter=FlowingHelp(),
    version_flags=[],
    suppress_keyboard_interrupt=False,
)


@app.default
def audit(
    *,
    history: Path | None = None,
    store: Annotated[list[Path], Parameter(negative=())],
    report: Path | None = None,
    cores: Whole | None = None,
    keep_classes: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Judge a run by its history and its replicas' files.

    Parameters
    ----------
    history:
        The history: a file of JSON Lines or Parquet, or a directory of such. Without a history,
        only properties of replicas alone are judged.
    store:
        A replica's directory (the one with replica.json), or a copy that exportReplica made. Give
        it once for each replica.
    report:
        A directory for verdict.json, report.html and junit.xml; it is made if it is missing.
    cores:
        How many tasks run at a time; by default as many as there are processors.
    keep_classes:
        Have Java write the classes that it has loaded to the virtual environment (160 MB), unless
        it has them. This audit takes half a minute more, and the later ones some 4 s less.
    """
    try:
        require("the audit", "spark")
        check_inputs([*store, *([] if history is None else [history])])
        if report is not None:
            check_report(report)
    except BY_INPUT as error:
        return _unusable(error)
    # Imported here, since --help and usage errors need no Spark.
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from mqspark.auditing import run_audit, write_report  # noqa: PLC0415
    from mqspark.report import print_table  # noqa: PLC0415

    console = Console()
    progress = Console(stderr=True)
    started = time.monotonic()

    def say(step: str) -> None:
        progress.print(
            f"[dim]{time.monotonic() - started:6.1f} s[/]  {step}", highlight=False, soft_wrap=True
        )

    try:
        with own_temporary_files():
            verdict = run_audit(history, store, say, cores=cores, keep_classes=keep_classes)
    except (PySparkException, *BY_INPUT) as error:
        if was_interrupted():
            raise KeyboardInterrupt from error
        # Spark's messages go on with its query plan: the first line says what is wrong.
        spark_says = isinstance(error, PySparkException)
        reason = str(error).strip().splitlines()[0] if spark_says else sentence(error)
        progress.print(
            f"mqaudit: {reason}", style="red", highlight=False, markup=False, soft_wrap=True
        )
        return EXIT_UNUSABLE
    say("done")
    print_table(verdict, console)
    if report is not None:
        words = ["mqaudit", *(() if history is None else ("--history", history))]
        words += [word for path in store for word in ("--store", path)]
        try:
            write_report(verdict, report, shlex.join(map(str, words)), time.monotonic() - started)
        except OSError as error:
            # The disk is full by now, for example. The status still tells a violation.
            unusable = _unusable(error)
            return unusable if verdict.holds else EXIT_VIOLATED
        console.print(f"report: {report / 'report.html'}", highlight=False)
    return _status(verdict, progress)


def _status(verdict: Verdict, progress: Console) -> int:
    """The exit status of a verdict."""
    if verdict.is_undecided:
        progress.print(
            "mqaudit: what the history lacks may explain what was found: see the notes",
            style="red",
            highlight=False,
        )
        return EXIT_UNUSABLE
    return 0 if verdict.holds else EXIT_VIOLATED


@app.command(name="pack")
def pack_history(*, history: Path, to: Path) -> int:
    """Write a history as Parquet, for long runs: a tenth of the bytes, with the same verdict.

    For example:

        mqaudit pack --history /tmp/run/history --to /tmp/packed

    Parameters
    ----------
    history:
        A JSON Lines file, or a directory of *.jsonl files. It is left as it is.
    to:
        A directory for the Parquet files, new or empty.
    """
    try:
        require("a packed history", "spark")
        check_inputs([history])
        from mqspark.history.packing import pack  # noqa: PLC0415 - --help and usage errors need no pyarrow

        rows, size_bytes = pack(history, to)
    except BY_INPUT as error:
        return _unusable(error)
    print(f"{rows:,} events are in {to}, in {size_bytes:,} bytes")
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Python's own status for a bug is 1, which would say `violated`."""
    let_reader_leave()
    configure_logging("console", "warning")
    try:
        sys.exit(app(arguments, print_error=False, exit_on_error=False))
    except CycloptsError as error:
        sys.stderr.write(f"mqaudit: {sentence(error)} (--help shows the options)\n")
        sys.exit(EXIT_UNUSABLE)
    except KeyboardInterrupt:
        _say_interrupted()
    except Exception:
        if was_interrupted():
            _say_interrupted()
        traceback.print_exc()
        sys.exit(EXIT_UNUSABLE)


def _unusable(error: BaseException) -> int:
    sys.stderr.write(f"mqaudit: {sentence(error)}\n")
    return EXIT_UNUSABLE


def _say_interrupted() -> NoReturn:
    sys.stderr.write("mqaudit: interrupted; nothing was judged\n")
    sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
