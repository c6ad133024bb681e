"""Limits of an endpoint, found by trial: log range, batch size, request rate, history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fieldbrook.chain.blocks.ranges import named_size
from fieldbrook.chain.doctor.probe import FAILURES, Probe, text_of
from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.rpc.transport import BusyError, TransportError
from fieldbrook.core.networks import DEFAULT_LOG_RANGE

NOBODY = "0x" + "00" * 19 + "ff"
"""An address without logs and transactions."""
_RANGE_STEPS = 20
_CLOSE_ENOUGH = 0.05  # relative precision of the largest range
_BATCHES = (2, 5, 10, 20)
_CONCURRENT, _RATE_REQUESTS, _RATE_S = 8, 60, 3.0  # for the measurement of the rate
_DEPTHS = (16, 128, 1_024, 8_192, 65_536, 524_288, 4_194_304, 33_554_432)


class Range(NamedTuple):
    """The most blocks of a log query; 0 if even one block is refused.

    `refusal` is the error for a larger range; empty if none was refused.
    """

    blocks: int
    refusal: str


async def largest_range(probe: Probe, head: int) -> Range:
    """Find the largest range of a log query, up to the largest range that a node requests.

    Raises:
        BusyError: the endpoint limits requests for a long time.
    """
    good, bad, reason = 0, DEFAULT_LOG_RANGE + 1, ""
    size = min(DEFAULT_LOG_RANGE, head + 1)
    largest = size
    for _ in range(_RANGE_STEPS):
        try:
            first = head - size + 1
            query = {"fromBlock": hex(first), "toBlock": hex(head), "address": NOBODY}
            await probe.call("eth_getLogs", [query])
            good = size
        except BusyError:
            raise
        except FAILURES as error:
            reason = text_of(error)
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


async def largest_batch(probe: Probe) -> int:
    """Find the largest batch that the endpoint accepts, up to the largest that a node sends.

    Raises:
        TransportError: no usable answer to a batch came.
    """
    good = 1
    for size in _BATCHES:
        try:
            if not await probe.batch(size):
                break
        except BusyError:  # the batch may have exceeded the request rate, not the batch size
            await asyncio.sleep(1.0)
            try:
                if not await probe.batch(size):
                    break
            except BusyError:
                break
        good = size
    return good


class Rate(NamedTuple):
    """The result of a measurement of the request rate.

    `refusal` is the text of the first refusal; empty if there was none. `retry_after_s` is the wait
    in seconds that the refusal asks for.
    """

    answered: int
    seconds: float
    refusal: str
    retry_after_s: float

    @property
    def per_second(self) -> float:
        """Answers per second. After a refusal, the duration counts as at least one second, because
        limits are per second."""
        return self.answered / max(self.seconds, 1.0 if self.refusal else 0.001)


async def measured_rate(probe: Probe) -> Rate:
    """Send cheap requests as fast as the endpoint answers, for a few seconds at most."""
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
                await probe.call_now("eth_chainId")
                answered += 1
            except TransportError as error:
                refusals.append(error)
            except RpcError:
                answered += 1

    await asyncio.gather(*(send() for _ in range(_CONCURRENT)))
    seconds = time.monotonic() - began
    if not refusals:
        return Rate(answered, seconds, "", 0.0)
    first = refusals[0]
    wait_s = first.retry_after_s if isinstance(first, BusyError) else 0.0
    return Rate(answered, seconds, probe.redacted(str(first)), wait_s)


async def state_depth(probe: Probe, head: int) -> tuple[int, str]:
    """Find for how many blocks before `head` the endpoint has the state of accounts.

    Returns:
        Two values: the greatest depth that was answered (`head` for all blocks, -1 for none), and
        the refusal of a greater depth (empty if there was none).
    """
    return await _greatest_depth(
        head, lambda block: probe.call("eth_getBalance", [NOBODY, hex(block)])
    )


async def log_depth(probe: Probe, head: int) -> tuple[int, str]:
    """Find for how many blocks before `head` the endpoint has logs; see `state_depth`."""

    def logs(block: int) -> Awaitable[Any]:
        query = {"fromBlock": hex(block), "toBlock": hex(block), "address": NOBODY}
        return probe.call("eth_getLogs", [query])

    return await _greatest_depth(head, logs)


async def _greatest_depth(head: int, ask: Callable[[int], Awaitable[Any]]) -> tuple[int, str]:
    """Request the first block, then newer and newer ones, until one is answered."""
    reason = ""
    for depth in (head, *(depth for depth in reversed(_DEPTHS) if depth < head), 0):
        try:
            # Use block 1 instead of 0, because block 0 has no state on some chains.
            await ask(max(head - depth, min(1, head)))
        except BusyError:
            raise
        except FAILURES as error:
            reason = text_of(error)
        else:
            return depth, reason
    return -1, reason
