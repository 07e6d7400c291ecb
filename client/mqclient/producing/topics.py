"""The queues of a producer's topics, looked up when a topic is first used.

What a key, a number or a selector binds to a queue needs the full set of them. A name server that
has just begun may not know each broker group yet: until it does, the topic's route is unsettled,
and serves only messages that may go anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dledger.world import steady_s
from mqclient.connection.routing import Route
from mqclient.connection.session import Session
from mqclient.errors import NoRoute, not_writable
from mqclient.producing.publishing import Publisher


class Topics:
    """Publishers of messages by topic. `serves` says whether a broker group takes messages now."""

    def __init__(self, session: Session, serves: Callable[[str], bool]) -> None:
        self.settled: dict[str, Publisher] = {}
        self._unsettled: dict[str, Publisher] = {}
        self._session = session
        self._serves = serves
        session.on_route_change.append(self._route_changed)

    async def look_up(self, topic: str, timeout_s: float, *, for_any: bool) -> None:
        """Look up a topic's publisher, maybe one `for_any` queue only; for `timeout_s` wait for
        servers that are about to start. Raises NoRoute."""
        deadline_s = steady_s() + timeout_s
        if topic not in self.settled and topic not in self._unsettled:
            route = await self._session.route_within(topic, "publish to", timeout_s)
            if route.writable:
                await self._session.finder.learn_kinds(route.broker_names)
            self._publish_to(topic, route)
        while topic not in self.settled:
            if for_any and not self._session.settled(topic):
                return
            await self._session.wait_settled(topic, max(0.0, deadline_s - steady_s()))
            self._publish_to(topic, self._session.routes.route(topic))

    def publisher(self, topic: str, *, for_any: bool = False) -> Publisher:
        """A topic's publisher, which was looked up. Raises NoRoute."""
        publisher = self.settled.get(topic)
        if publisher is None and for_any:
            publisher = self._unsettled.get(topic)
        if publisher is None:
            raise NoRoute(topic, "publish to", "not looked up: await prepare(topic) first")
        return publisher

    def known(self, topic: str) -> Publisher | None:
        """A topic's publisher, if it is known."""
        return self.settled.get(topic) or self._unsettled.get(topic)

    def _publish_to(self, topic: str, route: Route | None) -> None:
        if route is None or not route.writable:
            raise not_writable(topic)

        def serves(broker_name: str) -> bool:
            return broker_name not in route.closed and self._serves(broker_name)

        turn = random.randrange(len(route.writable))
        self._forget(topic)
        kept = self.settled if self._session.settled(topic) else self._unsettled
        kept[topic] = Publisher(
            topic, route.writable, serves if route.closed else self._serves, turn
        )

    def _forget(self, topic: str) -> None:
        self.settled.pop(topic, None)
        self._unsettled.pop(topic, None)

    def _route_changed(self, topic: str) -> None:
        route = self._session.routes.route(topic)
        if route is None or self.known(topic) is None:
            return
        if route.writable:
            self._publish_to(topic, route)
        else:  # who sends next looks again, and hears why not
            self._forget(topic)
