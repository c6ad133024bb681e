"""The key-value pairs of a project's applets: list, read, write and delete.

Changes are made by the project, as a part of a batch of events. So a handler sees a changed key either before or after all of its own reads and writes, never between them.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from fieldbrook.actors.wire import WRITE_KEY
from fieldbrook.core.errors import AppletNotFoundError, BadRequestError, FieldError, NotFoundError
from fieldbrook.core.model import Applet
from fieldbrook.gateway.management.framework.binding import MISSING, RowLimit, Sfid
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.data.encoding import Encoding, decode, encode
from fieldbrook.storage.project import kv

_PAGE_BYTES = 1 << 20  # size of keys and values; base64 and JSON may double it


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A key of an applet; the empty key is allowed. `encoding` applies to the key."""

    applet_id: Sfid = msgspec.field(name="appletID")
    key: str | None = None
    encoding: Encoding = "text"


class ReadPairs(KeyQuery, frozen=True, kw_only=True):
    """A key of an applet (the empty key is allowed), or the keys that start with `prefix`.

    `encoding` applies to keys and values, in the request and in the answer. With `values` the
    answer has pairs instead of keys; a key or value that is not UTF-8 is then base64, whatever
    `encoding` says. `after` is the `next` of the page before, or empty for the first page.
    """

    prefix: str = ""
    after: str | None = None
    limit: RowLimit = 100
    values: bool = False


class NewValue(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a key; the empty value is allowed."""

    value: str | None = None
    encoding: Encoding = "text"


class KeyList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Keys in byte order. If one of them is not UTF-8, `encoding` is base64 for all.

    `next` is there if `after` was given and there are more keys.
    """

    applet_id: str = msgspec.field(name="appletID")
    encoding: str
    data: list[str]
    next: str = ""


class StoredValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The value of one key; `encoding` is that of both."""

    applet_id: str = msgspec.field(name="appletID")
    encoding: str
    key: str
    value: str


class StoredPair(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A key and its value, each with its encoding; `size` is that of the value in bytes."""

    key: str
    key_encoding: Encoding
    value: str
    encoding: Encoding
    size: int


class PairPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Pairs in the byte order of their keys, at most 1 MiB or one pair.

    `next` is there if there are more; it is the `after` of the next page.
    """

    applet_id: str = msgspec.field(name="appletID")
    data: list[StoredPair]
    next: str = ""


class WrittenKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A key that was written; `created` says that it is new, `size` is the value's, in bytes."""

    applet_id: str = msgspec.field(name="appletID")
    key: str
    encoding: Encoding
    size: int
    created: bool


async def read_pairs(call: Call[None, ReadPairs]) -> KeyList | StoredValue | PairPage:
    """The value of a key, the list of an applet's keys, or its pairs."""
    applet = _applet(call)
    if call.query.key is not None:
        return await _value(call, applet, call.query.key)
    return await _pairs(call, applet) if call.query.values else await _keys(call, applet)


async def write_key(call: Call[NewValue, KeyQuery]) -> WrittenKey:
    """Write one key of an applet, like a handler does: committed when the answer is sent."""
    key, applet = _key(call), _applet(call)
    if call.body.value is None:
        raise BadRequestError(FieldError("value", MISSING, "body"))
    value = decode(call.body.value, call.body.encoding, "value", "body")
    if len(key) + len(value) > (limit := call.context.limits.kv_bytes):
        reason = f"key and value have {len(key) + len(value)} bytes, the limit is {limit}"
        raise BadRequestError(FieldError("value", reason, "body"))
    payload = [kv.owner(applet), key, value]
    ((_, known, _),) = await call.command(applet.project_id, WRITE_KEY, payload)
    return WrittenKey(
        applet_id=str(applet.applet_id),
        key=call.query.key or "",
        encoding=call.query.encoding,
        size=len(value),
        created=not known,
    )


async def delete_key(call: Call[None, KeyQuery]) -> None:
    """Delete one key of an applet, between two events."""
    key, applet = _key(call), _applet(call)
    payload = [kv.owner(applet), key, None]
    ((_, known, _),) = await call.command(applet.project_id, WRITE_KEY, payload)
    if not known:
        raise _no_key(applet, call.query.key)


def _applet(call: Call[None, ReadPairs] | Call[NewValue, KeyQuery] | Call[None, KeyQuery]) -> Applet:
    project = own_project(call)
    applet = call.context.reader.applet(call.query.applet_id)
    if applet is None or applet.project_id != project.project_id:
        raise AppletNotFoundError(applet=call.query.applet_id)
    return applet


def _key(call: Call[NewValue, KeyQuery] | Call[None, KeyQuery]) -> bytes:
    if call.query.key is None:
        raise BadRequestError(FieldError("key", MISSING, "query"))
    return decode(call.query.key, call.query.encoding, "key")


def _no_key(applet: Applet, key: str | None) -> NotFoundError:
    return NotFoundError(what=f"applet {applet.applet_id} has no key {key or '(empty)'}")


async def _value(call: Call[None, ReadPairs], applet: Applet, given: str) -> StoredValue:
    wanted = call.query.encoding
    key = decode(given, wanted, "key")
    store = await call.context.flushed_store(applet.project_id)

    def read() -> tuple[str, Encoding]:
        value = store.kv_get(kv.owner(applet), key) if store else None
        if value is None:
            raise _no_key(applet, given)
        return encode(value, wanted)

    text, encoding = await call.search(read)  # it may have megabytes
    if encoding != wanted:
        reason = "the stored data is not UTF-8 text: use encoding=base64"
        raise BadRequestError(FieldError("encoding", reason, "query"))
    return StoredValue(
        applet_id=str(applet.applet_id), encoding=encoding, key=given, value=text
    )


async def _keys(call: Call[None, ReadPairs], applet: Applet) -> KeyList:
    query = call.query
    prefix, after = decode(query.prefix, query.encoding, "prefix"), _after(query)
    store = await call.context.flushed_store(applet.project_id)
    found = store.kv_keys(kv.owner(applet), prefix, query.limit + 1, after) if store else []
    keys = found[: query.limit]
    encoded = [encode(key, query.encoding) for key in keys]
    encoding = query.encoding
    if any(used != encoding for _, used in encoded):
        encoding = "base64"
        encoded = [encode(key, encoding) for key in keys]
    return KeyList(
        applet_id=str(applet.applet_id),
        encoding=encoding,
        data=[text for text, _ in encoded],
        next=_next(keys) if query.after is not None and len(found) > len(keys) else "",
    )


async def _pairs(call: Call[None, ReadPairs], applet: Applet) -> PairPage:
    query = call.query
    prefix, after = decode(query.prefix, query.encoding, "prefix"), _after(query)
    store, owner = await call.context.flushed_store(applet.project_id), kv.owner(applet)

    def read() -> PairPage:
        found = store.kv_pairs(owner, prefix, query.limit, after, _PAGE_BYTES) if store else []
        more = bool(store and found and store.kv_keys(owner, prefix, 1, found[-1][0]))
        return PairPage(
            applet_id=str(applet.applet_id),
            data=[_pair(key, value, query.encoding) for key, value in found],
            next=_next([key for key, _ in found]) if more else "",
        )

    return await call.search(read)  # one pair may have megabytes


def _pair(key: bytes, value: bytes, wanted: Encoding) -> StoredPair:
    key_text, key_encoding = encode(key, wanted)
    text, encoding = encode(value, wanted)
    return StoredPair(
        key=key_text, key_encoding=key_encoding, value=text, encoding=encoding, size=len(value)
    )


def _next(keys: list[bytes]) -> str:
    """Return the cursor after the last key: `.` and the key in URL-safe base64, never empty."""
    return "." + base64.urlsafe_b64encode(keys[-1]).decode()


def _after(query: ReadPairs) -> bytes | None:
    """Return the key of a cursor; None for the start."""
    if not query.after:
        return None
    try:
        return base64.b64decode(query.after.removeprefix("."), b"-_", validate=True)
    except (binascii.Error, ValueError):
        reason = "not the `next` of an earlier page"
        raise BadRequestError(FieldError("after", reason, "query")) from None


ROUTES: tuple[Route, ...] = (
    Route("GET", "/kv/{projectName}", "GetKeyValue", read_pairs),
    Route("PUT", "/kv/{projectName}", "WriteKeyValue", write_key),
    Route("DELETE", "/kv/{projectName}", "RemoveKeyValue", delete_key),
)
