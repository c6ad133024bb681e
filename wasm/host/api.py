"""API calls: requests of an applet to the node or to an external service.

The call returns at once and only says whether the request was accepted. The result arrives
later as an event.

Source: ABI document, 3.1 (`ws_api_call`).
"""

from __future__ import annotations

import base64
import json
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from fieldbrook.core.bounded_json import from_json
from fieldbrook.core.model import EVENT_TYPE_LIMIT
from fieldbrook.wasm.host.guest import Functions, Guest
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import ApiCall, Transaction

EVENT_TYPE_HEADER = "Eventtype"
_REQUEST_BYTES = 1 << 20
_UNDECODABLE = b'{"Status":"","StatusCode":400,"Proto":"","Header":null,"Body":null}'


def functions(guest: Guest) -> Functions:
    """Return `ws_api_call`."""

    def ws_api_call(pointer: int, size: int, at: int, size_at: int) -> int:
        guest.copy_to_guest(answer(guest.read_head(pointer, size, _REQUEST_BYTES + 1)), at, size_at)
        return abi.OK

    def answer(raw: bytes) -> bytes:
        request = decode(raw)
        if request is None:
            return _UNDECODABLE
        header = request["Header"]
        event_type = next(iter(header.get(EVENT_TYPE_HEADER) or ()), "")
        if not event_type:
            return response(HTTPStatus.OK, header)
        if len(event_type) > EVENT_TYPE_LIMIT:
            return _UNDECODABLE
        run, method, url = guest.run, request["Method"], request["Url"]
        sent = run.capabilities.api_transaction(run, method, url, event_type, raw)
        if sent is not None:
            return transaction(header, *sent)
        refusal = run.capabilities.api_refusal(method, url)
        if refusal is not None:
            status, reason = refusal
            return response(status, header, json.dumps({"error": reason}).encode())
        guest.add_effect(ApiCall(event_type, raw), len(raw))
        return response(HTTPStatus.OK, header)

    def transaction(header: dict[str, list[str]], status: int, sent: Transaction | str) -> bytes:
        if isinstance(sent, str):
            return response(status, header, json.dumps({"error": sent}).encode())
        guest.add_effect(sent, len(sent.body))
        body = {"transactionID": sent.name, "hash": sent.hash}
        return response(status, header, json.dumps(body).encode())

    return {abi.WS_API_CALL: ws_api_call}


def decode(raw: bytes) -> dict[str, Any] | None:
    """Decode a request of the SDKs; None if it is malformed or larger than 1 MiB.

    Shape: `{"Method": str, "Url": str, "Header": {name: [str]}, "Body": base64}`; only `Url`
    is required. The result has the same keys, with `Body` as bytes.
    """
    if len(raw) > _REQUEST_BYTES:
        return None
    try:
        value = from_json(raw)
        method, url = value.get("Method") or "GET", value["Url"]
        header = value.get("Header") or {}
        body = base64.b64decode(value.get("Body") or "", validate=True)
        urlsplit(url)
        # JSON can contain half of a surrogate pair, which cannot be encoded, stored or sent.
        json.dumps([method, url, header], ensure_ascii=False).encode()
        good = isinstance(method, str) and isinstance(url, str)
        good = good and all(
            isinstance(texts, list) and all(isinstance(text, str) for text in texts)
            for texts in header.values()
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return {"Method": method.upper(), "Url": url, "Header": header, "Body": body} if good else None


def response(status: int, header: dict[str, list[str]], body: bytes = b"") -> bytes:
    """Encode a response for the SDKs. It repeats the request's headers except `Content-Type`."""
    kept = {name: texts for name, texts in header.items() if name.lower() != "content-type"}
    if body:
        kept["Content-Type"] = ["application/json; charset=utf-8"]
    return json.dumps(
        {
            "Status": f"{int(status)} {HTTPStatus(status).phrase}",
            "StatusCode": int(status),
            "Proto": "HTTP/1.1",
            "Header": kept,
            "Body": base64.b64encode(body).decode(),
        },
        separators=(",", ":"),
    ).encode()
