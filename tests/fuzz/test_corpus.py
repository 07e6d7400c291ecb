"""Inputs that a fuzzer found worth keeping give values, or errors of ours, at every reader."""

from __future__ import annotations

from pathlib import Path

from readers import CORPUS, SEEDS, TARGETS, one_input, write_corpus


def test_every_reader_takes_what_was_kept() -> None:
    """Every reader takes each kept input, whichever reader it was found with."""
    kept = [bytes.fromhex(line) for line in CORPUS.read_text().split()]
    for data in kept:
        for number in range(len(TARGETS)):
            one_input(bytes([number]) + data[1:])

    assert len(kept) > 100


def test_every_reader_has_seeds(tmp_path: Path) -> None:
    """A fuzzer without seeds gets nowhere, so each reader has some that it can read."""
    write_corpus(tmp_path)
    seeds = [path.read_bytes() for path in tmp_path.iterdir()]

    assert {seed[0] % len(TARGETS) for seed in seeds} == {*range(len(TARGETS))}
    for reader, each in SEEDS.items():
        for data in each:
            reader(data)
