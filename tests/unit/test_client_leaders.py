"""Searches for a group's leader, shared by all who need one."""

from __future__ import annotations

from unittest.mock import patch

import trio
import trio.lowlevel

from client.leaders import LeaderFinder
from client.peers import PeerPool
from client.routing import RouteTable


async def test_a_leader_that_is_lost_before_the_search_returns_is_searched_for_again() -> None:
    """Its connection broke in between, as when a group loses power and comes back: the search goes
    on, and whoever needs the leader waits."""
    routes, searches = RouteTable(), 0

    async def search(self: LeaderFinder, broker_name: str, topic: str | None) -> None:
        nonlocal searches
        searches += 1
        await trio.lowlevel.checkpoint()
        routes.learn_leader(broker_name, f"127.0.0.1:{searches}", searches)
        if searches < 3:
            routes.suspect(broker_name, f"127.0.0.1:{searches}")

    async with PeerPool() as pool:
        finder = LeaderFinder(pool, routes, ())
        with patch.object(LeaderFinder, "_search", search), trio.fail_after(5):
            assert await finder.find("broker-a") == "127.0.0.1:3"
