"""Chooses the queue of a message among those of its topic. Pure.

By hand (`queue_id`), by key (the same key always goes to the same queue, by Java's string hash as
in RocketMQ's SelectMessageQueueByHash), by the caller's own function, or in turn. Turns skip broker
groups that don't serve at the moment, if another one does. A message whose queue was chosen in turn
can move `elsewhere` if its group does not take it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import tags_code
from mqclient.errors import BadMessage
from mqclient.models import Message, Selector
from mqclient.signatures import wrong

_PLAIN = Message("", b"")


class Publisher:
    """The writable queues of one topic, in RocketMQ's order, and which is next.

    `serves` says whether a broker group takes messages now, as far as is known. `turn` is where the
    turns begin. It is random, since producers that send one message each would all use the same
    queue.
    """

    def __init__(
        self,
        topic: str,
        queues: tuple[MessageQueue, ...],
        serves: Callable[[str], bool],
        turn: int,
    ) -> None:
        self.topic = topic
        self.queues = queues
        self._serves = serves
        self._turn = turn

    def choose(
        self,
        message: Message,
        queue_id: int | None,
        key: str | None,
        selector: Selector | None,
    ) -> MessageQueue:
        """The queue for `message`, by priority, key, number, selector or turn. Raises BadMessage if
        the caller's choice is not one of them."""
        if message.priority is not None:
            if (queue_id, key, selector) != (None, None, None):
                raise BadMessage(
                    f"a message to topic {self.topic!r} with priority={message.priority}: the "
                    "priority decides the queue, so you can't choose one"
                )
            return self._level(message.priority)
        if key is not None:
            return self._keyed(key)
        if queue_id is not None:
            return self._numbered(queue_id)
        if selector is not None:
            if not callable(selector):
                raise wrong("selector", selector, Selector)
            return self._selected(selector, message)
        self._turn += 1
        queue = self.queues[self._turn % len(self.queues)]
        if self._serves(queue.broker_name):
            return queue
        return self.elsewhere(queue.broker_name) or queue

    def choose_each(
        self, count: int, queue_ids: Sequence[int] | None, keys: Sequence[str] | None
    ) -> list[MessageQueue]:
        """A queue for each of `count` messages, all of one broker group. Raises BadMessage."""
        given = keys if queue_ids is None else queue_ids
        if given is None or (keys is not None and queue_ids is not None):
            raise BadMessage(f"a batch to {self.topic!r}: give it queue_ids or keys, not both")
        if len(given) != count:
            raise BadMessage(
                f"a batch of {count} messages to {self.topic!r} with {len(given)} queue_ids or "
                "keys: one is needed for each message"
            )
        if keys is not None:
            queues = [*map(self._keyed, keys)]
        else:
            group = self._numbered(queue_ids[0]).broker_name if queue_ids else ""
            queues = [self._numbered(queue_id, group) for queue_id in queue_ids or ()]
        names = sorted({queue.broker_name for queue in queues})
        if len(names) > 1:
            raise BadMessage(
                f"a batch to {self.topic!r} with queues of {' and '.join(names)}: each broker "
                "group has a log of its own, so none can store all of it or nothing. Send a batch "
                "to each, or choose queue_ids, which are taken of one group"
            )
        return queues

    def elsewhere(self, broker_name: str) -> MessageQueue | None:
        """The next queue in turn of another group that serves, or None."""
        for step in range(1, len(self.queues) + 1):
            queue = self.queues[(self._turn + step) % len(self.queues)]
            if queue.broker_name != broker_name and self._serves(queue.broker_name):
                self._turn += step
                return queue
        return None

    def _level(self, priority: int) -> MessageQueue:
        """The queue of a priority, on the broker group whose turn it is."""
        name = self.choose(_PLAIN, None, None, None).broker_name
        queues = [queue for queue in self.queues if queue.broker_name == name]
        at_most = [queue for queue in queues if queue.queue_id <= priority]
        return max(at_most or queues[:1], key=lambda queue: queue.queue_id)

    def _keyed(self, key: str) -> MessageQueue:
        if not isinstance(key, str):
            raise wrong("key", key, str)
        if not key:
            raise BadMessage(f"a message to topic {self.topic!r} with key='': a key is not empty")
        return self.queues[abs(tags_code(key)) % len(self.queues)]

    def _numbered(self, queue_id: int, broker_name: str = "") -> MessageQueue:
        if type(queue_id) is not int:
            raise wrong("queue_id", queue_id, int)
        for queue in self.queues:
            if queue.queue_id == queue_id and broker_name in ("", queue.broker_name):
                return queue
        where = f" on {broker_name}" if broker_name else ""
        raise BadMessage(
            f"topic {self.topic!r} has no queue {queue_id}{where}: it has {len(self.queues)} to "
            "write to"
        )

    def _selected(self, selector: Selector, message: Message) -> MessageQueue:
        queue = selector(self.queues, message)
        if queue not in self.queues:
            raise BadMessage(f"the selector chose {queue}, which is not a queue of {self.topic!r}")
        return queue
