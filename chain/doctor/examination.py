"""The examination of an endpoint: all checks, one after the other."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from fieldbrook.chain.doctor import checks
from fieldbrook.chain.doctor.announcements import examine_announcements
from fieldbrook.chain.doctor.findings import Report
from fieldbrook.chain.doctor.probe import FAILURES, Probe
from fieldbrook.chain.doctor.sending import Sender, examine_sending
from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import quantity
from fieldbrook.chain.rpc.endpoint_url import public_part
from fieldbrook.chain.rpc.transport import TransportError
from fieldbrook.core.findings import State
from fieldbrook.core.networks import BY_ID

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN_CHARACTERS = 80


class Options(NamedTuple):
    """The options of an examination.

    Attributes:
        chain_id: the chain that the endpoint must belong to; None for any.
        websocket: the address of a WebSocket; None tries the endpoint's address.
        sender: signs a transaction on a test chain; None sends no transaction.
        rate: whether to measure how many requests per second are answered.
        limit_s: the time limit of a request.
    """

    chain_id: int | None = None
    websocket: str | None = None
    sender: Sender | None = None
    rate: bool = True
    limit_s: float = 10.0


class NoEndpointError(Exception):
    """Nothing answers at the address, or the answer is not that of an EVM endpoint."""


async def examine(url: str, options: Options) -> Report:
    """Examine an endpoint.

    Raises:
        NoEndpointError: nothing answers at the address, or the answer is not that of an EVM
            endpoint.
        NotTestChainError: `sender` is set, but the chain is not a known test chain.
    """
    probe = Probe(url, options.limit_s)
    report = Report(public_part(url), has_secrets=public_part(url) != url.rstrip("/"))
    try:
        if not await _chain(probe, report, options):
            return report
        if options.sender is not None:
            options.sender.require_test_chain(report.chain_id)
        await _software(probe, report, url)
        head = await checks.examine_head(probe, report)
        if head is None:
            return report
        await checks.examine_final_blocks(probe, report, head)
        await checks.examine_logs(probe, report, head, url)
        await checks.examine_history(probe, report, head)
        await checks.examine_fees(probe, report, head)
        await checks.examine_batches(probe, report)
        await examine_announcements(report, url, options.websocket, options.limit_s)
        if options.sender is not None:
            await examine_sending(probe, report, options.sender)
        if options.rate:  # last, because the endpoint may refuse further requests for a while
            await checks.examine_rate(probe, report)
        checks.examine_transient_failures(probe, report)
        return report
    finally:
        await probe.close()


async def _chain(probe: Probe, report: Report, options: Options) -> bool:
    """Check the chain id; return whether it is the required one."""
    try:
        report.chain_id = quantity(await probe.call("eth_chainId"))
    except TransportError as error:
        raise NoEndpointError(probe.redacted(str(error))) from None
    except RpcError as error:
        raise NoEndpointError(f"it refuses eth_chainId: {error.text}") from None
    except MalformedAnswerError:
        raise NoEndpointError("its answer to eth_chainId is not a chain id") from None
    report.network = BY_ID.get(report.chain_id)
    name = None if report.network is None else report.network.name
    good = options.chain_id in (None, report.chain_id)
    text = f"{report.chain_id} ({name or 'not a known chain'})"
    if not good:
        text = f"it belongs to chain {text}, not to {options.chain_id}"
    state: State = "ok" if good else "failed"
    report.add("chain id", state, text, chainID=report.chain_id, network=name)
    return good


async def _software(probe: Probe, report: Report, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("http", "ws") and parts.hostname not in _LOCAL:
        text = f"none: {parts.scheme} shows keys and data to the network"
        report.add("encryption", "warning", text)
    try:
        version = str(await probe.call("web3_clientVersion"))[:_SHOWN_CHARACTERS]
    except FAILURES:
        return  # many endpoints do not support the method, and nothing depends on it
    report.add("software", "ok", probe.redacted(version), version=probe.redacted(version))
