"""Servers that close a connection on MSGPACK, as RocketMQ's do, and servers of ours beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from dledger.errors import ConnectionLost
from dledger.remoting.bodies import BrokerData, ClusterInfo, encode_body
from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, HeaderEncoding, Language
from dledger.remoting.framing import FrameDecoder
from dledger.remoting.headers import SendMessageV2Header, decode_header
from dledger.remoting.message import batch_decode
from dledger.remoting.record import encode_record
from mqclient.bulk.deciding import BatchDecider
from mqclient.connection.peers import PeerPool
from mqclient.errors import Refused
from mqclient.producing.batch import Slot
from mqclient.producing.batching import Accumulator
from mqclient.producing.sending.exchange import acknowledgement, request_for

VERSION = 407
QUESTION = RequestCode.GET_ROUTEINFO_BY_TOPIC
ASKED = RequestCode.GET_BROKER_CLUSTER_INFO


class Server:
    """A server that answers with a language; `reads` says which requests it does not close on."""

    def __init__(self, language: Language, reads: Callable[[Command], bool]) -> None:
        self.language = language
        self.reads = reads
        self.seen: list[tuple[int, HeaderEncoding]] = []
        self.address = ""

    def answer(self, request: Command) -> Command:
        """Answer every request with success."""
        return request.reply(ResponseCode.SUCCESS)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        await trio.serve_listeners(self._serve, listeners, task_status=task_status)

    async def _serve(self, stream: trio.SocketStream) -> None:
        decoder = FrameDecoder()
        async for data in stream:
            decoder.feed(data)
            for request in decoder.frames():
                self.seen.append((request.code, request.encoding))
                if not self.reads(request):
                    await stream.aclose()
                    return
                answer = self.answer(request)
                answer.language, answer.version = self.language, VERSION
                await stream.send_all(b"".join(encode_frame(answer)))


def stock() -> Server:
    return Server(Language.JAVA, lambda request: request.encoding is HeaderEncoding.JSON)


async def test_a_request_that_a_stock_server_could_not_read_is_sent_again_in_json() -> None:
    """The caller sees one answer; later requests go in JSON at once."""
    server = stock()
    async with trio.open_nursery() as nursery, PeerPool() as pool:
        await nursery.start(server.run)
        for _ in range(2):
            answer = await pool.request(server.address, Command(ASKED), 5)
            assert answer.code == ResponseCode.SUCCESS
        assert await pool.stock_version(server.address, 5) == VERSION
        nursery.cancel_scope.cancel()
    json = HeaderEncoding.JSON
    assert server.seen == [(ASKED, HeaderEncoding.MSGPACK), (QUESTION, json), *[(ASKED, json)] * 2]


async def test_a_request_that_a_server_of_ours_may_have_served_is_not_sent_again() -> None:
    """A connection that breaks before its first answer does not prove that nothing was done."""
    server = Server(Language.PYTHON, lambda request: request.code == QUESTION)
    async with trio.open_nursery() as nursery, PeerPool() as pool:
        await nursery.start(server.run)
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await pool.request(server.address, Command(ASKED), 5)
        assert not pool.met_stock
        nursery.cancel_scope.cancel()
    assert [code for code, _ in server.seen] == [ASKED, QUESTION, ASKED]


async def test_beside_a_stock_server_each_new_one_is_asked_whose_it_is() -> None:
    """Servers of ours still get MSGPACK once a stock server is known."""
    first, second = stock(), stock()
    ours = Server(Language.PYTHON, lambda _: True)
    async with trio.open_nursery() as nursery, PeerPool() as pool:
        for server in (first, second, ours):
            await nursery.start(server.run)
        for server in (first, second, ours):
            await pool.request(server.address, Command(ASKED), 5)
        assert await pool.stock_version(ours.address, 5) == 0
        nursery.cancel_scope.cancel()
    json, msgpack = HeaderEncoding.JSON, HeaderEncoding.MSGPACK
    assert second.seen == [(QUESTION, json), (ASKED, json)]
    assert ours.seen == [(QUESTION, json), (ASKED, msgpack)]


class StockCluster(Server):
    """A name server and a master of RocketMQ's, at one address."""

    def __init__(self) -> None:
        super().__init__(Language.JAVA, lambda request: request.encoding is HeaderEncoding.JSON)

    def answer(self, request: Command) -> Command:
        """Answer a question for the cluster, and know no other."""
        if request.code != ASKED:
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        master = BrokerData("DefaultCluster", "broker-a", {0: self.address})
        table = ClusterInfo({"broker-a": master}, {"DefaultCluster": ["broker-a"]})
        return request.reply(body=encode_body(table))


async def test_a_cluster_of_rocketmq_decides_no_batches() -> None:
    """A sink that stores rows once is told so, at once, and by which broker."""
    server = StockCluster()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        async with BatchDecider(server.address) as decider:
            with pytest.raises(Refused, match="a broker of Apache RocketMQ, or an older one"):
                await decider.begin("q", "run", 0)
        nursery.cancel_scope.cancel()
    assert sum(code == RequestCode.DECISION_OF for code, _ in server.seen) == 1


def test_a_batch_for_a_stock_broker_is_of_one_queue_and_names_each_message() -> None:
    """Records of two queues become two batches; the answer's ids place each message."""
    accumulator = Accumulator("b", lanes_per_topic=1024, one_queue_each=True)
    for number, queue_id in enumerate((3, 900, 3)):
        record = encode_record(
            topic=b"T",
            queue_id=queue_id,
            body=b"%d" % number,
            properties=b"",
            born_timestamp_ms=1,
            born_host=bytes(8),
        )
        accumulator.add(Slot(f"{number}", 9.0), "T", queue_id, record, 0.0)
    batches = [batch for batch in iter(lambda: accumulator.take(9.0), None) if batch is not None]
    assert [batch.count for batch in batches] == [2, 1]
    many, one = (request_for(batch, "group", to_stock=True) for batch in batches)
    assert many.code == RequestCode.SEND_BATCH_MESSAGE
    assert [bytes(item.body) for item in batch_decode(many.payload)] == [b"0", b"2"]
    header = decode_header(SendMessageV2Header, many)
    assert (header.b, header.e, header.m) == ("T", 3, True)
    assert one.code == RequestCode.SEND_MESSAGE_V2
    assert bytes(one.payload) == b"1"

    ids = ",".join(f"7F00000100002A9F{position:016X}" for position in (48, 5000))
    told = {"msgId": ids, "queueId": "3", "queueOffset": "7"}
    batches[0].end(acknowledgement(batches[0], many.reply(0, told), "b", from_stock=True))
    places = [(slot.result().queue_offset, slot.result().position) for slot in batches[0].slots]
    assert places == [(7, 48), (8, 5000)]
