"""Where a simulated run's chance comes from: one stream of numbers for each kind of event.

If all draws came from one generator, a new fault, even one that never comes in a run, would shift
every draw after it, and no seed would mean what it meant before. So each kind of fault, each knob
of the odds, each pair of nodes whose messages take their time draws from a stream of its own,
made of the run's seed and a name. A new kind then changes only the runs in which it comes.
"""

from __future__ import annotations

import random


class Streams(dict[str, random.Random]):
    """A run's generators, by name; each is made when it is first asked for."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._seed = seed

    def __missing__(self, name: str) -> random.Random:
        stream = self[name] = random.Random(f"{self._seed}/{name}")
        return stream
