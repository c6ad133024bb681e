"""Check of the WebSocket: whether an endpoint announces new blocks."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from fieldbrook.chain.doctor.findings import Report
from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import quantity
from fieldbrook.chain.rpc.endpoint_url import public_part, secret_parts
from fieldbrook.chain.rpc.transport import TransportError, WebSocketTransport

_MESSAGE_LIMIT_BYTES = 1 << 20
_BLOCKS, _LEAST_WAIT_S, _LONGEST_WAIT_S = 3, 5.0, 30.0  # wait for the first announcement


async def examine_announcements(
    report: Report, url: str, websocket: str | None, limit_s: float
) -> None:
    """Subscribe to new blocks and wait for one.

    Args:
        report: receives the finding, and the address if the subscription works.
        url: the address of the endpoint.
        websocket: the address of the WebSocket; None tries the endpoint's address with `ws` or
            `wss`.
        limit_s: the time limit of a request.
    """
    address = websocket or _same_address(url)
    announced: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def notified(params: Any) -> None:
        header = params.get("result") if isinstance(params, dict) else None
        try:
            number = quantity(header.get("number") if isinstance(header, dict) else None)
        except MalformedAnswerError:
            return
        if not announced.done():
            announced.set_result(number)

    transport = WebSocketTransport(address, notified, limit_bytes=_MESSAGE_LIMIT_BYTES)
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            refusal = await _subscribe(transport, report.chain_id)
        if refusal:
            _add(report, websocket, refusal, url)
            return
        wait_s = min(max(_LEAST_WAIT_S, _BLOCKS * (report.block_ms or 0) / 1_000), _LONGEST_WAIT_S)
        try:
            async with asyncio.timeout(wait_s):
                number = await announced
        except TimeoutError:
            text = f"it accepts a subscription, but announced no block within {wait_s:.0f} s"
            report.add("WebSocket", "warning", text, subscribes=True, announced=None)
        else:
            seconds = time.monotonic() - began
            text = f"it announces blocks: {number:,} after {seconds:.1f} s"
            report.add("WebSocket", "ok", text, subscribes=True, announced=number)
        report.websocket = public_part(address)
    except TimeoutError:
        _add(report, websocket, f"no answer within {limit_s:g} s", url)
    except TransportError as error:
        _add(report, websocket, str(error), address)
    finally:
        await transport.close()


async def _subscribe(transport: WebSocketTransport, chain_id: int | None) -> str:
    """Subscribe; return an empty text, or the reason why it is not possible."""
    try:
        found = quantity((await transport.request("eth_chainId", [])).get("result"))
    except MalformedAnswerError:
        return "its chain id is not a number"
    if found != chain_id:
        return f"it belongs to chain {found}"
    answer = await transport.request("eth_subscribe", ["newHeads"])
    error = answer.get("error")
    if error is not None:
        return f"it refuses: {error.get('message') if isinstance(error, dict) else error}"
    return ""


def _add(report: Report, websocket: str | None, reason: str, address: str) -> None:
    for secret in secret_parts(address):
        reason = reason.replace(secret, "...")
    if websocket is None:  # nobody named this address, so its absence is no failure
        text = f"none at the same address ({reason[:200]}): the node polls for blocks"
        report.add("WebSocket", "skipped", text, subscribes=False)
    else:
        report.add("WebSocket", "failed", reason[:200], subscribes=False)


def _same_address(url: str) -> str:
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    return urlunsplit(parts._replace(scheme=scheme))
