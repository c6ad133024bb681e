"""Monitors of transactions: each waits until its transaction has enough confirmations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from fieldbrook.chain.blocks.follower import Follower
from fieldbrook.chain.blocks.logs import MinedTransaction, normalize_hex, read_mined_transaction
from fieldbrook.chain.errors import CHAIN_FAILURES
from fieldbrook.chain.monitors.delivery import Deliveries
from fieldbrook.chain.monitors.watch import Progress, Watch, describe
from fieldbrook.chain.rpc.request import proves_nothing
from fieldbrook.storage.chain.store import AnnouncedEvent, ChainStore

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.client import ChainClient

_LOOKED_UP_AGAIN_S = 60.0  # without news of the transaction, it is looked up this often


class TransactionMonitors:
    """Looks up the transactions of monitors and starts the deliveries of their events."""

    def __init__(
        self,
        client: ChainClient,
        follower: Follower,
        store: ChainStore,
        progress: Progress,
        deliveries: Deliveries,
    ) -> None:
        self._client = client
        self._follower = follower
        self._store = store
        self._progress = progress
        self._deliveries = deliveries

    async def advance(
        self, watches: Sequence[Watch], new: Collection[str], confirmed: int, now: float
    ) -> bool:
        """Look up the transactions that a block may have included since the last look-up.

        Args:
            watches: the monitors that are ready.
            new: hashes of the transactions in blocks since the last call.
            confirmed: the newest block with enough confirmations.
            now: the time by `time.monotonic`.

        Returns:
            Whether any transaction was found.
        """
        due = [
            watch
            for watch in watches
            if now - watch.looked_up_at > _LOOKED_UP_AGAIN_S
            or normalize_hex(watch.monitor.tx_hash) in new
            or (watch.mined is not None and watch.mined <= confirmed)
        ]
        found = await asyncio.gather(*(self._look_up(watch, confirmed) for watch in due))
        return any(found)

    async def _look_up(self, watch: Watch, confirmed: int) -> bool:
        try:
            announced = self._progress.announced(watch)
            row = announced[0] if announced else await self._mined(watch, confirmed)
            if row is None:
                return False
        except CHAIN_FAILURES as failure:
            self._progress.pause(watch, describe(failure))
            return False
        self._store.announce({watch.monitor.monitor_id: [row]})
        self._deliveries.send(watch, [row], row.block)
        return True

    async def _mined(self, watch: Watch, confirmed: int) -> AnnouncedEvent | None:
        """Look up a monitor's transaction; None until its block has enough confirmations."""
        tx_hash = normalize_hex(watch.monitor.tx_hash)
        found: MinedTransaction | None = await self._client.call(
            "eth_getTransactionByHash",
            [tx_hash],
            proves=proves_nothing,
            read=lambda raw: read_mined_transaction(raw, tx_hash),
        )
        watch.looked_up_at, watch.mined = time.monotonic(), None
        if found is None:
            return None
        watch.mined = found.block
        followed = self._follower.blocks.get(found.block, found.block_hash)
        if found.block > confirmed or followed != found.block_hash:
            return None
        block_hash = bytes.fromhex(found.block_hash[2:])
        row = AnnouncedEvent(found.block, block_hash, found.index, found.payload)
        for before in self._store.announced(watch.monitor.monitor_id, row.block):
            if (before.block_hash, before.index) == (block_hash, found.index):
                # A reorganisation has brought the block back. Its event gets a new id, because
                # `round` has changed.
                return msgspec.structs.replace(before, removed=False)
        return row
