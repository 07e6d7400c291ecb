"""What tools tell of a group whose members have left while messages wait."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from mqclient import Message
from mqlocal import local_cluster


async def test_what_members_had_in_hand_is_nobodys_when_they_have_left(
    autojump_clock: MockClock,
) -> None:
    """It is not in flight, as it is read again; and nobody can say when the lag will be gone."""
    async with local_cluster() as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=1, write_queues=1)
        async with cluster.producer("P") as producer:
            for number in range(20):
                await producer.send(Message("T", b"%d" % number))
        await trio.sleep(90)  # what came is no part of the last minute's rate
        async with cluster.consumer("G", {"T": "*"}) as reader:
            assert len(await reader.poll(4, timeout_s=5)) == 4
            await reader.commit()
            await trio.sleep(15)
            here = await admin.groups.progress("G", "T")
            assert (here.lag, here.queues[0].in_flight) == (16, 16)
            assert here.caught_up_s is not None
        gone = await admin.groups.progress("G", "T")
        assert (gone.members, gone.lag, gone.queues[0].in_flight) == (0, 16, 0)
        assert gone.queues[0].state == "no members"
        assert gone.caught_up_s is None
