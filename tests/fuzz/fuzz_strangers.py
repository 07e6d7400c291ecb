"""Coverage-guided fuzzing of everything that reads bytes of strangers; a long run, by hand.

    pip install atheris && python tests/fuzz/fuzz_strangers.py --corpus DIR -max_total_time=600

The readers are those of `readers.py`; an input that one of them can't take is written to a file.
`--corpus DIR` first writes the seeds there: golden requests and their bodies, and `corpus.txt`,
which is what earlier runs found worth keeping. `--keep DIR` makes that file of a run's corpus.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports():
    from readers import CORPUS, CORPUS_BYTES_MAX, one_input, write_corpus


def keep(folder: Path) -> None:
    """The newest inputs that a fuzzer named by their hash, as lines of hexadecimal digits."""
    found = [path for path in folder.iterdir() if "-" not in path.name]
    lines, room = [], CORPUS_BYTES_MAX
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        data = path.read_bytes()
        room -= len(data)
        if room < 0:
            break
        lines.append(data.hex())
    CORPUS.write_text("".join(f"{line}\n" for line in sorted(lines)))


def main() -> None:
    """Call the fuzzer; its own options follow ours."""
    arguments = sys.argv
    if "--keep" in arguments:
        keep(Path(arguments[arguments.index("--keep") + 1]))
        return
    if "--corpus" in arguments:
        place = arguments.index("--corpus")
        folder = arguments[place + 1]
        write_corpus(Path(folder))
        arguments[place : place + 2] = [folder]
    atheris.Setup(arguments, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
