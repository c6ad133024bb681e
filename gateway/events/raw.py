"""Raw events, the later form of events: the body is the payload, and the metadata is in the query.

A bearer token identifies the sender. The reply names the applet and the handler of each result.

Source: interface document, 3.3 and 3.4.
"""

from __future__ import annotations

import itertools
import uuid
from typing import Any, Protocol

from fieldbrook.actors.project.routing import Routes, build_routes, match
from fieldbrook.actors.wire import HandlerResult
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    InvalidEventChannelError,
    NodeError,
    PayloadTooLargeError,
    StoreError,
)
from fieldbrook.gateway.events.admission import Admission, Admitted
from fieldbrook.gateway.events.refusals import Refuser
from fieldbrook.gateway.events.request import (
    DATA_PUSH,
    NO_NAME,
    DeliveryName,
    Meta,
    check_meta,
    identify,
)
from fieldbrook.gateway.links.pending_event import Outcome, StoredResults
from fieldbrook.gateway.links.project_clients import ProjectClients
from fieldbrook.gateway.replies import Answer, EventReply, to_json
from fieldbrook.observability import metrics
from fieldbrook.storage.registry.service import RegistryReader

_NOBODY = Admitted(0, 0, "")

Json = dict[str, Any]


class Push(Protocol):
    """The signature of `data_push.DataPush.submit`."""

    def __call__(
        self, channel: str, body: bytes, answer: Answer, meta: Meta, *, resend: bool, key: str
    ) -> None:
        """Accept one data push."""


class RawIds:
    """Generates ids for raw events without one, in the form `<UUID>_w3b`.

    The UUID's last twelve digits are a counter; the other digits are random per gateway.
    """

    def __init__(self) -> None:
        self._prefix = str(uuid.uuid4())[:24]
        self._numbers = itertools.count(1)

    def __call__(self) -> str:
        """The next id."""
        return f"{self._prefix}{next(self._numbers):012x}_w3b"


class RawEvents:
    """Accepts raw events; like `EventService.submit`, it never raises."""

    def __init__(
        self,
        admission: Admission,
        projects: ProjectClients,
        names: HandlerNames,
        push: Push,
        refuser: Refuser,
        body_limit_bytes: int,
        source: int,
    ) -> None:
        """Create the service; `source` has the same meaning as for `EventService`."""
        self._source = source
        self._admission = admission
        self._clients = projects
        self._names = names
        self._push = push
        self._refuser = refuser
        self._new_id = RawIds()
        self._limit = body_limit_bytes

    def submit(
        self,
        channel: str,
        body: bytes,
        answer: Answer,
        meta: Meta,
        *,
        resend: bool = False,
        delivery: DeliveryName = NO_NAME,
        key: str = "",
    ) -> None:
        """Accept one event, or a data push; `answer` is called once, now or after the commit.

        `delivery` is the broker's name for the message and replaces a missing event id. `key` is
        the `Idempotency-Key`.
        """
        event_id, event_type, publisher = "", meta.matched_type, _NOBODY

        def settle(outcome: Outcome) -> None:
            if isinstance(outcome, NodeError):
                about = {"publisher": publisher.publisher_key, "event_type": event_type}
                answer(
                    self._refuser.refuse(
                        outcome, event_id, channel, body=body, resend=resend, **about
                    )
                )
            else:
                answer(self._reply(channel, publisher, event_id, event_type, outcome))

        if not resend:  # MQTT messages are counted on arrival
            metrics.here.row[metrics.EVENTS_RECEIVED] += 1
        try:
            if len(body) > self._limit:
                raise PayloadTooLargeError(size=len(body), limit_bytes=self._limit)
            if meta.event_type == DATA_PUSH:
                self._push(channel, body, answer, meta, resend=resend, key=key)
                return
            publisher = self._admission.admit_by_token(channel, meta.token)
            sent_id, sent_time = check_meta(meta), meta.timestamp
            event_id, name, kind = identify(sent_id, sent_time, delivery, key, self._new_id)
            self._admission.allow(publisher.publisher_id, event_type)
            kind |= self._source
            self._clients[publisher.project_id].submit(
                (event_type, publisher.publisher_id, event_id, body, clock.now_ms(), kind, name),
                settle,
                resend=resend,
            )
        except InvalidEventChannelError as error:
            answer(self._wrong_channel(channel, meta, error, body))
        except NodeError as error:
            settle(error)

    def _reply(
        self,
        channel: str,
        admitted: Admitted,
        event_id: str,
        event_type: str,
        outcome: tuple[HandlerResult, ...],
    ) -> EventReply:
        body = {
            "channel": channel,
            "publisherID": str(admitted.publisher_id),
            "publisherKey": admitted.publisher_key,
            "eventID": event_id,
            "timestamp": clock.now_ms(),
            "results": self._names.results(admitted.project_id, event_type, outcome),
        }
        return EventReply(
            201,
            to_json(body),
            event_id,
            publisher_key=admitted.publisher_key,
            replayed=type(outcome) is StoredResults,
            publisher_id=admitted.publisher_id,
            project_id=admitted.project_id,
        )

    def _wrong_channel(
        self, channel: str, meta: Meta, error: InvalidEventChannelError, payload: bytes
    ) -> EventReply:
        """Answer 201 with the error in the body, as upstream does: the token itself is valid."""
        event_id = meta.event_id[:128].lower() or self._new_id()
        publisher = str(error.details["pub_id"])
        event_type = meta.matched_type
        self._refuser.refuse(
            error, event_id, channel, publisher=publisher, event_type=event_type, body=payload
        )
        body = {
            "channel": channel,
            "publisherID": str(error.details["publisher_id"]),
            "publisherKey": error.details["pub_id"],
            "eventID": event_id,
            "timestamp": 0,
            "results": None,
            "error": error.key,
        }
        return EventReply(
            201,
            to_json(body),
            event_id,
            error,
            publisher_key=str(error.details["pub_id"]),
            publisher_id=int(error.details["publisher_id"]),
        )


class HandlerNames:
    """Names of applets and handlers, cached until the registry's change counter increases."""

    def __init__(self, reader: RegistryReader) -> None:
        self._reader = reader
        self._version = -1
        self._routes: dict[int, Routes] = {}

    def results(
        self, project_id: int, event_type: str, outcome: tuple[HandlerResult, ...]
    ) -> list[Json] | None:
        """Return the results of an event as JSON; None when no strategy matched."""
        if not outcome:
            return None
        try:
            names = self._lookup(project_id, event_type, outcome)
        except StoreError:  # the event is committed, so it is answered without names
            names = [("", "")] * len(outcome)
        return [_result_json(name, result) for name, result in zip(names, outcome, strict=True)]

    def _lookup(
        self, project_id: int, event_type: str, results: tuple[HandlerResult, ...]
    ) -> list[tuple[str, str]]:
        """Return the names of the applet and of the handler for each result of an event.

        The project runs the matching strategies in order, and its results have the same order.
        If a strategy changed between the run and this call, uncertain names are "".

        Raises:
            StoreError: the registry cannot be read.
        """
        version = self._reader.version()
        if version != self._version:
            self._routes.clear()
            self._version = version
        routes = self._routes.get(project_id)
        if routes is None:
            with self._reader.snapshot() as registry:
                routes = build_routes(registry.strategies(project_id), registry.applets(project_id))
            self._routes[project_id] = routes
        targets = match(routes, event_type)
        if [target.instance_id for target in targets] == [result[0] for result in results]:
            return [(target.applet_name, target.handler) for target in targets]
        names = {t.instance_id: t.applet_name for many in routes.values() for t in many}
        return [(names.get(result[0], ""), "") for result in results]


def _result_json(name: tuple[str, str], outcome: HandlerResult) -> Json:
    applet, handler = name
    instance_id, code, error = outcome
    result: Json = {
        "appletName": applet,
        "instanceID": str(instance_id),
        "handler": handler,
        "returnValue": None,
        "code": code,
    }
    return result | {"error": error} if error else result


def failure_json(error: NodeError) -> Json:
    """Return the result of an event that failed."""
    return _result_json(("", ""), (0, -1, error.text()))
