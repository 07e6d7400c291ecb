"""Reading messages without being a consumer: by queue and offset, moving nobody's offsets."""

from __future__ import annotations

from dledger.remoting.bodies import BrokerData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    PullMessageHeader,
    PullMessageResponseHeader,
    SearchOffsetByTimestampHeader,
    SearchOffsetByTimestampResponseHeader,
    decode_header,
)
from dledger.remoting.headers.consume import PULL_SUBSCRIPTION
from dledger.remoting.json_dialect import MessageQueue
from mqclient.admin.session import TOOLS_GROUP, AdminSession
from mqclient.errors import Refused
from mqclient.models import ReceivedMessage, messages_in

PULL_RECORDS_MAX = 32
_NOTHING_THERE = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class MessageAdmin(AdminSession):
    """The call that reads messages."""

    async def read_queue(
        self, topic: str, broker_name: str, queue_id: int, offset: int, count: int
    ) -> list[ReceivedMessage]:
        """Up to `count` messages of one queue from `offset` on; fewer where the queue ends.

        An offset before the queue's first message stands for that one.
        """
        (broker,) = await self.groups(broker=broker_name)
        messages: list[ReceivedMessage] = []
        while len(messages) < count:
            wanted = min(PULL_RECORDS_MAX, count - len(messages))
            answer = await self._pull(broker, topic, queue_id, offset, wanted)
            next_offset = decode_header(PullMessageResponseHeader, answer).next_begin_offset
            if answer.code == ResponseCode.SUCCESS:
                messages += messages_in(answer.payload, broker_name)
            if next_offset <= offset:
                break
            offset = next_offset
        return messages[:count]

    async def offset_at(self, broker: BrokerData, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after a time; if none was, the end."""
        header = SearchOffsetByTimestampHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        answer = await self.requests.ask_leader(broker, code, header)
        return decode_header(SearchOffsetByTimestampResponseHeader, answer).offset

    async def _pull(
        self, broker: BrokerData, topic: str, queue_id: int, offset: int, count: int
    ) -> Command:
        header = PullMessageHeader(
            consumer_group=TOOLS_GROUP,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
        )
        code = RequestCode.PULL_MESSAGE
        answer = await self.requests.ask_whoever_leads(broker, code, header)
        if answer.code != ResponseCode.SUCCESS and answer.code not in _NOTHING_THERE:
            address = self.requests.leader(broker)
            raise Refused(f"reading {topic}", address, answer.code, answer.remark)
        return answer
