"""How a table's rows are shared out among those whose work they are. Pure.

A table of the state has a bound, and whoever fills it must not stop the others. So a quarter of it
is shared out evenly: each owner is *sure* of a few rows. The rest is *spare*: an owner may have as
much of it as it leaves free, so one has half of the spare rows at most, two a third each, and who
comes late finds some. (Switches share the memory of their ports in this way: Choudhury and Hahne's
dynamic thresholds.)

Only a leader asks, before it appends. What an entry does never depends on this, and a log or a
snapshot may hold more than is taken today.
"""

from __future__ import annotations

from collections.abc import Iterable


class Shares:
    """The rows of a table by owner. `what` names them, `owner` says what their owners are."""

    def __init__(self, what: str, owner: str, rows_max: int, owners_max: int) -> None:
        self._what, self._owner = what, owner
        self._rows_max = rows_max
        self._sure = max(1, rows_max // 4 // owners_max)
        self._spare = rows_max - rows_max // 4
        self._of: dict[str, int] = {}
        self._beyond = 0
        #: All rows.
        self.count = 0

    def of(self, owner: str) -> int:
        """How many rows an owner has."""
        return self._of.get(owner, 0)

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
        most = self._sure + max(0, self._spare - others) // 2
        return max(0, min(most - mine, self._rows_max - self.count - coming_in_all))

    def full(self, owner: str) -> str:
        """Which bound an owner has reached."""
        return (
            f"{self.count} {self._what} are kept of at most {self._rows_max}, {self.of(owner)} of "
            f"them for {self._owner} {owner!r}, which may not have more now"
        )
