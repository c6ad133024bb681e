"""Dry runs: run a handler of an applet over one event; nothing is kept and nothing is sent."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec

from fieldbrook.actors.dry_run.trial import Report, SentEffect, SqlStatement, Trial, Write
from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    NotFoundError,
    UnavailableError,
    UploadFileFailedError,
)
from fieldbrook.core.model import (
    DEFAULT_EVENT_TYPE,
    EVENT_TYPE_LIMIT,
    PROJECT_DATABASE,
    Applet,
    Resource,
)
from fieldbrook.gateway.management.framework.binding import Text
from fieldbrook.gateway.management.framework.ownership import own_applet
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.framework.temporary_files import new_path
from fieldbrook.gateway.management.routes.data.encoding import Bytes, decode, shown_bytes
from fieldbrook.storage.project import kv
from fieldbrook.system.confined import ConfinedError
from fieldbrook.wasm.module import abi

EventType = Annotated[str, msgspec.Meta(max_length=EVENT_TYPE_LIMIT)]
_HANDLERS_SHOWN = 20


class DryRunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A handler and the event to run it over; `payload` is base64.

    `version` is a stored version of the applet, by default its present one. Without `withState` the
    handler finds no keys and no rows.
    """

    handler: Text
    event_type: EventType = msgspec.field(name="eventType", default=DEFAULT_EVENT_TYPE)
    payload: str = ""
    version: int | None = None
    with_state: bool = msgspec.field(name="withState", default=True)


class DryRunLog(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the applet log."""

    level: str
    source: str
    text: str


class DryRunWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A key that would be written; `before` is null for a new one."""

    key: Bytes
    before: Bytes | None
    after: Bytes


class DryRunStatement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A SQL statement as the handler sent it, with its rows or the error."""

    request: Bytes
    result: Bytes
    error: str
    elapsed_us: int


class DryRunEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that a commit would send (`mqtt`, `api`, `transaction`) or store (`metric`).

    `target` is the topic, the event type of the answer, or the chain.
    """

    kind: str
    target: str
    body: Bytes


class DryRunReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The run of the handler. `error` is empty if it returned `code`.

    `elapsedUs` includes the making of the instance; `memoryBytes` is the linear memory of the
    handler after the run. `notes` say how the run differed from one on the node.
    """

    code: int
    error: str
    logs: list[DryRunLog]
    writes: list[DryRunWrite]
    statements: list[DryRunStatement]
    effects: list[DryRunEffect]
    elapsed_us: int
    memory_bytes: int
    notes: list[str]


async def dry_run(call: Call[DryRunEvent, None]) -> DryRunReport:
    """Run a handler over one event in a process of its own. The handler sees the project's keys and
    a copy of its SQL tables; nothing that it does is kept or sent."""
    applet, body, context = own_applet(call), call.body, call.context
    sha256, resource = _module(call, applet, body.version)
    if not resource.exports(body.handler):
        names = ", ".join(resource.handlers[:_HANDLERS_SHOWN])
        reason = f"the module exports no handler {body.handler}; it exports {names}"
        raise BadRequestError(FieldError("handler", reason, "body"))
    database = context.reader.config(applet.project_id, PROJECT_DATABASE)
    trial = Trial(
        project_id=applet.project_id,
        owner=kv.owner(applet),
        sha256=sha256,
        handler=body.handler,
        event_type=body.event_type,
        payload=decode(body.payload, "base64", "payload", "body"),
        env=context.reader.environment(applet.project_id),
        database=database.value if database else None,
        with_state=body.with_state,
    )
    if body.with_state:
        await context.flush_project(applet.project_id)
    return _reply(await _run(call, trial))


async def _run(call: Call[Any, Any], trial: Trial) -> Report:
    """Run a trial in the pool of dry runs.

    Raises:
        BadRequestError: the run exceeded a limit of its process.
        TooManyRequestsError: too many dry runs wait, in total or of this account.
    """
    runner = call.context.dry_runner
    if runner is None:
        raise UnavailableError(what="this gateway cannot run dry runs")
    scratch = new_path(call.context.uploads_dir, call.context.part, ".dry-run")
    work = partial(runner.run, trial, scratch)
    try:
        return await call.workers.dry_runs.run(call.account.account_id, work)
    except ConfinedError as error:
        raise BadRequestError(FieldError("handler", f"the run ended: {error}", "body")) from None
    except OSError as error:
        raise UploadFileFailedError(reason=str(error.strerror)) from error


def _module(call: Call[Any, Any], applet: Applet, number: int | None) -> tuple[str, Resource]:
    """Return the digest and the resource of an applet's module: of the present version, or of a
    stored one.

    Raises:
        NotFoundError: the applet has no such version.
    """
    with call.context.reader.snapshot() as registry:
        sha256, resource_id = applet.sha256, applet.resource_id
        if number is not None:
            version = registry.applet_version(applet.applet_id, number)
            if version is None:
                raise NotFoundError(what=f"version {number} of applet {applet.name}")
            sha256, resource_id = version.sha256, version.resource_id
        resource = registry.resource(resource_id)
    if resource is None:
        raise NotFoundError(what=f"the module of applet {applet.name}")
    return sha256, resource


def _reply(report: Report) -> DryRunReport:
    return DryRunReport(
        code=report.code,
        error=report.error,
        logs=[
            DryRunLog(level=abi.level_name(level), source=source, text=text)
            for level, source, text in report.logs
        ],
        writes=[_write(write) for write in report.writes],
        statements=[_statement(statement) for statement in report.statements],
        effects=[_effect(effect) for effect in report.effects],
        elapsed_us=report.elapsed_us,
        memory_bytes=report.memory_bytes,
        notes=report.notes,
    )


def _write(write: Write) -> DryRunWrite:
    before = None if write.before is None else shown_bytes(write.before)
    return DryRunWrite(key=shown_bytes(write.key), before=before, after=shown_bytes(write.after))


def _statement(statement: SqlStatement) -> DryRunStatement:
    return DryRunStatement(
        request=shown_bytes(statement.request),
        result=shown_bytes(statement.result),
        error=statement.error,
        elapsed_us=statement.elapsed_us,
    )


def _effect(effect: SentEffect) -> DryRunEffect:
    return DryRunEffect(kind=effect.kind, target=effect.target, body=shown_bytes(effect.body))


ROUTES: tuple[Route, ...] = (Route("POST", "/applet/data/{appletID}/run", "DryRunApplet", dry_run),)
