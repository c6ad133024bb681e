"""The examination of an endpoint: all checks, one after the other."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from fieldbrook.chain.doctor import checks
from fieldbrook.chain.doctor.announcements import examine_announcements
from fieldbrook.chain.doctor.asking import FAILURES, Asker
from fieldbrook.chain.doctor.findings import Report
from fieldbrook.chain.doctor.sending import Sender, examine_sending
from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import quantity
from fieldbrook.chain.rpc.endpoint_url import public_part
from fieldbrook.chain.rpc.transport import TransportError
from fieldbrook.core.findings import State
from fieldbrook.core.networks import BY_ID

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN_CHARACTERS = 80


class Wishes(NamedTuple):
    """The options of an examination.

    Attributes:
        chain_id: the chain that the endpoint must belong to; None for any.
        websocket: the address of a subscription; None tries the endpoint's own.
        sender: signs a transaction on a test chain; None sends nothing.
        rate: whether to find out how many requests per second are answered.
        limit_s: the time limit of a request.
    """

    chain_id: int | None = None
    websocket: str | None = None
    sender: Sender | None = None
    rate: bool = True
    limit_s: float = 10.0


class NoEndpointError(Exception):
    """The address does not answer, or not as an endpoint of an EVM chain."""


async def examine(url: str, wishes: Wishes) -> Report:
    """Examine an endpoint.

    Raises:
        NoEndpointError: nobody answers there, or not as an endpoint.
        NotTestChainError: a transaction is wished for, but it is not a test chain.
    """
    asker = Asker(url, wishes.limit_s)
    report = Report(public_part(url), has_secrets=public_part(url) != url.rstrip("/"))
    try:
        if not await _chain(asker, report, wishes):
            return report
        if wishes.sender is not None:
            wishes.sender.require_test_chain(report.chain_id)
        await _software(asker, report, url)
        head = await checks.examine_head(asker, report)
        if head is None:
            return report
        await checks.examine_final_blocks(asker, report, head)
        await checks.examine_logs(asker, report, head, url)
        await checks.examine_history(asker, report, head)
        await checks.examine_fees(asker, report, head)
        await checks.examine_batches(asker, report)
        await examine_announcements(report, url, wishes.websocket, wishes.limit_s)
        if wishes.sender is not None:
            await examine_sending(asker, report, wishes.sender)
        if wishes.rate:  # last, because the endpoint may refuse what comes next
            await checks.examine_rate(asker, report)
        checks.examine_accidents(asker, report)
        return report
    finally:
        await asker.close()


async def _chain(asker: Asker, report: Report, wishes: Wishes) -> bool:
    """Check the chain id; returns whether it is as wished."""
    try:
        report.chain_id = quantity(await asker.ask("eth_chainId"))
    except TransportError as error:
        raise NoEndpointError(asker.redacted(str(error))) from None
    except RpcError as error:
        raise NoEndpointError(f"it refuses eth_chainId: {error.text}") from None
    except MalformedAnswerError:
        raise NoEndpointError("its answer to eth_chainId is not a chain id") from None
    report.network = BY_ID.get(report.chain_id)
    name = None if report.network is None else report.network.name
    good = wishes.chain_id in (None, report.chain_id)
    text = f"{report.chain_id} ({name or 'not a known chain'})"
    if not good:
        text = f"it belongs to chain {text}, not to {wishes.chain_id}"
    state: State = "ok" if good else "failed"
    report.add("chain id", state, text, chainID=report.chain_id, network=name)
    return good


async def _software(asker: Asker, report: Report, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("http", "ws") and parts.hostname not in _LOCAL:
        text = f"none: {parts.scheme} shows keys and data to the network"
        report.add("encryption", "warning", text)
    try:
        version = str(await asker.ask("web3_clientVersion"))[:_SHOWN_CHARACTERS]
    except FAILURES:
        return  # many do not say, and nothing depends on it
    report.add("software", "ok", asker.redacted(version), version=asker.redacted(version))
