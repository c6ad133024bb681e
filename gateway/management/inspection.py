"""Looking into a project: its applet log and its handlers' key-value pairs."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

import msgspec

from fieldbrook.clock import rfc3339
from fieldbrook.errors import BadRequestError, FieldError, NotFoundError
from fieldbrook.gateway.management.binding import Sfid
from fieldbrook.gateway.management.ownership import own_applet_in, own_project
from fieldbrook.gateway.management.route import Auth, Call, Route
from fieldbrook.gateway.management.views import Json, log_row_json
from fieldbrook.storage import kv
from fieldbrook.storage.project_store import MetricRow, NumberedRow
from fieldbrook.storage.rows import Numbered

_SEQUENCE_LIMIT = (1 << 63) - 1

Encoding = Literal["text", "base64"]
Limit = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class ReadLog(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with a sequence above `after`, oldest first; -20 gives the last 20."""

    after: Annotated[int, msgspec.Meta(ge=-1_000, le=_SEQUENCE_LIMIT)] = 0
    limit: Limit = 100


class ReadPairs(msgspec.Struct, frozen=True, kw_only=True):
    """A key of an applet, or without one its keys that start with `prefix`.

    `encoding` is that of keys and values, in the request and in the answer.
    """

    applet_id: Sfid = msgspec.field(name="appletID")
    key: str = ""
    prefix: str = ""
    encoding: Encoding = "text"
    limit: Limit = 100


async def read_log(call: Call[None, ReadLog]) -> Json:
    """A part of the applet log; `next` is the `after` of the following request."""
    store = call.context.store_reader(own_project(call).project_id)
    rows = store.logs(call.query.after, call.query.limit) if store else ()
    following = rows[-1].sequence if rows else max(call.query.after, 0)
    return {"data": [_row_json(row) for row in rows], "next": str(following)}


async def read_metrics(call: Call[None, ReadLog]) -> Json:
    """A part of what applets submitted as metrics; paged as the applet log is."""
    store = call.context.store_reader(own_project(call).project_id)
    rows = store.metrics(call.query.after, call.query.limit) if store else ()
    following = rows[-1].sequence if rows else max(call.query.after, 0)
    return {"data": [_metric_json(row) for row in rows], "next": str(following)}


async def read_pairs(call: Call[None, ReadPairs]) -> Json:
    """The value of a key, or the keys an applet has."""
    query = call.query
    project = own_project(call)
    applet = own_applet_in(call, project, query.applet_id)
    store = call.context.store_reader(project.project_id)
    head: Json = {"appletID": str(applet.applet_id), "encoding": query.encoding}
    if not query.key:
        prefix = _decode(query.prefix, query.encoding, "prefix")
        keys = store.kv_keys(kv.owner(applet), prefix, query.limit) if store else []
        return {**head, "data": [_encode(key, query.encoding) for key in keys]}
    key = _decode(query.key, query.encoding, "key")
    value = store.kv_get(kv.owner(applet), key) if store else None
    if value is None:
        raise NotFoundError(what=f"applet {applet.applet_id} has no key {query.key}")
    return {**head, "key": query.key, "value": _encode(value, query.encoding)}


def _row_json(numbered: NumberedRow) -> Json:
    return {"sequence": str(numbered.sequence), **log_row_json(numbered.row)}


def _metric_json(numbered: Numbered[MetricRow]) -> Json:
    row = numbered.row
    return {
        "sequence": str(numbered.sequence),
        "time": rfc3339(row.time_ms),
        "appletName": row.applet_name,
        "instanceID": str(row.instance_id),
        "eventID": row.event_id,
        "value": msgspec.Raw(row.value.encode()),
    }


def _decode(text: str, encoding: Encoding, field: str) -> bytes:
    if encoding == "text":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError(FieldError(field, f"not base64: {error}", "query")) from None


def _encode(data: bytes, encoding: Encoding) -> str:
    if encoding == "base64":
        return base64.b64encode(data).decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        reason = "what is stored is not UTF-8 text; ask with encoding=base64"
        raise BadRequestError(FieldError("encoding", reason, "query")) from None


ROUTES: tuple[Route[Any, Any], ...] = (
    Route(
        "GET", "/applet_log/{projectName}", "ListAppletLog", Auth.ACCOUNT, read_log, query=ReadLog
    ),
    Route(
        "GET",
        "/applet_metrics/{projectName}",
        "ListAppletMetrics",
        Auth.ACCOUNT,
        read_metrics,
        query=ReadLog,
    ),
    Route("GET", "/kv/{projectName}", "GetKeyValue", Auth.ACCOUNT, read_pairs, query=ReadPairs),
)
