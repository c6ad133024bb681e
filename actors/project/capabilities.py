"""Capabilities: topics, hosts and chains outside of a project that its applets may use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from fieldbrook.actors.project.chains import ProjectChains
from fieldbrook.actors.project.topics import HandlerTopics
from fieldbrook.core.api_hosts import is_allowed
from fieldbrook.core.bounded_json import from_json
from fieldbrook.wasm.host.api import decode
from fieldbrook.wasm.run import Capabilities, EffectRefusedError, Run, Transaction

SYSTEM_HOST = "w3bstream.com"
SYSTEM_SCHEME = "w3bstream"
HELLO = "/system/hello"
_SEND_ROUTE = ("POST", "/system/send_tx")
READ_ROUTE = ("GET", "/system/read_tx")
PROOF_ROUTE = ("POST", "/system/gen_zk_proof")
NO_OBJECT = "the body is not a JSON object"
_TOPICS_KEPT = 1_024


class OutboxState(Protocol):
    """The part of the outbox that is needed here; see `storage.project.outbox.Outbox`."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be sent until an entry was delivered."""
        ...


class ProjectCapabilities(Capabilities):
    """The capabilities of a project's applets: MQTT topics, API hosts, chains and the prover.

    A topic is allowed unless a project receives events on it, it belongs to another account's
    project, or it is the broker's own (`$...`).
    A host is allowed when the setting `api_hosts` names it.
    """

    def __init__(
        self,
        topics: HandlerTopics,
        outbox: OutboxState,
        api_hosts: Sequence[str],
        chains: ProjectChains | None = None,
        *,
        prover: bool = False,
    ) -> None:
        self._handler_topics = topics
        self._outbox = outbox
        self._api_hosts = api_hosts
        self._chains = chains
        self._prover = prover
        self._topics: set[str] = set()  # allowed ones, since the registry changed

    def forget(self) -> None:
        """Clear the cache of allowed topics: after a change of the registry, a project may use
        one."""
        self._topics.clear()

    def check_topic(self, topic: str) -> None:
        """See `Capabilities.check_topic`."""
        self._check_outbox()
        if topic in self._topics:
            return
        why_not = self._handler_topics.why_not(topic)
        if why_not is not None:
            raise EffectRefusedError(why_not)
        if len(self._topics) >= _TOPICS_KEPT:
            self._topics.clear()
        self._topics.add(topic)

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        """See `Capabilities.api_refusal`."""
        if self._outbox.is_full:
            return HTTPStatus.TOO_MANY_REQUESTS, "the outbox is full"
        parts = urlsplit(url)
        if not is_system(url):
            if parts.scheme not in ("http", "https") or not parts.hostname:
                return HTTPStatus.NOT_FOUND, f"{url[:128]}: not a URL that can be called"
            if is_allowed(parts.hostname, self._api_hosts):
                return None
            return HTTPStatus.FORBIDDEN, f"host {parts.hostname} is not in the setting api_hosts"
        route = method, parts.path
        if route == ("GET", HELLO):
            return None
        if route in (READ_ROUTE, _SEND_ROUTE):
            if self._chains is not None and route == READ_ROUTE:
                return None
            return HTTPStatus.NOT_IMPLEMENTED, "no chain is configured"
        if route == PROOF_ROUTE:
            if self._prover:
                return None
            return HTTPStatus.NOT_IMPLEMENTED, "no prover is configured (setting prover_url)"
        return HTTPStatus.NOT_FOUND, f"{method} {parts.path}: there is no such route"

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        """See `Capabilities.send_transaction`."""
        if self._chains is None:
            return super().send_transaction(run, chain_id, operator, request)
        chain = self._chains.named(chain_id)
        self._check_outbox()
        return self._chains.prepare(run, chain, operator, request)

    def call_contract(self, run: Run, chain_id: int | None, request: bytes) -> bytes:
        """See `Capabilities.call_contract`."""
        if self._chains is None:
            return super().call_contract(run, chain_id, request)
        return self._chains.call(run, self._chains.named(chain_id), request)

    def api_transaction(
        self, run: Run, method: str, url: str, event_type: str, request: bytes
    ) -> tuple[int, Transaction | str] | None:
        """See `Capabilities.api_transaction`."""
        if self._chains is None or not sends_transaction(method, url):
            return None
        if self._outbox.is_full:
            return HTTPStatus.TOO_MANY_REQUESTS, "the outbox is full"
        named = sent_by_name(request)
        if named is None:
            return HTTPStatus.BAD_REQUEST, NO_OBJECT
        chain = self._chains.with_name(named.chain)
        if chain is None:
            return HTTPStatus.BAD_REQUEST, self._chains.unknown(named.chain)
        try:
            sent = self._chains.prepare(run, chain, named.operator, named.body, event_type, request)
        except EffectRefusedError as error:
            return HTTPStatus.BAD_REQUEST, str(error)
        return HTTPStatus.OK, sent

    def _check_outbox(self) -> None:
        if self._outbox.is_full:
            raise EffectRefusedError("the outbox is full: too many entries are not delivered yet")


def is_system(url: str) -> bool:
    """Whether a URL names a service of the node itself."""
    parts = urlsplit(url)
    return not parts.scheme or parts.scheme == SYSTEM_SCHEME or parts.hostname == SYSTEM_HOST


def sends_transaction(method: str, url: str) -> bool:
    """Whether an API call is `POST /system/send_tx`."""
    return is_system(url) and (method, urlsplit(url).path) == _SEND_ROUTE


class SentByName(NamedTuple):
    """The request of a `POST /system/send_tx`.

    `chain` is the name or id of a chain. `operator` is the name of an operator; None means the
    operator of the project. `body` is the transaction, for `chain.transaction.parse_call`.
    """

    chain: str
    operator: str | None
    body: bytes


def sent_by_name(request: bytes) -> SentByName | None:
    """Parse a request to `POST /system/send_tx`; None when its body is not a JSON object."""
    fields = api_fields(request)
    if fields is None:
        return None
    operator = fields.get("operatorName")
    return SentByName(
        str(fields.get("chainName", "")),
        operator if isinstance(operator, str) and operator else None,
        json.dumps(fields).encode(),
    )


def api_fields(request: bytes) -> dict[str, Any] | None:
    """Return the JSON object in the body of an API call, or None."""
    decoded = decode(request)
    try:
        fields = from_json(decoded["Body"]) if decoded else None
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None
