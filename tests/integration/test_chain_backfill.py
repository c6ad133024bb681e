"""A hundred thousand blocks of a real EVM chain, read by a node from the first one on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.scenarios.chain_backfill import Tall, chains_named, read_all, tall_chain
from tests.support.nodes import RunningNode

BLOCKS, LOGS = 100_000, 3_000


@pytest.fixture(scope="module")
def tall() -> Iterator[Tall]:
    with tall_chain(BLOCKS, LOGS // 5, 5) as made:
        yield made


@pytest.mark.thorough
def test_each_log_of_a_hundred_thousand_blocks_is_one_event_though_the_process_is_killed(
    tall: Tall, tmp_path: Path
) -> None:
    assert (tall.evm.height, len(tall.evm.logs())) == (BLOCKS, LOGS)
    with chains_named(tall):
        node = RunningNode(tmp_path / "node")
        try:
            node.log_in()
            read_all(node, tall, "p", kills=2)
        finally:
            node.stop()
    assert tall.proxy.refused > 2, "windows with too many logs were asked for, and split"
