"""Reading a chain from its first block on: a real EVM chain, a node and a project that counts.

The chain has logs all over its blocks, of several contracts, and its endpoint has the limits of
public ones. Each monitor's events go to an applet of its own that knows each log again, so that
one that is missing or comes twice fails the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError
from benchmarks.node import running_node
from benchmarks.report import Table
from tests.chain.evm import CHAIN_ID, Contract
from tests.chain.hardhat import Hardhat
from tests.chain.proxy import Proxy
from tests.support.applets import LEDGER
from tests.support.nodes import RunningNode, parts

CONTRACTS = 3
RANGE_LIMIT, LOGS_LIMIT = 5_000, 400
LIMIT_S = 300.0
_LOOK_S = 0.05
PART = f"fb-chain:{CHAIN_ID}"
WHOLE, KILLED = "monitors from block 1", "killed in the middle"
PROJECT = "backfill"


@dataclass(frozen=True)
class Tall:
    """A chain with logs and the endpoint before it."""

    evm: Hardhat
    proxy: Proxy
    contracts: list[Contract]
    logs: int  # in all, as many of each contract


@contextlib.contextmanager
def tall_chain(blocks: int, transactions: int, each: int) -> Iterator[Tall]:
    """A chain of `blocks` blocks with logs in so many transactions."""
    evm = Hardhat()
    proxy = Proxy(evm.url)
    proxy.range_limit, proxy.logs_limit = RANGE_LIMIT, LOGS_LIMIT
    try:
        contracts = [evm.deploy() for _ in range(CONTRACTS)]
        evm.spread(contracts, transactions, each, blocks)
        yield Tall(evm, proxy, contracts, transactions * each)
    finally:
        proxy.close()
        evm.stop()


def read_all(node: RunningNode, tall: Tall, project: str, kills: int = 0) -> float:
    """Have monitors read all of a chain; how many seconds it took.

    Args:
        kills: how often the chain's process is killed on the way.

    Raises:
        BenchmarkError: a log was told of twice or not at all, or it took too long.
    """
    node.create_project(project)
    applets = []
    for n in range(CONTRACTS):
        rules = [{"eventType": f"LOG{n}", "handler": "start"}]
        made = node.deploy(project, LEDGER, f"a{n}", strategies=rules, isolation="BATCH")
        applets.append(made["appletID"])
    started = time.perf_counter()
    for n, contract in enumerate(tall.contracts):
        body = {"chainID": CHAIN_ID, "contractAddress": contract.address, "blockStart": 1}
        path = f"/monitor/x/{project}/contract_log"
        answer = node.call("POST", path, {**body, "eventType": f"LOG{n}"})
        if answer.status != 201:
            raise BenchmarkError(f"a monitor was refused: {answer}")

    def told() -> int:
        return sum(node.count(project, applet) for applet in applets)

    for n in range(kills):
        share = tall.logs * (n + 1) // (kills + 1)
        _until(lambda share=share: told() >= share, "a part is told of")  # type: ignore[misc]
        os.kill(_until(lambda: parts(node).get(PART), "the chain's process runs"), signal.SIGKILL)
    _until(lambda: told() >= tall.logs, "every log is told of")
    took_s = time.perf_counter() - started
    _until(lambda: _at_head(node, project, tall.evm.height), "the monitors are at the head")
    counted = [node.count(project, applet) for applet in applets]
    again = [int.from_bytes(node.kv(project, applet, b"again"), "little") for applet in applets]
    if (counted, again) != ([tall.logs // CONTRACTS] * CONTRACTS, [0] * CONTRACTS):
        raise BenchmarkError(f"{tall.logs} logs: told of {counted}, of these twice {again}")
    return took_s


def _until(condition: Callable[[], Any], what: str) -> Any:
    limit = time.monotonic() + LIMIT_S
    while not (value := condition()):
        if time.monotonic() > limit:
            raise BenchmarkError(f"never happened: {what}")
        time.sleep(_LOOK_S)  # each look asks the node
    return value


def _at_head(node: RunningNode, project: str, height: int) -> bool:
    rows: list[Any] = node.call("GET", f"/monitor/x/{project}/contract_log/datalist").json["data"]
    return all(row["blockCurrent"] == height + 1 and not row["lag"] for row in rows)


def backfill(context: Context, emit: Emit) -> None:
    """Monitors that read a real EVM chain of 100,000 blocks from its first one on."""
    blocks = context.size(100_000, quick=20_000)
    transactions = context.size(3_000, quick=300)
    title = f"{blocks:,} blocks, {transactions * 10:,} logs of {CONTRACTS} contracts"
    table = Table(context.title(title, timed=False), "logs/s", (), plots=("logs/s",))
    with tall_chain(blocks, transactions, 10) as tall, context.folder() as folder:
        for number in range(context.rounds):
            for name, kills in ((WHOLE, 0), (f"{KILLED}, twice", 2)):
                own = folder / f"{number}-{kills}"
                own.mkdir()
                table.add(name, _round(own, tall, kills))
    emit(table)


def _round(folder: Path, tall: Tall, kills: int) -> dict[str, float]:
    asked, refused = tall.proxy.asked["eth_getLogs"], tall.proxy.refused
    with chains_named(tall), running_node(folder) as node:
        node.log_in()
        took_s = read_all(node, tall, PROJECT, kills)
    return {
        "s": took_s,
        "logs/s": tall.logs / took_s,
        "blocks/s": tall.evm.height / took_s,
        "requests": tall.proxy.asked["eth_getLogs"] - asked,
        "refused": tall.proxy.refused - refused,
    }


@contextlib.contextmanager
def chains_named(tall: Tall) -> Iterator[None]:
    """Nodes that start meanwhile know the chain."""
    chain = {"id": CHAIN_ID, "name": "dev", "endpoints": [tall.proxy.url], "poll_ms": 200}
    os.environ["FIELDBROOK_CHAINS"] = json.dumps([chain])
    try:
        yield
    finally:
        del os.environ["FIELDBROOK_CHAINS"]
