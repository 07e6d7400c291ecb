"""Shares of a table's rows among the owners whose work they are. Pure.

A table of the state has a bound, and whoever fills it must not stop the others. So a quarter of it
is shared out evenly: each owner is *sure* of a few rows. The rest is *spare*: an owner may have as
much of it as it leaves free, or `greed` times as much. So one has half of the spare rows at most,
two a third each, and who comes late finds some. (Switches share the memory of their ports in this
way: Choudhury and Hahne's dynamic thresholds.) If there may be any number of owners, none is sure
of a row.

Only a leader asks, before it appends. What an entry does never depends on this, and a log or a
snapshot may hold more than is taken today.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dledger.limits import TOPIC_BYTES_MAX

#: A name for each of a table's shares: a topic and a group, for example.
Owner: TypeAlias = tuple[str, ...]
Numbers: TypeAlias = npt.NDArray[np.int64]


def owner_name(value: bytes) -> str:
    """A name as owners have it: however long a client makes it, its beginning."""
    return value[:TOPIC_BYTES_MAX].decode(errors="replace")


class Shares:
    """The rows of a table by owner. `what` names them, `owner` says what their owners are."""

    def __init__(
        self, what: str, owner: str, rows_max: int, owners_max: int = 0, *, greed: int = 1
    ) -> None:
        self._what, self._owner = what, owner
        self._rows_max = rows_max
        self._greed = greed
        self._sure = max(1, rows_max // 4 // owners_max) if owners_max else 0
        self._spare = rows_max - (rows_max // 4 if owners_max else 0)
        self._of: dict[str, int] = {}
        self._beyond = 0
        #: All rows.
        self.count = 0

    def of(self, owner: str) -> int:
        """How many rows an owner has."""
        return self._of.get(owner, 0)

    def rows(self) -> dict[str, int]:
        """How many rows each owner has, now."""
        return self._of.copy()

    def change(self, owner: str, by: int) -> None:
        """An owner has more rows, or fewer."""
        before = self._of.get(owner, 0)
        after = before + by
        self.count += by
        self._beyond += max(0, after - self._sure) - max(0, before - self._sure)
        if after:
            self._of[owner] = after
        else:
            self._of.pop(owner, None)

    def begin_again(self, owners: Iterable[str] = ()) -> None:
        """Count anew: a row for each of these."""
        self._of.clear()
        self._beyond = self.count = 0
        for owner in owners:
            self.change(owner, 1)

    def room(self, owner: str, coming: int = 0, coming_in_all: int = 0) -> int:
        """How many rows more an owner may have. Some may be on their way: to it, and in all."""
        mine = self.of(owner) + coming
        others = self._beyond - max(0, self.of(owner) - self._sure) + coming_in_all - coming
        most = self._sure + max(0, self._spare - others) * self._greed // (1 + self._greed)
        return max(0, min(most - mine, self._rows_max - self.count - coming_in_all))

    def full(self, owner: str) -> str:
        """The bound that an owner has reached."""
        return (
            f"{self.count} {self._what} are kept of at most {self._rows_max}, {self.of(owner)} of "
            f"them for {self._owner} {owner!r}, which may not have more now"
        )


class Owners:
    """The owners of a table whose rows have no room for names: numbers instead.

    A row counts for each of its owners. A number is used again when its last row is gone.
    """

    def __init__(self, *shares: Shares) -> None:
        self._shares = shares
        self._numbers: dict[Owner, int] = {}
        self._owners: dict[int, Owner] = {}
        self._rows: dict[int, int] = {}
        self._free: list[int] = []

    def add(self, owner: Owner, rows: int = 1) -> int:
        """Further rows of an owner. Returns the number that each of them is to keep."""
        number = self._numbers.get(owner)
        if number is None:
            number = self._free.pop() if self._free else len(self._numbers)
            self._numbers[owner], self._owners[number], self._rows[number] = number, owner, 0
        self._count(number, rows)
        return number

    def remove(self, number: int) -> None:
        """Count one row less for an owner; its number is free after the last one."""
        self._count(number, -1)
        if not self._rows[number]:
            del self._rows[number]
            del self._numbers[self._owners.pop(number)]
            self._free.append(number)

    def _count(self, number: int, rows: int) -> None:
        self._rows[number] += rows
        for name, shares in zip(self._owners[number], self._shares, strict=True):
            shares.change(name, rows)

    def rows_by(self, place: int) -> dict[str, int]:
        """How many rows each owner has of the share at this place."""
        return self._shares[place].rows()

    def full(self, owner: Owner) -> str | None:
        """The bound that keeps an owner from having a further row, if one does."""
        for name, shares in zip(owner, self._shares, strict=True):
            if not shares.room(name):
                return shares.full(name)
        return None

    def known(self) -> dict[int, Owner]:
        """The owners by their numbers, now."""
        return self._owners.copy()

    def restoring(
        self, owners: Sequence[Sequence[str]], numbers: Numbers
    ) -> Generator[None, None, Numbers]:
        """Take over what a snapshot kept, in steps. Returns the rows' numbers now.

        Rows without an owner, as an older version kept all, belong to one without a name.
        """
        for shares in self._shares:
            shares.begin_again()
        self._numbers, self._owners, self._rows, self._free = {}, {}, {}, []
        nobody = ("",) * len(self._shares)
        places = np.where(numbers < len(owners), numbers, -1) + 1
        counts = np.bincount(places, minlength=1)
        anew = np.zeros(len(counts), np.int64)
        for place in np.flatnonzero(counts).tolist():
            named = (*owners[place - 1],) if place else nobody
            owner = named if len(named) == len(nobody) else nobody
            anew[place] = self.add(owner, int(counts[place]))
            yield
        numbered: Numbers = anew[places]
        return numbered
