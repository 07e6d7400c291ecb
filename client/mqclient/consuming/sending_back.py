"""Retries of messages that their handlers could not handle: redelivery, or dead letters.

The broker stores such a message once more, in the retry topic that all members of the group read.
It arrives there when its delay is over: after 10 s, then 30 s, 1 min and so on by the broker's
levels, or by the group's own schedule, unless the handler names another delay. After too many tries
it goes to the group's dead letters instead, in the topic `%DLQ%` followed by the group's name.
Either way it is off the handler's queue, and later messages are not held up.

If no broker takes a message back for seconds, its handler gets it once more: a message is never
dropped. A message that retention has removed from its broker meanwhile is sent from here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

import anyio

from dledger.errors import BadInput, DledgerError
from dledger.observe import get_logger
from dledger.remoting import message as wire
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    ConsumerSendMsgBackHeader,
    ConsumerSendMsgBackResponseHeader,
    SendMessageV2Header,
    decode_header,
    encode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.numbers import INT32_MAX
from dledger.remoting.record import COMPRESSED, COMPRESSION_TYPE
from mqclient import limits
from mqclient.connection.leaders import LeaderFinder
from mqclient.errors import Refused
from mqclient.models import ReceivedMessage

log = get_logger(__name__)

#: The effect of a handler's exception: the message comes again by the group's retry topic, or is
#: handled again in its place, or `run` ends with the exception.
Mode: TypeAlias = Literal["retry", "suspend", "raise"]
"""The treatment of a message that was not handled."""
OnFailure: TypeAlias = Callable[[Exception, Any, int], Any]
"""Told of each failure: the exception, the message, the attempt from 1 on. It may be asynchronous,
and may return the mode for this one; None is the default."""
OnError: TypeAlias = Mode | OnFailure

DEAD: Final = -1
"""The delay level that means: no more tries, to the dead letters at once."""
_FIRST_RETRY_LEVEL: Final = 3


class Nack(Exception):
    """An exception for handlers: the message is redelivered after `delay_s`, or the level's delay.

    Without either, the group's schedule sets the delay, or the broker, which waits longer each
    time. The level -1 moves the message to the group's dead letters. Any other exception has the
    same effect as `Nack()`, and is logged as a fault.
    """

    def __init__(self, delay_level: int = 0, *, delay_s: float | None = None) -> None:
        self.delay = Delay.of(delay_level, delay_s)
        super().__init__(f"not handled, to come again after {self.delay}")


@dataclass(frozen=True, slots=True)
class Delay:
    """The delay until a message is redelivered: that of a level, or `millis` if that is above 0."""

    level: int = 0
    millis: int = 0

    @classmethod
    def of(cls, level: int, delay_s: float | None) -> Delay:
        """The delay that a handler asks for. Raises BadInput."""
        if delay_s is None:
            return cls(check_level(level))
        if level:
            raise BadInput(f"delay_level={level} and delay_s={delay_s}: set one of them at most")
        return cls(millis=delay_millis(delay_s, "delay_s"))

    @property
    def is_open(self) -> bool:
        """Whether no delay is given."""
        return self == Delay()

    def __str__(self) -> str:
        return f"{self.millis / 1000} s" if self.millis else f"delay level {self.level}"


def delay_millis(delay_s: float, what: str) -> int:
    """A delay as a broker is asked for it: 1 ms at least. Raises BadInput."""
    if not _is_number(delay_s) or not 0 <= delay_s <= limits.RETRY_DELAY_S_MAX:
        raise BadInput(
            f"{what}={delay_s!r} is not within 0 and {limits.RETRY_DELAY_S_MAX} seconds, which "
            "brokers keep a message at most"
        )
    return max(1, math.ceil(delay_s * 1000))


def check_schedule(delays_s: Sequence[float]) -> tuple[int, ...]:
    """A group's schedule, in ms: the delay after each failure, the last for all that follow."""
    if len(delays_s) > limits.RETRY_DELAYS_MAX:
        raise BadInput(f"{len(delays_s)} retry_delays_s are above {limits.RETRY_DELAYS_MAX}")
    return tuple(delay_millis(each, f"retry_delays_s[{n}]") for n, each in enumerate(delays_s))


def check_level(level: int) -> int:
    """A delay level that a message can be sent back with. Raises BadInput."""
    if not _is_whole(level):
        raise BadInput(f"delay_level={level!r} is not a whole number")
    if not DEAD <= level <= limits.DELAY_LEVEL_MAX:
        raise BadInput(
            f"delay_level={level} is not within {DEAD} (dead letters), 0 (the broker's choice) and "
            f"{limits.DELAY_LEVEL_MAX}"
        )
    return level


def check_on_error(on_error: OnError | None, group: str | None, *, ordered: bool = False) -> Mode:
    """The treatment of an exception; by default the consumer's suggestion. Raises BadInput."""
    if on_error is None or callable(on_error):
        return "suspend" if group is None or ordered else "retry"
    if on_error not in ("retry", "suspend", "raise"):
        raise BadInput(f"on_error={on_error!r}: expected 'retry', 'suspend' or 'raise'")
    if on_error == "retry" and group is None:
        raise BadInput(
            "on_error='retry': only members that share queues read their group's retry topic; "
            "choose 'suspend' or 'raise'"
        )
    if on_error == "retry" and ordered:
        raise BadInput(
            "on_error='retry': a message that comes again later has lost its place in the order; "
            "choose 'suspend', with max_reconsume_times to give one up in the end, or 'raise'"
        )
    return on_error


async def tell_failure(on_failure: OnFailure, error: Exception, message: ReceivedMessage) -> object:
    """The application's decision about a failure; None, and a log line, if that fails itself."""
    attempt = message.reconsume_times + message.handled_again + 1
    try:
        said = on_failure(error, message, attempt)
        return await said if inspect.isawaitable(said) else said
    except Exception:
        log.exception("on_error raised", **_names(message))
        return None


def check_times(times: int | None) -> int | None:
    """The number of times that a message may be redelivered. Raises BadInput."""
    if times is not None and not (_is_whole(times) and 0 <= times <= INT32_MAX):
        raise BadInput(f"max_reconsume_times={times!r} is not within 0 and {INT32_MAX}")
    return times


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_whole(value) or isinstance(value, float)


@dataclass(frozen=True, slots=True)
class SendingBack:
    """Sends back messages of one group; without one they are dropped in the end.

    `times_max`: None leaves it to the group's settings. `schedule`: delays in ms, for messages that
    nothing is said of; without one the broker's levels.
    """

    group: str | None
    finder: LeaderFinder
    schedule: Sequence[int] = ()
    on_error: Mode = "retry"
    times_max: int | None = None
    token: Callable[[MessageQueue], int | None] | None = None
    """The token of the lock of a message's queue, if queues are locked."""
    on_failure: OnFailure | None = None

    async def send_back(
        self, message: ReceivedMessage, delay: Delay, pop_time_ms: int | None = None
    ) -> int | None:
        """Whether the message, popped then, was somebody else's already, or done: 1, or 0 if it is
        acknowledged by this. None if it is not known, and still to be acknowledged.

        Raises Refused, or another ClientError or RemotingError, if it may not be stored.
        """
        if self.group is None:
            raise BadInput(
                "can't send back: only members that share queues read their group's retry topic. "
                "Handle the message again, or leave it"
            )
        if delay.is_open:
            delay = self._scheduled(message.reconsume_times)
        header = ConsumerSendMsgBackHeader(
            offset=message.position,
            group=self.group,
            delay_level=delay.level,
            origin_topic=message.record.topic,
            max_reconsume_times=self.times_max,
            delay_millis=delay.millis or None,
            lock_token=None if self.token is None else self.token(message.queue),
            pop_time=pop_time_ms,
        )
        command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, encode_header(header))
        what = f"sending back {message!r} for group {self.group!r}"
        place = (message.broker_name, message.record.topic)
        try:
            answer = await self.finder.granted(what, *place, command, limits.REQUEST_TIMEOUT_S)
        except Refused as refused:
            if refused.code != ResponseCode.SYSTEM_ERROR or pop_time_ms is not None:
                raise
            log.warning("message sent back whole", reason=str(refused), **_names(message))
            copy = _copy_for(self.group, message, delay, self.times_max)
            await self.finder.granted(what, *place, copy, limits.REQUEST_TIMEOUT_S)
            return None
        # A broker that does not know of it says nothing; nor does one whose group takes none back.
        if pop_time_ms is None or "late" not in answer.ext:
            return None
        return decode_header(ConsumerSendMsgBackResponseHeader, answer).late

    async def settle(self, message: ReceivedMessage, error: Exception) -> bool:
        """See to a message whose handler raised; False if it is to be handled again, here.

        Raises the handler's error if that is what `on_error` says.
        """
        mode = await self._mode(error, message)
        if mode == "raise":
            raise error
        delay = error.delay if isinstance(error, Nack) else Delay()
        named = {"group": self.group, **_names(message)}
        if not isinstance(error, Nack):
            log.warning("message not handled", **named, error=repr(error), exc_info=error)
        if mode == "suspend" and delay.level != DEAD:
            return await self._suspend(message, delay)
        return await self._send_back_or_again(message, delay)

    async def _mode(self, error: Exception, message: ReceivedMessage) -> Mode:
        """The treatment of this message: the application's decision, or else the default."""
        if self.on_failure is None or isinstance(error, Nack):
            return self.on_error
        said = await tell_failure(self.on_failure, error, message)
        if said is None:
            return self.on_error
        try:
            return check_on_error(cast("Mode", said), self.group, ordered=self.token is not None)
        except BadInput as refused:
            log.error("on_error returned what can't be", reason=str(refused), **_names(message))
            return self.on_error

    async def _send_back_or_again(self, message: ReceivedMessage, delay: Delay) -> bool:
        named = {"group": self.group, **_names(message)}
        if self.group is None:
            log.error("message given up: without a group there are no dead letters", **named)
            return True
        try:
            await self.send_back(message, delay)
        except DledgerError as problem:
            after_s, reason = limits.HANDLE_AGAIN_S, str(problem)
            event = "message not taken back, will be handled again"
            log.warning(event, **named, reason=reason, after_s=after_s)
            await anyio.sleep(limits.HANDLE_AGAIN_S)
            return False
        return True

    async def _suspend(self, message: ReceivedMessage, delay: Delay) -> bool:
        """Wait, to handle it again in its place; or give it up after so many times."""
        if self.times_max is not None and message.handled_again >= self.times_max:
            return await self._send_back_or_again(message, Delay(DEAD))
        if delay.is_open:
            delay = self._scheduled(message.handled_again)
        message.handled_again += 1
        await anyio.sleep(delay.millis / 1000 or limits.SUSPEND_S)
        return False

    def _scheduled(self, failures: int) -> Delay:
        """The group's own delay after so many failures; open without a schedule."""
        if not self.schedule:
            return Delay()
        return Delay(millis=self.schedule[min(failures, len(self.schedule) - 1)])


def _copy_for(group: str, message: ReceivedMessage, delay: Delay, times_max: int | None) -> Command:
    """The send of a message to its group's retry topic, as stock consumers send it. Raises
    BadInput."""
    record = message.record
    added = {}
    if not wire.has_property(record.properties, wire.RETRY_TOPIC):
        added[wire.RETRY_TOPIC] = record.topic
    if not wire.has_property(record.properties, wire.ORIGIN_MESSAGE_ID):
        added[wire.ORIGIN_MESSAGE_ID] = message.offset_message_id
    if delay.millis:
        added[wire.TIMER_DELAY_MS] = str(delay.millis)
    elif delay.level != DEAD:
        added[wire.DELAY] = str(delay.level or _FIRST_RETRY_LEVEL + record.reconsume_times)
    kept = wire.properties_without(record.properties, (*wire.DELAYS, *added))
    try:
        properties = (kept + wire.properties_encode(added)).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"its properties are not UTF-8: {error}") from error
    header = SendMessageV2Header(
        a=group,
        b=wire.RETRY_PREFIX + group,
        c=wire.DEFAULT_TOPIC,
        d=1,
        e=0,
        f=record.sys_flag & (COMPRESSED | COMPRESSION_TYPE),
        g=record.born_timestamp_ms,
        h=record.flag,
        i=properties,
        j=min(record.reconsume_times + 1, INT32_MAX),
        l=0 if delay.level == DEAD else times_max,
    )
    return Command(RequestCode.SEND_MESSAGE_V2, encode_header(header), bytes(record.body))


def _names(message: ReceivedMessage) -> dict[str, str | int]:
    """The fields that name a message in the log; fewer for a malformed message."""
    try:
        return {
            "topic": message.topic,
            "message_id": message.message_id,
            "reconsume_times": message.reconsume_times,
        }
    except BadInput as error:
        return {"position": message.position, "malformed": str(error)}
