"""Names as numbers: 64 bits of a hash, made of a whole column at once. Pure.

It is MurmurHash3 in a form for numpy: a name's bytes, with zeros up to a multiple of 8, are words,
and each step takes one word of all names of the same length. All tasks must make the same number
of a name, so nothing here is random. It need not withstand anybody: two names with one number look
like one of which different things are said, and are judged by name.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mqspark.screening.packets import Numbers

_Words = npt.NDArray[np.uint64]
_WORD_BYTES: Final = 8
_FIRST, _SECOND = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_FIVE, _ADDED = np.uint64(5), np.uint64(0x52DCE729)
_MIXERS: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT: Final = np.uint64(33)


def hashed(names: pa.Array | pa.ChunkedArray) -> Numbers:
    """A number for each name. None of them may be null."""
    chunks = names.chunks if isinstance(names, pa.ChunkedArray) else [names]
    found = [_of_chunk(chunk) for chunk in chunks]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _of_chunk(names: pa.Array) -> Numbers:
    _, offsets, data = names.buffers()
    ends = np.frombuffer(offsets, np.int32)[names.offset : names.offset + len(names) + 1]
    text = np.frombuffer(data or b"", np.uint8)
    lengths = np.diff(ends)
    found = np.empty(len(names), np.uint64)
    for length in np.unique(lengths).tolist():
        where = np.flatnonzero(lengths == length)
        if len(where) == len(names):
            rows = text[ends[0] : ends[-1]].reshape(len(names), length)
        else:
            rows = text[ends[where][:, np.newaxis] + np.arange(length)]
        found[where] = _of_rows(rows)
    return found.view(np.int64)


def _of_rows(rows: npt.NDArray[np.uint8]) -> _Words:
    """The numbers of names of one length, a row each."""
    count, length = rows.shape
    hashes = np.full(count, length, np.uint64)
    for at in range(0, length, _WORD_BYTES):
        word = np.zeros((count, _WORD_BYTES), np.uint8)
        piece = rows[:, at : at + _WORD_BYTES]
        word[:, : piece.shape[1]] = piece
        hashes ^= _rotated(word.view("<u8")[:, 0] * _FIRST, 31) * _SECOND
        hashes = _rotated(hashes, 27) * _FIVE + _ADDED
    for mixer in _MIXERS:
        hashes = (hashes ^ (hashes >> _SHIFT)) * mixer
    return hashes ^ (hashes >> _SHIFT)


def _rotated(words: _Words, bits: int) -> _Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
