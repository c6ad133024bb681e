"""Events over HTTP: several in each request, on one connection that stays open."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from fieldbrook.device.address import Address, reason_of
from fieldbrook.device.event import (
    Accepted,
    Event,
    HandlerResult,
    Later,
    Outcome,
    Refused,
    failure,
    failure_in_text,
)
from fieldbrook.device.transport import Sender

_ANSWER_LIMIT_BYTES = 16 << 20
_RETRY_AFTER_LIMIT_S = 3600.0
_NO_ANSWER = (OSError, http.client.HTTPException)
_TOO_LARGE, _MALFORMED = 413, 400
_MALFORMED_ANSWER = "the node's answer to this event is malformed"


class HttpTransport:
    """Sends batches of events; see `Transport`."""

    def __init__(self, address: Address, sender: Sender, timeout_s: float) -> None:
        self._address = address
        self._sender = sender
        self._timeout_s = timeout_s
        self._target = f"{address.path}/srv-applet-mgr/v0/event/{quote(sender.project, safe='')}"
        self._connection: http.client.HTTPConnection | None = None
        self._is_aborted = False

    def send(self, events: Sequence[Event]) -> list[Outcome]:
        """Send the events, in one request if the node takes it."""
        answer = self._post(events)
        if isinstance(answer, Later):
            return [answer] * len(events)
        status, value, retry_after_s = answer
        if status == 201 and isinstance(value, list) and len(value) == len(events):
            return [_outcome(item) for item in value]
        error = _whole_failure(status, value, retry_after_s)
        if isinstance(error, Refused) and len(events) > 1 and status in (_TOO_LARGE, _MALFORMED):
            # The request as a whole was refused. Its events may be accepted separately.
            return self._send_halves(events)
        return [error] * len(events)

    def _send_halves(self, events: Sequence[Event]) -> list[Outcome]:
        middle = len(events) // 2
        first = self.send(events[:middle])
        if any(isinstance(outcome, Later) for outcome in first):
            waiting = Later("an earlier event has to be sent again")
            return [*first, *[waiting] * (len(events) - middle)]
        return [*first, *self.send(events[middle:])]

    def _post(self, events: Sequence[Event]) -> tuple[int, Any, float] | Later:
        sender = self._sender
        messages = [event.message(sender.publisher, sender.token) for event in events]
        body = json.dumps({"events": messages}, separators=(",", ":")).encode()
        is_reused = self._connection is not None
        try:
            try:
                return self._exchange(body)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # The node has closed the idle connection. It recognises events that it has already
                # got by their ids.
                self.close()
                if not is_reused:
                    raise
                return self._exchange(body)
        except _NO_ANSWER as error:
            self.close()
            return Later(f"no answer from {self._address}: {reason_of(error)}")

    def _exchange(self, body: bytes) -> tuple[int, Any, float]:
        if self._connection is None:
            self._connection = self._connect()
        if self._is_aborted:
            raise ConnectionAbortedError("closed")
        connection = self._connection
        connection.request("POST", self._target, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read(_ANSWER_LIMIT_BYTES)
        if answer.length or answer.read(1):
            raise http.client.HTTPException("the answer is incomplete or too large")
        value = None
        with suppress(ValueError, RecursionError):
            value = json.loads(content)
        return answer.status, value, _seconds(answer.headers.get("Retry-After"))

    def _connect(self) -> http.client.HTTPConnection:
        address = self._address
        if address.tls is None:
            connection = http.client.HTTPConnection(
                address.host, address.port, timeout=self._timeout_s
            )
        else:
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=self._timeout_s, context=address.tls
            )
        connection.connect()
        return connection

    def abort(self) -> None:
        """Abort a `send` of another thread."""
        self._is_aborted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _whole_failure(status: int, value: object, retry_after_s: float) -> Refused | Later:
    """Return the outcome of all events for an error that answers the whole request."""
    if isinstance(value, dict) and status >= 400 and isinstance(value.get("key"), str):
        words = [str(value.get(name) or "") for name in ("msg", "desc")]
        text = ": ".join(word for word in words if word)
        return failure(status, value["key"], text, retry_after_s)
    # A proxy or the login page of a network has answered, and not the node.
    return Later(f"an answer with status {status} that is not from a node", retry_after_s)


def _outcome(item: object) -> Outcome:
    """Return the outcome for one item of a batch answer (docs/reference/http.md#events)."""
    if not isinstance(item, dict):
        return Later(_MALFORMED_ANSWER)
    if item.get("errMsg"):
        text = str(item["errMsg"])
        return failure_in_text(text) or Later(text)
    results = item.get("wasmResults")
    if not isinstance(results, list):
        return Later(_MALFORMED_ANSWER)
    return Accepted(tuple(map(_result, results)), bool(item.get("replayed")))


def _result(result: Any) -> HandlerResult:
    if not isinstance(result, dict):
        return HandlerResult("", 0)
    code = result.get("code")
    return HandlerResult(
        str(result.get("instanceID") or ""),
        code if isinstance(code, int) else 0,
        str(result.get("errMsg") or ""),
    )


def _seconds(retry_after: str | None) -> float:
    """Parse the header `Retry-After`; a date, which a node does not send, counts as absent."""
    if retry_after is None or not (retry_after.isascii() and retry_after.isdigit()):
        return 0.0
    return min(float(retry_after[:9]), _RETRY_AFTER_LIMIT_S)
