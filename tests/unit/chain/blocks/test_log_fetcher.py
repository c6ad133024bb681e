"""Logs of recent blocks, while the chain changes."""

from __future__ import annotations

import asyncio

from fieldbrook.chain.blocks.follower import Follower, Step
from fieldbrook.chain.blocks.log_fetcher import LogFetcher
from fieldbrook.chain.blocks.omissions import LogFilter
from fieldbrook.chain.rpc.client import ChainClient
from fieldbrook.core.settings.chain import read_chain
from tests.chain.evm import CHAIN_ID
from tests.chain.forked import ADDRESS, TOPIC, ForkedChain

URL = "http://unused"


async def test_blocks_that_vanish_before_they_are_requested_are_no_error() -> None:
    chain = ForkedChain(5)
    chain.grow(1, 1)
    client = ChainClient(CHAIN_ID, [URL], transport=lambda _url: chain)
    follower = Follower()
    follower.apply(await follower.poll(client))
    settings = read_chain({"id": CHAIN_ID, "name": "dev", "endpoints": [URL]})
    fetcher = LogFetcher(settings, client, follower)
    newest = follower.newest
    reading = asyncio.create_task(
        fetcher.fetch_recent([LogFilter.for_contract(ADDRESS, (TOPIC,))], newest - 1, newest)
    )
    # The step of a poll comes after the call, and before its requests begin.
    asyncio.get_running_loop().call_soon(follower.apply, Step(vanished=(newest - 1, newest)))
    read = await reading
    assert newest not in follower.blocks
    assert len(read.logs) in (0, 2), "those of the blocks that were followed, or none"
    await client.close()
