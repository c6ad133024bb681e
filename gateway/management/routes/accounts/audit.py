"""Reading the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.gateway.management.framework.binding import RowLimit, Sfid, Timestamp, json_key
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.storage.registry.audit import AuditRow

_NUMBER_LIMIT = (1 << 63) - 1


class ReadAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The newest rows with numbers below `before`, and filters; `path` is a part of the path."""

    before: Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_LIMIT)] = 0
    limit: RowLimit = 100
    account: str = ""
    account_id: Sfid | None = msgspec.field(name="accountID", default=None)
    operation: str = ""
    path: str = ""
    begin: Timestamp | None = None
    end: Timestamp | None = None
    outcome: Literal["DONE", "REFUSED"] | None = None


class AuditRowReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A row of the audit log. `accessKey` names the key that authenticated the request; `from` is
    the client's address; `error` is the key of the answer's error."""

    sequence: str
    time: str
    account_id: str | UnsetType = UNSET
    account: str
    access_key: str | UnsetType = UNSET
    from_: str
    operation: str
    method: str
    path: str
    status: int
    error: str | UnsetType = UNSET


class AuditPage(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """Rows of the audit log, newest first; `next` is the `before` of the following request."""

    data: list[AuditRowReply]
    next: str | UnsetType = UNSET


async def read_audit(call: Call[None, ReadAudit]) -> AuditPage:
    """The audit log, newest rows first; `next` is the `before` of the following request.

    A page may have fewer rows than requested, even none. Only an answer without `next` is the
    last page.
    """
    query = call.query
    found = call.context.reader.audit(query.before, query.limit, lambda row: _fits(row, query))
    return AuditPage(
        data=[_reply(number, row) for number, row in found.rows],
        next=str(found.following) if found.following else UNSET,
    )


def _fits(row: AuditRow, query: ReadAudit) -> bool:
    return (
        query.account in ("", row.account)
        and query.account_id in (None, row.account_id)
        and query.operation.casefold() in ("", row.operation.casefold())
        and query.path in row.path
        and (query.begin is None or row.time_ms >= query.begin.timestamp() * 1000)
        and (query.end is None or row.time_ms <= query.end.timestamp() * 1000)
        and (query.outcome is None or (row.status >= 400) == (query.outcome == "REFUSED"))
    )


def _reply(number: int, row: AuditRow) -> AuditRowReply:
    return AuditRowReply(
        sequence=str(number),
        time=rfc3339(row.time_ms),
        account_id=str(row.account_id) if row.account_id else UNSET,
        account=row.account,
        access_key=row.key or UNSET,
        from_=row.peer,
        operation=row.operation,
        method=row.method,
        path=row.path,
        status=row.status,
        error=row.error or UNSET,
    )


ROUTES: tuple[Route, ...] = (Route("GET", "/audit", "ListAudit", read_audit, auth=Auth.ADMIN),)
