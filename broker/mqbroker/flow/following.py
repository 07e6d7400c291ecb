"""How long ago followers had all that there was, by what the leader notes once a second. Pure.

A sample is a time, and the log's last entry then. A follower is behind since the first sample that
shows an entry which it lacks. Samples that all followers have passed are forgotten. While one stays
away they become too many, and every second one goes.
"""

from __future__ import annotations

from mqbroker import limits


class Following:
    """The samples of one leadership."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []

    def begin(self) -> None:
        """A leadership begins: nothing is known of the time before."""
        self._samples.clear()

    def sample(self, now_s: float, last_index: int, held_index: int) -> None:
        """Note where the log ends, and up to where all followers hold it. Once a second."""
        samples = [each for each in self._samples if each[1] > held_index]
        if last_index > held_index and (not samples or last_index > samples[-1][1]):
            samples.append((now_s, last_index))
        if len(samples) > limits.FOLLOWING_SAMPLES_MAX:
            del samples[1::2]
        self._samples = samples

    def behind_s(self, held_index: int, now_s: float) -> float:
        """For how long a follower that holds entries up to this one has lacked a later one."""
        times = (at_s for at_s, last_index in self._samples if last_index > held_index)
        return now_s - next(times, now_s)
