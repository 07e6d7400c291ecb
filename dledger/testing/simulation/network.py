"""The simulated network: links that keep order, and everything else that can go wrong.

A link delays, stalls one way, or breaks; some frames of a broken link may still arrive later,
beside those of the next one. Bits may flip on the way.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dledger.buffers import Buffer
from dledger.testing.simulation.streams import Streams

DELAY_S = 0.001
LATE_S = 0.5
"""How long after its end a broken link may still deliver."""


class SimulatedLink:
    """Sending end of one direction, held by the node that sends."""

    def __init__(self, network: Network, sender: str, receiver: str) -> None:
        self.sender = sender
        self.receiver = receiver
        self.other: SimulatedLink
        self.alive = True
        self.queued_bytes = 0
        self.in_flight: deque[tuple[float, bytes]] = deque()
        self._network = network

    def send(self, buffers: tuple[Buffer, ...]) -> None:
        """Put a frame on the wire."""
        if self.alive:
            frame = b"".join(buffers)
            self._network.frames += 1
            self._network.on_send(self.sender, self.receiver, frame)
            arrives = self._network.now + self._network.delay_s(self.sender, self.receiver)
            last = self.in_flight[-1][0] if self.in_flight else 0.0
            self.in_flight.append((max(arrives, last), frame))

    def close(self, reason: str) -> None:
        """Cut the connection at both of its ends."""
        self._network.cut(self.sender, self.receiver)

    def end(self, reason: str) -> None:
        """Close the connection that this was a part of, and not the one that followed it."""
        if self.alive:
            self.close(reason)


@dataclass
class Network:
    """Links of the group, and the time."""

    streams: Streams
    now: float = 1000.0
    frames: int = 0
    slow: dict[tuple[str, str], float] = field(default_factory=dict)
    stalled_until: dict[tuple[str, str], float] = field(default_factory=dict)
    links: dict[tuple[str, str], SimulatedLink] = field(default_factory=dict)
    late: dict[str, list[tuple[float, SimulatedLink, bytes]]] = field(default_factory=dict)
    on_down: Callable[[SimulatedLink], None] = lambda _: None
    on_send: Callable[[str, str, bytes], None] = lambda *_: None

    def delay_s(self, sender: str, receiver: str) -> float:
        """How long a frame sent now takes."""
        usual_s = self.slow.get((sender, receiver), DELAY_S)
        return usual_s * self.streams[f"delay/{sender}-{receiver}"].uniform(0.5, 1.5)

    def connect(self, first: str, second: str) -> tuple[SimulatedLink, SimulatedLink]:
        """A new connection between two nodes."""
        there, back = SimulatedLink(self, first, second), SimulatedLink(self, second, first)
        there.other, back.other = back, there
        self.links[first, second], self.links[second, first] = there, back
        return there, back

    def cut(self, first: str, second: str) -> None:
        """Break a connection: of what is in flight, a random first part arrives late."""
        rng = self.streams["late"]
        for pair in ((first, second), (second, first)):
            link = self.links.pop(pair, None)
            if link is not None:
                link.alive = False
                late = self.late.setdefault(link.receiver, [])
                for _ in range(rng.randint(0, len(link.in_flight))):
                    when = self.now + rng.uniform(0, LATE_S)
                    late.append((when, link, link.in_flight.popleft()[1]))
                link.in_flight.clear()
                self.on_down(link)

    def garble(self, rng: random.Random) -> tuple[str, str] | None:
        """Flip a bit of a frame that is under way, mostly near its beginning; between whom."""
        busy = [pair for pair in sorted(self.links) if self.links[pair].in_flight]
        if not busy:
            return None
        pair = rng.choice(busy)
        in_flight = self.links[pair].in_flight
        at = rng.randrange(len(in_flight))
        arrives, frame = in_flight[at]
        byte_at = rng.randrange(min(len(frame), rng.choice((40, len(frame)))))
        damaged = bytearray(frame)
        damaged[byte_at] ^= 1 << rng.randrange(8)
        in_flight[at] = arrives, bytes(damaged)
        return pair

    def is_stalled(self, first: str, second: str) -> bool:
        """Whether either of two nodes does not hear the other, so that they can't connect."""
        pairs = (first, second), (second, first)
        return any(self.stalled_until.get(pair, 0.0) > self.now for pair in pairs)

    def due(self, receiver: str, senders: list[str]) -> list[tuple[SimulatedLink, bytes]]:
        """The frames that reach a node now, in order per link; late ones of old links first."""
        frames = []
        if self.late.get(receiver):
            waiting = self.late[receiver]
            frames += [(link, frame) for when, link, frame in waiting if when <= self.now]
            self.late[receiver] = [held for held in waiting if held[0] > self.now]
        for sender in senders:
            link = self.links.get((sender, receiver))
            if link is None or self.stalled_until.get((sender, receiver), 0.0) > self.now:
                continue
            while link.in_flight and link.in_flight[0][0] <= self.now:
                frames.append((link, link.in_flight.popleft()[1]))
        return frames
