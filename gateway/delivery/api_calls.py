"""Carries out API calls of applets; the response returns to the project as an event.

The event's payload is the response as JSON. Source: ABI document, 3.1 (`ws_api_call`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import string
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tornado.httpclient import HTTPRequest, HTTPResponse
from tornado.netutil import DefaultLoopResolver, Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from fieldbrook.actors.project.capabilities import PROOF_ROUTE, READ_ROUTE, is_system
from fieldbrook.actors.project.chains import ChainName, unknown_chain
from fieldbrook.actors.wire import BY_API, NAMED, WireEntry, WireEvent
from fieldbrook.chain.blocks.logs import normalize_hex
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.core import clock
from fieldbrook.core.api_hosts import is_allowed, is_named, is_public
from fieldbrook.core.bounded_json import from_json
from fieldbrook.core.errors import NodeError, TooManyRequestsError
from fieldbrook.core.model import NODE_PUBLISHER
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.chain_client import READ, call_chain
from fieldbrook.gateway.delivery.bounded_tls import BoundedTls
from fieldbrook.gateway.delivery.slots import Slots
from fieldbrook.gateway.links.pending_event import Outcome, Settle
from fieldbrook.wasm.host.api import decode, response

log = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_PROOF_LIMIT_S = 600.0
_BODY_LIMIT_BYTES = 1 << 20
# A head is decoded at once. One of 64 KiB with 6,000 fields took 0.09 s.
_HEAD_LIMIT_BYTES = 16 << 10
_CONCURRENT_CALLS = 32  # a single account may have half of them
_RETRY_S = 1.0
_DROPPED_HEADERS = {"eventtype", "host", "content-length", "connection", "transfer-encoding"}
_TOKEN = frozenset(f"{string.ascii_letters}{string.digits}!#$%&'*+-.^_`|~")  # RFC 9110, 5.6.2

Submit = Callable[[int, WireEvent, Settle], None]


class ApiCaller:
    """Makes the calls; at most 32 requests to API hosts and 32 to the prover run at a time.

    Accounts share them (`Slots`). Otherwise a slow service of one account would delay the calls of
    all others until they end with a timeout.

    Args:
        submit: sends an event to a project; raises a `NodeError` when it is not accepted.
        hosts: the setting `api_hosts`.
        run_dir: the folder with the sockets of the chains' processes.
        chains: the chains of the settings.
        prover: the URL of the prover in the settings, if there is one.
        account_of: returns the account of a project; by default each project counts as an account
            of its own.
    """

    def __init__(
        self,
        submit: Submit,
        hosts: Sequence[str],
        run_dir: Path = Path(),
        chains: Sequence[Chain] = (),
        prover: str | None = None,
        account_of: Callable[[int], int] = lambda project_id: project_id,
    ) -> None:
        self._submit = submit
        self._account_of = account_of
        self._slots, self._prover_slots = Slots(_CONCURRENT_CALLS), Slots(_CONCURRENT_CALLS)
        self._hosts = hosts
        self._run_dir = run_dir
        self._chains = chains
        self._prover = prover
        # The operator configured the prover, so private addresses are allowed for it.
        self._prover_client = SimpleAsyncHTTPClient(
            force_instance=True, max_clients=_CONCURRENT_CALLS, max_body_size=_BODY_LIMIT_BYTES
        )
        self._tls = ssl.create_default_context()
        self._tls.sslsocket_class = BoundedTls
        self._client = SimpleAsyncHTTPClient(
            force_instance=True,
            max_clients=_CONCURRENT_CALLS,
            resolver=_GuardedResolver(hosts),
            max_body_size=_BODY_LIMIT_BYTES,
            max_header_size=_HEAD_LIMIT_BYTES,
        )

    async def __call__(self, project_id: int, entry: WireEntry) -> None:
        """Make the call and send the response to the project as an event."""
        sequence, _, event_type, request, event_id = entry
        body = await self._respond(request, self._account_of(project_id))
        result_id = f"{event_id}#api{sequence}"
        event = event_type, NODE_PUBLISHER, result_id, body, clock.now_ms(), NAMED | BY_API, ""
        while True:
            done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            try:
                self._submit(project_id, event, done.set_result)
            except TooManyRequestsError:
                await asyncio.sleep(_RETRY_S)
                continue
            except NodeError as error:
                log.error(
                    "the result %s of an API call is lost: the project does not accept it: %s",
                    event[2],
                    error,
                )
                return
            outcome = await done
            if not isinstance(outcome, NodeError):
                return
            log.warning("the result %s of an API call is sent again: %s", event[2], outcome)
            await asyncio.sleep(_RETRY_S)

    async def _respond(self, raw: bytes, account_id: int) -> bytes:
        decoded = _decode(raw)
        if not is_system(decoded["Url"]):
            slots = self._slots
        elif urlsplit(decoded["Url"]).path == PROOF_ROUTE[1]:
            slots = self._prover_slots
        else:
            return await self._answer(decoded, self._call_node_route)
        del decoded  # hundreds of calls may wait, each with a megabyte
        call = self._call_api if slots is self._slots else self._prove
        async with slots.hold(account_id):
            return await self._answer(_decode(raw), call)

    async def _answer(
        self, request: dict[str, Any], call: Callable[[dict[str, Any]], Awaitable[bytes]]
    ) -> bytes:
        """Make a call; return its response, or one with the reason why there is no response."""
        header: dict[str, list[str]] = request["Header"]
        try:
            return await call(request)
        except (TransactionRefusedError, _InvalidRequestError) as error:
            return _failure(HTTPStatus.BAD_REQUEST, header, str(error))
        except TimeoutError:
            return _failure(
                HTTPStatus.GATEWAY_TIMEOUT, header, "the server did not respond in time"
            )
        except Exception as error:  # noqa: BLE001 - every failure is reported to the applet
            return _failure(HTTPStatus.BAD_GATEWAY, header, str(error) or type(error).__name__)

    async def _call_node_route(self, request: dict[str, Any]) -> bytes:
        """Answer a call to the node's own routes."""
        header: dict[str, list[str]] = request["Header"]
        parts = urlsplit(request["Url"])
        if parts.path == READ_ROUTE[1]:
            return response(HTTPStatus.OK, header, await self._read_transaction(request))
        return response(HTTPStatus.OK, header, b'{"message":"hello"}')

    async def _read_transaction(self, request: dict[str, Any]) -> bytes:
        fields = dict(parse_qsl(urlsplit(request["Url"]).query))
        if request["Body"]:
            try:
                fields |= from_json(request["Body"])
            except (ValueError, TypeError):
                raise TransactionRefusedError("the body is not a JSON object") from None
        name = str(fields.get("chainName", ""))
        chain = next((c for c in self._chains if name in (c.name, str(c.id))), None)
        if chain is None:
            known = [ChainName(each.id, each.name) for each in self._chains]
            raise TransactionRefusedError(unknown_chain(name, known))
        hash_ = normalize_hex(str(fields.get("hash", "")))  # SDKs send it without 0x
        result: bytes = await call_chain(self._run_dir, chain.id, {READ: hash_})
        return result

    async def _prove(self, request: dict[str, Any]) -> bytes:
        """Request a proof from the prover of the settings."""
        assert self._prover is not None  # without a prover, the call was refused
        answer = await _fetch(
            self._prover_client,
            HTTPRequest(
                self._prover,
                method="POST",
                headers={"Content-Type": "application/json"},
                body=request["Body"],
                follow_redirects=False,
                connect_timeout=_TIMEOUT_S,
                request_timeout=_PROOF_LIMIT_S,
            ),
        )
        return _encode(answer, response(HTTPStatus.OK, request["Header"], answer.body))

    async def _call_api(self, request: dict[str, Any]) -> bytes:
        header: dict[str, list[str]] = request["Header"]
        _check(request)
        sent = {
            name: ", ".join(texts)
            for name, texts in header.items()
            if name.lower() not in _DROPPED_HEADERS
        }
        answer = await _fetch(
            self._client,
            HTTPRequest(
                request["Url"].replace(" ", "%20"),
                method=request["Method"],
                headers=sent,
                body=request["Body"] or None,
                allow_nonstandard_methods=True,
                follow_redirects=False,  # a redirect can lead to a host that is not allowed
                ssl_options=self._tls,
                # A megabyte can consist of 50,000 gzip members, which take 0.2 s in one turn.
                decompress_response=False,
                connect_timeout=_TIMEOUT_S,
                request_timeout=_TIMEOUT_S,
            ),
        )
        headers: dict[str, list[str]] = {}
        for name, text in answer.headers.get_all():
            headers.setdefault(name, []).append(text)
        return _encode(answer, response(HTTPStatus.OK, {}, answer.body), Header=headers)


class _InvalidRequestError(Exception):
    """The request cannot be sent; the text says why."""


def _check(request: dict[str, Any]) -> None:
    """Refuse what servers understand in different ways.

    Many servers read a header `Host ` as `Host`, for example, and this one belongs to the node.

    Raises:
        _InvalidRequestError: the method, the URL or a header has characters that it must not have.
    """
    header: dict[str, list[str]] = request["Header"]
    for what, name in (("method", request["Method"]), *(("header", name) for name in header)):
        if not name or not _TOKEN.issuperset(name):
            raise _InvalidRequestError(f"{name[:64]!r} is not a valid name of a {what}")
    for what, text in (
        ("the URL", request["Url"]),
        *((f"the header {name}", text) for name, texts in header.items() for text in texts),
    ):
        if any((each < " " and each != "\t") or each == "\x7f" for each in text):
            raise _InvalidRequestError(f"{what} has a control character")


def _decode(raw: bytes) -> dict[str, Any]:
    request = decode(raw)
    assert request is not None  # the host function decoded it before it accepted the call
    return request


async def _fetch(client: SimpleAsyncHTTPClient, request: HTTPRequest) -> HTTPResponse:
    """Send a request; return the response, whatever its status.

    Raises:
        Exception: there was no response.
    """
    answer = await client.fetch(request, raise_error=False)
    if answer.code == 599 and answer.error is not None:
        raise answer.error
    return answer


def _encode(answer: HTTPResponse, template: bytes, **fields: object) -> bytes:
    """Encode a server's response: the fields of `template` with the server's status."""
    status = {"Status": f"{answer.code} {answer.reason}", "StatusCode": answer.code}
    return json.dumps(json.loads(template) | status | fields, separators=(",", ":")).encode()


def _failure(status: HTTPStatus, header: dict[str, list[str]], reason: str) -> bytes:
    return response(status, header, json.dumps({"error": reason}).encode())


class _GuardedResolver(Resolver):
    """Refuses hosts that are not allowed, and private addresses of hosts not listed by name.

    The connection uses the addresses that were checked, so DNS rebinding between the check and
    the connection is not possible.
    """

    def initialize(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._resolver = DefaultLoopResolver()

    @classmethod
    def configurable_base(cls) -> type[Resolver]:
        return _GuardedResolver

    @classmethod
    def configurable_default(cls) -> type[Resolver]:
        return _GuardedResolver

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        if not is_allowed(host, self._hosts):
            raise OSError(f"host {host} is not in the setting api_hosts")
        found: list[tuple[int, Any]] = await self._resolver.resolve(host, port, family)
        if is_named(host, self._hosts):
            return found
        public = [place for place in found if is_public(place[1][0])]
        if not public:
            raise OSError(f"host {host} has no public address")
        return public

    def close(self) -> None:
        self._resolver.close()
