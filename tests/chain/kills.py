"""Tests transactions under kills of the chain's process, reorganisations and lost pools.

A device sends events, each with a transaction of a different amount, and repeats an event until the
answer reports success. In the end the chain must have exactly the transactions that were reported
to the device, each once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from fieldbrook.observability.health import NONCES_DIFFER, STUCK_TRANSACTIONS
from tests.chain.crashes import CHAIN
from tests.chain.evm import Evm
from tests.chain.reading import providers
from tests.chain.senders import Sending, request
from tests.support.nodes import long_id, parts, until

SILENCE_S = 60.0
FINALITY, CONFIRMATIONS, DEEPEST = 32, 2, 10
_BLOCK_S = 0.3
_REORGANISED, _POOL_LOST = 0.06, 0.04  # of all blocks
_SETTLED_WITHIN_S = 300.0


@dataclass(frozen=True)
class Plan:
    """What happens, and how much of it.

    Attributes:
        provider: the personality of the endpoint, or of several, such as `infura+pool`; empty for
            the chain itself.
        failures: the share of their answers that fail.
    """

    transactions: int = 1_000
    kills: int = 100
    seed: int = 1
    provider: str = ""
    failures: float = 0.0


@dataclass
class Report:
    """What happened.

    Attributes:
        told: the amounts of the transactions whose success was reported to the device.
        on_chain: nonces and amounts of the account's transactions.
        codes: how often handlers returned each code.
        refused: how often an event was answered 503.
        lost: how often the device got no answer.
        reorganisations: by depth.
        pools_lost: how often the pool lost all its transactions.
        outcomes: how many outcomes the project has received.
        silence_s: the longest time without a new transaction on the chain, while some waited and no
            health condition reported it.
    """

    plan: Plan
    told: list[int] = field(default_factory=list)
    on_chain: list[tuple[int, int]] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    lost: int = 0
    kills: int = 0
    reorganisations: Counter[int] = field(default_factory=Counter)
    pools_lost: int = 0
    outcomes: int = 0
    silence_s: float = 0.0
    seconds: float = 0.0

    def faults(self) -> list[str]:
        """Return the violations of the promises."""
        values = Counter(value for _, value in self.on_chain)
        missing = set(self.told) - set(values)
        doubled = [value for value, count in values.items() if count > 1]
        checks = {
            f"{len(missing)} transactions are missing, such as {min(missing, default=0)}": missing,
            f"{len(doubled)} transactions are there twice": doubled,
            "transactions that nobody was told of are there": set(values) - set(self.told),
            "nonces have gaps": [n for n, _ in self.on_chain] != list(range(len(self.on_chain))),
            f"handlers were told -1 {self.codes[-1]} times": self.codes[-1],
            f"the project has {self.outcomes} outcomes": self.outcomes != len(self.told),
            f"a silent stop of {self.silence_s:.0f} s": self.silence_s > SILENCE_S,
        }
        return [text for text, found in checks.items() if found]

    def __str__(self) -> str:
        depths = ", ".join(f"{n} x {depth}" for depth, n in sorted(self.reorganisations.items()))
        return (
            f"{len(self.told)} transactions acknowledged, {len(self.on_chain)} on chain, "
            f"{self.outcomes} outcomes, in {self.seconds:.0f} s\n"
            f"{self.kills} kills of the chain's process; {self.pools_lost} lost pools; "
            f"reorganisations (count x depth): {depths or 'none'}\n"
            f"answers: {self.codes[0]} x 0, {self.codes[-1]} x -1, {self.refused} x 503, "
            f"{self.lost} x none\n"
            f"longest silent stop: {self.silence_s:.1f} s\n"
            f"faults: {'; '.join(self.faults()) or 'none'}"
        )


def run(folder: Path, plan: Plan) -> Report:
    """Run a plan on a chain of its own."""
    evm = Evm("--no-mining")
    report = Report(plan)
    try:
        with contextlib.ExitStack() as stack:
            urls = [evm.url]
            if plan.provider:
                names = plan.provider.split("+")
                made = stack.enter_context(providers(evm, names, plan.failures, plan.seed))
                urls = [endpoint.url for endpoint in made]
            sending = stack.enter_context(_node(folder, evm, urls))
            began = time.monotonic()
            _storm(sending, report)
            report.seconds = time.monotonic() - began
            report.on_chain = sending.on_chain()
            report.outcomes = sending.outcomes()
    finally:
        evm.stop()
    return report


@contextlib.contextmanager
def _node(folder: Path, evm: Evm, urls: Sequence[str]) -> Iterator[Sending]:
    more: dict[str, Any] = {"confirmations": CONFIRMATIONS, "finality": FINALITY}
    sending = Sending(folder, evm, endpoints=urls, poll_ms=200, **more)
    try:
        retry = {"unavailable": "RETRY"}
        answer = sending.node.call("POST", "/project_config/x/sender/PROJECT_CHAINS", retry)
        assert answer.status == 201, answer
        yield sending
    finally:
        sending.node.stop()


def _storm(sending: Sending, report: Report) -> None:
    """Send all transactions while everything fails, then wait until none is in progress."""
    ended = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        works = [
            pool.submit(_weather, sending.evm, report, ended),
            pool.submit(_watch, sending, report, ended),
            pool.submit(_kill, sending, report, ended),
        ]
        try:
            _send_all(sending, report)
            until(lambda: report.kills >= report.plan.kills, "all kills", _SETTLED_WITHIN_S)
            until(sending.at_rest, "nothing is under way", _SETTLED_WITHIN_S)
        finally:
            ended.set()
    for work in works:
        work.result()
    _calm(sending)


def _calm(sending: Sending) -> None:
    """Wait until all is final: transactions that the last reorganisations removed are on the chain
    again."""

    def final() -> bool:
        sending.evm.mine()
        return sending.at_rest() and not any(row.watched_since for row in sending.rows())

    until(final, "everything is final", _SETTLED_WITHIN_S)


# ---------------------------------------------------------------- the device


def _send_all(sending: Sending, report: Report) -> None:
    for value in range(1, report.plan.transactions + 1):
        event_id = long_id(f"tx-{report.plan.seed}-{value}")
        send = partial(_sent, sending, report, event_id, request(value=value, gasLimit=21_000))
        until(send, event_id, 120.0)
        report.told.append(value)


def _sent(sending: Sending, report: Report, event_id: str, payload: bytes) -> bool:
    """Send an event; return whether the answer reported success."""
    try:
        answer = sending.event("send", payload, event_id)
    except (OSError, HTTPException):
        report.lost += 1
        return False
    if answer.status == 503:
        report.refused += 1
        return False
    assert answer.status == 201, answer
    code: int = answer.json["results"][0]["code"]
    report.codes[code] += 1
    return code == 0


# ---------------------------------------------------------------- what fails


def _kill(sending: Sending, report: Report, ended: threading.Event) -> None:
    """Kill the chain's process, spread over the transactions."""
    rng = random.Random(f"kill {report.plan.seed}")
    plan = report.plan
    while report.kills < plan.kills and not ended.is_set():
        due = plan.transactions * (report.kills + rng.random()) / plan.kills
        while len(report.told) < min(due, plan.transactions - 1) and not ended.is_set():
            ended.wait(0.005)
        ended.wait(rng.random() * 0.1)
        with contextlib.suppress(KeyError, ProcessLookupError):  # the process is down now
            os.kill(parts(sending.node)[CHAIN], signal.SIGKILL)
            report.kills += 1


def _weather(evm: Evm, report: Report, ended: threading.Event) -> None:
    """Mine blocks; sometimes remove some, or all transactions of the pool."""
    rng = random.Random(f"weather {report.plan.seed}")
    while not ended.wait(_BLOCK_S):
        evm.mine()
        fate = rng.random()
        if fate < _REORGANISED:
            depth = min(rng.randint(1, DEEPEST), evm.height - 1)
            evm.reorganise(depth)
            report.reorganisations[depth] += 1
        elif fate < _REORGANISED + _POOL_LOST:
            evm.rpc("anvil_dropAllTransactions")
            report.pools_lost += 1


def _watch(sending: Sending, report: Report, ended: threading.Event) -> None:
    """Measure the longest time without progress that no health condition reports."""
    count, since = 0, time.monotonic()
    while not ended.wait(0.5):
        now, sent = time.monotonic(), sending.sent()
        if sent > count or sent >= len(report.told) or _is_told(sending, now - since):
            since = now
        count = sent
        report.silence_s = max(report.silence_s, now - since)


def _is_told(sending: Sending, silent_s: float) -> bool:
    """Return whether a health condition explains the lack of progress; it is only checked after a
    while."""
    if silent_s < SILENCE_S / 3:
        return False
    with contextlib.suppress(OSError, HTTPException):
        rows: list[Any] = sending.node.call("GET", "/health").json["data"]
        return any(row["state"] in (NONCES_DIFFER, STUCK_TRANSACTIONS) for row in rows)
    return False
