"""Files of the workbench: recorded events, expected results, key-value stores, SQL schemas.

Bytes that are not UTF-8, and text that itself starts with `base64:`, become `base64:...` in JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fieldbrook.core.bounded_json import from_json
from fieldbrook.core.errors import MalformedMessageError
from fieldbrook.core.model import DEFAULT_EVENT_TYPE
from fieldbrook.gateway.events.message import decode_message
from fieldbrook.system.regular_file import read_regular_file

_BASE64 = "base64:"

Json = dict[str, Any]
T = TypeVar("T")


class WorkbenchError(Exception):
    """An input file is invalid (the text has the file and the place), or a replay does not end."""


def read_events(path: Path) -> list[tuple[str, bytes]]:
    """Read recorded events, as (type, payload), from a file with one JSON object per line.

    A line has one of three forms; empty lines are skipped:

    - a data message as devices send it; its publisher and token are not checked;
    - `{"event_type"?, "payload"}`, where the payload is text or another JSON value, which
      becomes compact JSON;
    - `{"event_type"?, "payload_base64"}`.

    Raises:
        WorkbenchError: a line has another form; the text has its number.
        OSError: the file cannot be read, see `read_regular_file`.
    """
    return _read_lines(path, _event)


def read_expectations(path: Path) -> list[Json]:
    """Read the expected results of runs, one JSON object per line.

    Raises:
        WorkbenchError: a line is not a JSON object.
        OSError: the file cannot be read, see `read_regular_file`.
    """
    return _read_lines(path, _object)


def read_schema(path: Path) -> Json:
    """Read a database configuration from a file.

    Raises:
        WorkbenchError: the file does not hold a JSON object.
        OSError: the file cannot be read, see `read_regular_file`.
    """
    return _read(path, _object)


def read_store(path: Path) -> dict[bytes, bytes]:
    """Read a store from a file; without the file the store is empty.

    Raises:
        WorkbenchError: the file is not a store that `write_store` writes.
        OSError: the file cannot be read, see `read_regular_file`.
    """
    try:
        return _read(path, lambda content: store_from_json(json.loads(content)))
    except FileNotFoundError:
        return {}


def write_store(path: Path, store: Mapping[bytes, bytes]) -> None:
    """Write a store to a file."""
    text = json.dumps(store_to_json(store), ensure_ascii=False, indent=2)
    path.write_text(f"{text}\n", "utf-8")


def write_lines(path: Path, values: Sequence[Json]) -> None:
    """Write one line of JSON for each value."""
    path.write_text("".join(f"{to_json(value)}\n" for value in values), "utf-8")


def to_json(value: object) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False)


def store_to_json(store: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return keys and values as text."""
    return {to_text(key): to_text(value) for key, value in sorted(store.items())}


def store_from_json(value: object) -> dict[bytes, bytes]:
    """Do the inverse of `store_to_json`. Raises ValueError for anything else."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("not a JSON object with strings as values")
    return {_to_bytes(key): _to_bytes(text) for key, text in value.items()}


def to_text(data: bytes) -> str:
    """Return bytes as text, if necessary as `base64:...`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = _BASE64
    return _BASE64 + base64.b64encode(data).decode() if text.startswith(_BASE64) else text


def _to_bytes(text: str) -> bytes:
    if text.startswith(_BASE64):
        return base64.b64decode(text.removeprefix(_BASE64), validate=True)
    return text.encode()


def _read_lines(path: Path, parse: Callable[[bytes], T]) -> list[T]:
    lines = enumerate(read_regular_file(path).splitlines(), 1)
    return [_parse(f"{path}:{number}", line, parse) for number, line in lines if line.strip()]


def _read(path: Path, parse: Callable[[bytes], T]) -> T:
    return _parse(str(path), read_regular_file(path), parse)


def _parse(source: str, content: bytes, parse: Callable[[bytes], T]) -> T:
    try:
        value: T = from_json(content, parse)
        return value
    except json.JSONDecodeError as error:
        raise WorkbenchError(f"{source}: not JSON: {error}") from None
    except (TypeError, ValueError, MalformedMessageError) as error:
        raise WorkbenchError(f"{source}: {error}") from None


def _event(line: bytes) -> tuple[str, bytes]:
    value = _object(line)
    if "header" in value:
        header = value["header"]
        if isinstance(header, dict):
            value = {**value, "header": {"pub_id": "-", "token": "-", **_without_blanks(header)}}
        message = decode_message(msgspec.json.encode(value))
        return message.event_type, message.payload
    event_type = value.get("event_type") or DEFAULT_EVENT_TYPE
    if not isinstance(event_type, str):
        raise TypeError("event_type is not a string")
    if isinstance(value.get("payload_base64"), str):
        return event_type, base64.b64decode(value["payload_base64"], validate=True)
    if "payload" not in value:
        raise ValueError("the event has no payload")
    payload = value["payload"]
    if isinstance(payload, str):
        return event_type, payload.encode("utf-8", "surrogateescape")
    return event_type, json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def _without_blanks(header: Json) -> Json:
    """Return a header without the publisher and the token that a recording left empty."""
    blank = ("pub_id", "token")
    return {name: value for name, value in header.items() if value or name not in blank}


def _object(content: bytes) -> Json:
    value = json.loads(content)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value
