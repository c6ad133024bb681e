"""The checks of an endpoint. Each sends some requests and adds findings to the report."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from fieldbrook.chain.doctor import limits
from fieldbrook.chain.doctor.findings import Report
from fieldbrook.chain.doctor.probe import FAILURES, Probe, text_of
from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import quantity, read_bloom, read_header
from fieldbrook.chain.rpc.transport import BusyError, TransportError
from fieldbrook.core.findings import State
from fieldbrook.core.networks import DEFAULT_LOG_RANGE
from fieldbrook.core.providers import provider_of

_FEW_WEI = 100_000  # smaller amounts are shown in wei
_LATENCY_REQUESTS = 5
_SLOW_S = 1.0
_OLD_S, _OLD_BLOCKS = 120.0, 20
_CLOCK_S = 30.0
_INTERVAL_BLOCKS = 50
_LEAST_RATE = 10.0  # requests per second
# A pause before the measurement of the rate, so that the endpoint's limit does not count earlier
# requests.
_REST_S = 1.0
_UNUSABLE = (*FAILURES, MalformedAnswerError)


class Head(NamedTuple):
    """The newest block of an endpoint. `block` is its JSON as the endpoint sent it."""

    number: int
    time_s: int
    block: Mapping[str, Any]


async def examine_head(probe: Probe, report: Report) -> Head | None:
    """Check the age of the newest block and the latency of requests.

    Returns:
        The newest block; None if the endpoint did not return one.
    """
    try:
        block = await probe.call("eth_getBlockByNumber", ["latest", False])
        head = Head(read_header(block).number, quantity(block.get("timestamp"), 1 << 40), block)
    except _UNUSABLE as error:
        report.add("head", "failed", f"no newest block: {text_of(error)}")
        return None
    age_s = time.time() - head.time_s
    report.block_ms = await _block_ms(probe, head)
    state, text = _age(report, head.number, age_s)
    report.add("head", state, text, number=head.number, ageSeconds=round(age_s))
    try:
        for _ in range(_LATENCY_REQUESTS):
            await probe.call("eth_blockNumber")
    except FAILURES as error:
        report.add("latency", "failed", text_of(error), milliseconds=None)
        return head
    latency_s = statistics.median(probe.latencies_s[-_LATENCY_REQUESTS:])
    text = f"{_short(latency_s * 1_000)} ms, the median of {_LATENCY_REQUESTS} requests"
    slow = latency_s > _SLOW_S
    report.add("latency", "warning" if slow else "ok", text, milliseconds=round(latency_s * 1_000))
    return head


def _age(report: Report, number: int, age_s: float) -> tuple[State, str]:
    if age_s < -_CLOCK_S:
        return "warning", f"block {number:,}, {-age_s:.0f} s in the future: is a clock wrong?"
    text = f"block {number:,}, {max(0, age_s):,.0f} s old"
    oldest_s = max(_OLD_S, _OLD_BLOCKS * (report.block_ms or 0) / 1_000)
    if report.network is None or age_s <= oldest_s:  # a private chain may pause
        return "ok", text
    return "failed", f"{text}: it does not follow the chain"


async def _block_ms(probe: Probe, head: Head) -> int | None:
    """Return the time between two blocks, in milliseconds; None if it is not known."""
    if head.number < _INTERVAL_BLOCKS:
        return None
    number = hex(head.number - _INTERVAL_BLOCKS)
    try:
        earlier = await probe.call("eth_getBlockByNumber", [number, False])
        timestamp = earlier.get("timestamp") if isinstance(earlier, dict) else None
        return max(0, head.time_s - quantity(timestamp, 1 << 40)) * 1_000 // _INTERVAL_BLOCKS
    except _UNUSABLE:
        return None  # the checks of the history report missing blocks


async def examine_final_blocks(probe: Probe, report: Report, head: Head) -> None:
    """Find out whether the endpoint supports the block tags `safe` and `finalized`."""
    expected = report.network is not None and report.network.final_tag
    for tag in ("safe", "finalized"):
        try:
            number = read_header(await probe.call("eth_getBlockByNumber", [tag, False])).number
        except _UNUSABLE as error:
            state: State = "warning" if expected else "ok"
            report.add(f"block {tag}", state, f"not known: {text_of(error)}", number=None)
            continue
        behind = max(0, head.number - number)
        report.final_behind = behind
        text = f"block {number:,}, {behind:,} behind the head"
        report.add(f"block {tag}", "ok", text, number=number, behind=behind)


async def examine_logs(probe: Probe, report: Report, head: Head, url: str) -> None:
    """Find out how many blocks a log query may cover, and which kinds of queries are supported."""
    try:
        found = await limits.largest_range(probe, head.number)
    except BusyError as error:
        report.add("log range", "failed", f"it limits requests: {text_of(error)}", blocks=None)
        return
    if not found.blocks:
        text = f"no logs, not even those of a single block: {found.refusal}"
        report.add("log range", "failed", text, blocks=0, refusal=found.refusal)
        return
    text = f"{found.blocks:,} blocks"
    if found.blocks < min(DEFAULT_LOG_RANGE, head.number + 1):
        report.log_range = found.blocks
        text += f"; more: {found.refusal}"
    provider = provider_of(url)
    if provider is not None:
        text += f" ({provider.name} is known for {provider.log_range:,})"
    report.add("log range", "ok", text, blocks=found.blocks, refusal=found.refusal or None)
    query = {"blockHash": head.block.get("hash"), "address": limits.NOBODY}
    without = "the node uses block numbers"
    await _supported(probe, report, "logs by hash", "eth_getLogs", [query], without)
    without = "the node detects fewer omitted logs"
    number = hex(head.number)
    await _supported(probe, report, "block receipts", "eth_getBlockReceipts", [number], without)
    if not read_bloom(head.block.get("logsBloom")) and not _is_empty(head.block.get("logsBloom")):
        report.add("Bloom filters", "warning", "none, so the node cannot detect omitted logs")


def _is_empty(bloom: Any) -> bool:
    """Return whether a filter has no bits, like the filter of a block without logs."""
    return isinstance(bloom, str) and bloom != "0x" and not bloom.removeprefix("0x").strip("0")


async def _supported(
    probe: Probe, report: Report, check: str, method: str, params: list[Any], without: str
) -> None:
    try:
        good = isinstance(await probe.call(method, params), list)
        words = "its answer is not a list"
    except FAILURES as error:
        good, words = False, text_of(error)
    text = "yes" if good else f"no, so {without}: {words}"
    report.add(check, "ok" if good else "warning", text, supported=good)


async def examine_history(probe: Probe, report: Report, head: Head) -> None:
    """Find out for how many past blocks the endpoint has the state of accounts, and the logs."""
    for check, find, lacking in (
        ("states", limits.state_depth, "the node cannot make calls or read nonces"),
        ("logs", limits.log_depth, "monitors cannot read logs"),
    ):
        try:
            depth, reason = await find(probe, head.number)
        except BusyError as error:
            text = f"it limits requests: {text_of(error)}"
            report.add(f"archive of {check}", "warning", text, blocks=None)
            continue
        state: State = "ok"
        if depth < 0:
            state, text = "failed", f"none, so {lacking}: {reason}"
        elif depth >= head.number:
            text = "from the first block on"
        else:
            # The node needs old logs for monitors with an early first block. It needs no old
            # states.
            state = "warning" if check == "logs" else "ok"
            text = f"of {depth:,} blocks at least; older: {reason}"
        report.add(f"archive of {check}", state, text, blocks=max(0, depth))


async def examine_fees(probe: Probe, report: Report, head: Head) -> None:
    """Find out whether the chain has EIP-1559 fees, and which fees the endpoint suggests."""
    try:
        price = quantity(await probe.call("eth_gasPrice"))
    except _UNUSABLE as error:
        report.add("fees", "failed", f"no gas price: {text_of(error)}", gasPrice=None)
        return
    if head.block.get("baseFeePerGas") is None:
        text = f"no base fee (no EIP-1559), a gas price of {_gwei(price)}"
        report.add("fees", "ok", text, gasPrice=str(price), baseFee=None)
        return
    try:
        base = quantity(head.block["baseFeePerGas"])
    except MalformedAnswerError as error:
        report.add("fees", "failed", f"the base fee of a block: {error}", gasPrice=str(price))
        return
    text = f"a base fee of {_gwei(base)}"
    try:
        tip = quantity(await probe.call("eth_maxPriorityFeePerGas"))
        text += f", and a priority fee of {_gwei(tip)} is suggested"
    except _UNUSABLE:
        tip = None
        text += "; no priority fee is suggested"
    facts = {"baseFee": str(base), "priorityFee": None if tip is None else str(tip)}
    usual = None if report.network is None else report.network.max_fee_per_gas
    low = usual is not None and 2 * base > usual
    text += f"; the default max_fee_per_gas = {usual} is too low for it" if low else ""
    report.add("fees", "warning" if low else "ok", text, gasPrice=str(price), **facts)
    try:
        history = await probe.call("eth_feeHistory", [hex(4), "latest", [50]])
        good = isinstance(history, dict) and isinstance(history.get("baseFeePerGas"), list)
        words = "its answer is not a fee history"
    except FAILURES as error:
        good, words = False, text_of(error)
    text = "yes" if good else f"no, but the node does not need it: {words}"
    report.add("fee history", "ok", text, supported=good)


async def examine_batches(probe: Probe, report: Report) -> None:
    """Find out how many requests the endpoint accepts in a batch."""
    if not probe.takes_batches:
        report.add("batches", "skipped", "the node sends no batches over a WebSocket")
        return
    try:
        size = await limits.largest_batch(probe)
    except TransportError as error:
        report.add("batches", "warning", f"none: {text_of(error)}", size=1)
        return
    text = f"{size} requests at once" if size > 1 else "none: the node sends single requests"
    report.add("batches", "ok" if size > 1 else "warning", text, size=size)


async def examine_rate(probe: Probe, report: Report) -> None:
    """Find out how many requests per second the endpoint answers."""
    await asyncio.sleep(_REST_S)
    rate = await limits.measured_rate(probe)
    facts = {"perSecond": round(rate.per_second, 1), "refusal": rate.refusal or None}
    if not rate.refusal:
        report.add("rate", "ok", f"{rate.per_second:,.0f} requests/s, none refused", **facts)
        return
    text = f"about {rate.per_second:,.0f} requests/s; more: {rate.refusal}"
    if rate.retry_after_s:
        text += f" (wait {rate.retry_after_s:g} s)"
    report.add("rate", "warning" if rate.per_second < _LEAST_RATE else "ok", text, **facts)


def examine_transient_failures(probe: Probe, report: Report) -> None:
    """Report requests that failed and were answered when they were repeated, if any."""
    if not probe.transient_failures:
        return
    count, answered = len(probe.transient_failures), len(probe.latencies_s)
    words = Counter(probe.transient_failures).most_common(1)[0][0]
    text = f"{count} of {count + answered} requests, answered when sent again: {words}"
    report.add("failures", "warning", probe.redacted(text), count=count, requests=count + answered)


def _short(value: float) -> str:
    """Format a number with two significant digits below 10, otherwise without decimals."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _gwei(wei: int) -> str:
    return f"{wei} wei" if wei < _FEW_WEI else f"{wei / 10**9:,.9g} gwei"
