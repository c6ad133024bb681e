"""Limits of an endpoint, found by trial: ranges of logs, batches, requests per second, history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fieldbrook.chain.blocks.ranges import named_size
from fieldbrook.chain.doctor.asking import FAILURES, Asker, words_of
from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.rpc.transport import BusyError, TransportError
from fieldbrook.core.networks import DEFAULT_LOG_RANGE

NOBODY = "0x" + "00" * 19 + "ff"
"""An address without logs and transactions."""
_RANGE_STEPS = 20
_CLOSE_ENOUGH = 0.05  # of a range
_BATCHES = (2, 5, 10, 20)
_TOGETHER, _RATE_REQUESTS, _RATE_S = 8, 60, 3.0
_DEPTHS = (16, 128, 1_024, 8_192, 65_536, 524_288, 4_194_304, 33_554_432)


class Range(NamedTuple):
    """Of how many blocks logs are returned at once; 0 if of none. `refusal` is that of more."""

    blocks: int
    refusal: str


async def largest_range(asker: Asker, head: int) -> Range:
    """Find the largest range of a request for logs, up to what a node asks for.

    Raises:
        BusyError: the endpoint limits requests for long.
    """
    good, bad, reason = 0, DEFAULT_LOG_RANGE + 1, ""
    size = min(DEFAULT_LOG_RANGE, head + 1)
    largest = size
    for _ in range(_RANGE_STEPS):
        try:
            first = head - size + 1
            query = {"fromBlock": hex(first), "toBlock": hex(head), "address": NOBODY}
            await asker.ask("eth_getLogs", [query])
            good = size
        except BusyError:
            raise
        except FAILURES as error:
            reason = words_of(error)
            bad = size
            named = named_size(reason, size)
            if named is not None and good < named < bad:
                size = named
                continue
        if good == largest or bad - good <= max(1, int(_CLOSE_ENOUGH * good)):
            break
        size = bad // 2 if good == 0 else (good + bad) // 2
        if size == 0:
            break
    return Range(good, reason)


async def largest_batch(asker: Asker) -> int:
    """Find how many requests the endpoint takes at once, up to what a node sends.

    Raises:
        TransportError: there was no usable answer to a batch.
    """
    good = 1
    for size in _BATCHES:
        try:
            if not await asker.batch(size):
                break
        except BusyError:  # it may only have come too soon after the others
            await asyncio.sleep(1.0)
            try:
                if not await asker.batch(size):
                    break
            except BusyError:
                break
        good = size
    return good


class Rate(NamedTuple):
    """How many requests were answered in how many seconds, and the first refusal, if any."""

    answered: int
    seconds: float
    refusal: str
    retry_after_s: float

    @property
    def per_second(self) -> float:
        """Answers per second. Endpoints that refuse count within a whole second."""
        return self.answered / max(self.seconds, 1.0 if self.refusal else 0.001)


async def measured_rate(asker: Asker) -> Rate:
    """Send cheap requests as fast as the endpoint answers, for some seconds at most."""
    began = time.monotonic()
    left = iter(range(_RATE_REQUESTS))
    answered = 0
    refusals: list[TransportError] = []

    async def send() -> None:
        nonlocal answered
        for _ in left:
            if refusals or time.monotonic() - began > _RATE_S:
                return
            try:
                await asker.ask_now("eth_chainId")
                answered += 1
            except TransportError as error:
                refusals.append(error)
            except RpcError:
                answered += 1

    await asyncio.gather(*(send() for _ in range(_TOGETHER)))
    seconds = time.monotonic() - began
    if not refusals:
        return Rate(answered, seconds, "", 0.0)
    first = refusals[0]
    wait_s = first.retry_after_s if isinstance(first, BusyError) else 0.0
    return Rate(answered, seconds, asker.redacted(str(first)), wait_s)


async def state_depth(asker: Asker, head: int) -> tuple[int, str]:
    """Find how many blocks back the endpoint has the state.

    Returns:
        The greatest depth that was answered, `head` for all blocks, -1 for none; and what it said
        to a greater one.
    """
    return await _greatest_depth(
        head, lambda block: asker.ask("eth_getBalance", [NOBODY, hex(block)])
    )


async def log_depth(asker: Asker, head: int) -> tuple[int, str]:
    """Find how many blocks back the endpoint has logs; see `state_depth`."""

    def logs(block: int) -> Awaitable[Any]:
        query = {"fromBlock": hex(block), "toBlock": hex(block), "address": NOBODY}
        return asker.ask("eth_getLogs", [query])

    return await _greatest_depth(head, logs)


async def _greatest_depth(head: int, ask: Callable[[int], Awaitable[Any]]) -> tuple[int, str]:
    """Ask for the first block, then for deeper and deeper ones."""
    reason = ""
    for depth in (head, *(depth for depth in reversed(_DEPTHS) if depth < head), 0):
        try:
            # The first block has no state on some chains.
            await ask(max(head - depth, min(1, head)))
        except BusyError:
            raise
        except FAILURES as error:
            reason = words_of(error)
        else:
            return depth, reason
    return -1, reason
