"""The start of a chain's process: a kill of the process must not delay transactions for long."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import cast

import pytest

from fieldbrook.chain.transactions import requests
from fieldbrook.chain.transactions.requests import Transactions
from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.registry.service import RegistryReader
from tests.support.tools import LIMIT_S
from tests.unit.chain.transactions.broadcast.test_broadcaster import Bench
from tests.unit.chain.transactions.test_nonces import CHAIN, VAULT


def test_stored_transactions_are_sent_while_the_libraries_for_signing_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = open_environment(tmp_path / "chain", map_size=64 << 20)
    bench = Bench(environment)
    (only,) = bench.commit(1)
    raw = "0x" + bench.row(only).last.raw.hex()
    sent = threading.Event()
    before: list[bool] = []  # whether it was sent, when the imports ended

    def words(_raw: str) -> str:
        sent.set()
        return ""

    bench.rpc.words = words
    monkeypatch.setattr(requests, "warm_up", lambda: before.append(sent.wait(LIMIT_S)))

    async def start() -> None:
        reader = cast(RegistryReader, bench.registry)
        service = Transactions(
            *(CHAIN, bench.rpc, bench.rows, reader, VAULT, tmp_path),
            *(lambda *_event: None, lambda _project: None),
        )
        await service.start()
        await service.stop()

    asyncio.run(start())
    assert before == [True]
    assert bench.rpc.sent[:1] == [raw]
    environment.close()
