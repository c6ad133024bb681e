"""Raw events, the later form: the body is the payload, the metadata is in the query.

A bearer token identifies the sender.

Source: interface document, 3.3 and 3.4.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from fieldbrook.actors.wire import KEYED, HandlerResult, item_key, keyed
from fieldbrook.core import clock
from fieldbrook.core.bounded_json import from_json
from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    InvalidEventChannelError,
    NodeError,
    PayloadTooLargeError,
    StoreError,
)
from fieldbrook.core.model import DEFAULT_EVENT_TYPE, EVENT_TYPE_LIMIT, Project, Publisher
from fieldbrook.gateway.events.access_key_usage import KeyUse
from fieldbrook.gateway.events.admission import Admission, Admitted, require_type
from fieldbrook.gateway.events.handlers import HandlerNames
from fieldbrook.gateway.events.message import MISSING, NOT_JSON, lower_keys, trimmed
from fieldbrook.gateway.events.project_client import (
    BlockedPublishers,
    Outcome,
    ProjectClients,
    StoredResults,
)
from fieldbrook.gateway.events.request import DATA_PUSH, UNNAMED, Meta, Name, check_meta, identify
from fieldbrook.gateway.replies import Answer, EventReply, to_json
from fieldbrook.observability import metrics
from fieldbrook.storage.registry.service import RegistryClient

PUSH_ITEMS_LIMIT = 4_096

Json = dict[str, Any]


class Refuse(Protocol):
    """The signature of `handling.EventService.refuse`."""

    def __call__(
        self,
        error: NodeError,
        event_id: str,
        channel: str,
        *,
        publisher: str = "",
        event_type: str = "",
        body: bytes = b"",
        resend: bool = False,
    ) -> EventReply:
        """Return the answer."""


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
    """Accepts raw events and data pushes; like `EventService.submit`, it never raises."""

    def __init__(
        self,
        admission: Admission,
        projects: ProjectClients,
        names: HandlerNames,
        registry: RegistryClient,
        refuse: Refuse,
        new_id: Callable[[], str],
        body_limit_bytes: int,
        source: int = 0,
    ) -> None:
        """Create the service.

        `refuse(error, event id, channel, ...)` stores the reason and returns the 8-key answer.
        `source` has the same meaning as for `EventService`.
        """
        self._source = source
        self._admission = admission
        self._clients = projects
        self._names = names
        self._registry = registry
        self._key_use = KeyUse(registry)
        self._refuse = refuse
        self._new_id = new_id
        self._new_raw_id = RawIds()
        self._limit = body_limit_bytes
        self._pushes: set[asyncio.Task[None]] = set()

    def submit(
        self,
        channel: str,
        body: bytes,
        answer: Answer,
        meta: Meta,
        *,
        resend: bool = False,
        delivery: Name = UNNAMED,
        key: str = "",
    ) -> None:
        """Accept one request; `answer` is called once, now or after its effects are on disk.

        `delivery` is the broker's name for the message and replaces a missing event id. `key` is
        the `Idempotency-Key`.
        """
        event_id = ""
        admitted: Admitted | None = None

        def refused(error: NodeError) -> EventReply:
            return self._refuse(
                error,
                event_id,
                channel,
                publisher=admitted.publisher_key if admitted else "",
                event_type=meta.matched_type,
                body=body,
                resend=resend,
            )

        if not resend:  # MQTT messages are counted on arrival
            metrics.here.row[metrics.EVENTS_RECEIVED] += 1
        try:
            if len(body) > self._limit:
                raise PayloadTooLargeError(size=len(body), limit_bytes=self._limit)
            if meta.event_type == DATA_PUSH:
                event_id = self._new_id()
                self._push(channel, body, answer, meta, event_id, resend, key)
                return
            admitted = self._admission.admit_by_token(channel, meta.token)
            sent_id, sent_time = check_meta(meta), meta.timestamp
            event_id, name, kind = identify(sent_id, sent_time, delivery, key, self._new_raw_id)
            event_type = meta.matched_type
            self._admission.allow(admitted.publisher_id, event_type)

            who = admitted

            def settle(outcome: Outcome) -> None:
                if isinstance(outcome, NodeError):
                    answer(refused(outcome))
                else:
                    answer(self._reply(channel, who, event_id, event_type, outcome))

            now = clock.now_ms()
            self._clients[admitted.project_id].submit(
                (event_type, admitted.publisher_id, event_id, body, now, kind | self._source, name),
                settle,
                resend=resend,
            )
        except InvalidEventChannelError as error:
            answer(self._wrong_channel(channel, meta, error, body))
        except NodeError as error:
            answer(refused(error))

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
            "results": self._results(admitted.project_id, event_type, outcome),
        }
        return EventReply(
            201,
            to_json(body),
            event_id,
            publisher_key=admitted.publisher_key,
            replayed=type(outcome) is StoredResults,
        )

    def _wrong_channel(
        self, channel: str, meta: Meta, error: InvalidEventChannelError, payload: bytes
    ) -> EventReply:
        """Answer 201 with the error in the body, as upstream does: the token itself is valid."""
        event_id = meta.event_id[:128].lower() or self._new_raw_id()
        publisher = str(error.details["pub_id"])
        event_type = meta.matched_type
        self._refuse(
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
            201, to_json(body), event_id, error, publisher_key=str(error.details["pub_id"])
        )

    def _results(
        self, project_id: int, event_type: str, outcome: tuple[HandlerResult, ...]
    ) -> list[Json] | None:
        if not outcome:
            return None
        try:
            names = self._names.of(project_id, event_type, outcome)
        except StoreError:  # the event is committed, so it is answered without names
            names = [("", "")] * len(outcome)
        return [_result(name, result) for name, result in zip(names, outcome, strict=True)]

    # ---------------------------------------------------------------- for many devices

    def _push(
        self,
        channel: str,
        body: bytes,
        answer: Answer,
        meta: Meta,
        event_id: str,
        resend: bool,
        key: str,
    ) -> None:
        project, access_key = self._admission.admit_owner(channel, meta.token)
        self._key_use.note(access_key, clock.now_ms())
        check_meta(meta)
        items = read_items(body)
        task = asyncio.get_running_loop().create_task(
            self._push_items(project, items, len(body), answer, event_id, resend, key)
        )
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)

    async def _push_items(
        self,
        project: Project,
        items: list[Item],
        size: int,
        answer: Answer,
        event_id: str,
        resend: bool,
        key: str,
    ) -> None:
        def done(items: list[Json], replayed: bool) -> None:
            answer(EventReply(201, to_json(items), event_id, replayed=replayed))

        try:
            publishers = await self._publishers(project, items)
            client = self._clients[project.project_id]
            # All or nothing: clients send a refused request again as a whole.
            client.require_space_to_push(len(items), size)
        except NodeError as error:
            answer(self._refuse(error, event_id, project.name, event_type=DATA_PUSH, resend=resend))
            return
        metrics.add(metrics.EVENTS_RECEIVED, max(0, len(items) - 1))  # one is counted already
        collected = _Collected(len(items), done)
        blocked: BlockedPublishers = set()
        for at, item in enumerate(items):
            if isinstance(item, NodeError):
                metrics.refused(item.key)
                collected.settle(at, [_failure(item)])
                continue
            publisher = publishers[item.device_id]
            event = (
                item.event_type,
                publisher.publisher_id,
                f"{event_id}.{at}",
                item.payload.encode(),
                clock.now_ms(),
                self._source | KEYED if key else self._source,
                keyed(item_key(key, at), "") if key else "",
            )
            settle = partial(self._pushed, collected, at, project, item, event[2])
            try:
                require_type(publisher, item.event_type)
                client.submit(event, settle, resend=resend, pushed=True, blocked=blocked)
            except NodeError as error:
                settle(error)

    def _pushed(
        self,
        collected: _Collected,
        at: int,
        project: Project,
        item: PushItem,
        event_id: str,
        outcome: Outcome,
    ) -> None:
        if isinstance(outcome, NodeError):
            self._refuse(
                outcome,
                event_id,
                project.name,
                publisher=item.device_id,
                event_type=item.event_type,
                body=item.payload.encode(),
            )
            collected.settle(at, [_failure(outcome)])
        else:
            results = self._results(project.project_id, item.event_type, outcome)
            collected.settle(at, results, replayed=type(outcome) is StoredResults)

    async def _publishers(self, project: Project, items: list[Item]) -> dict[str, Publisher]:
        """Return the publishers of all devices by key; create those of new devices.

        Raises:
            NodeError: new publishers cannot be created now.
        """
        keys = {item.device_id: None for item in items if isinstance(item, PushItem)}
        found = {key: self._admission.publisher(project.project_id, key) for key in keys}
        new = [key for key, publisher in found.items() if publisher is None]
        created: Sequence[Publisher] = ()
        if new:
            created = await self._registry.call(
                "register_publishers", project_id=project.project_id, keys=new
            )
        known = {key: publisher for key, publisher in found.items() if publisher is not None}
        return known | {publisher.key: publisher for publisher in created}


class PushItem(msgspec.Struct, forbid_unknown_fields=True):
    """One event of a device in a data push; `payload` is used verbatim.

    An item with other keys is read by `_read_leniently`, because a key may differ from these only
    in case.
    """

    device_id: str
    event_type: str = DEFAULT_EVENT_TYPE
    payload: str = ""


Item = PushItem | BadRequestError

_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_item = msgspec.json.Decoder(PushItem).decode


def read_items(body: bytes) -> list[Item]:
    """Decode the items of a data push; the result has an error in place of each invalid item.

    Raises:
        BadRequestError: the body is not a JSON array, or has more than `PUSH_ITEMS_LIMIT` items.
    """
    try:
        raw = _decode_items(trimmed(body))
    except NOT_JSON as error:
        raise BadRequestError(
            FieldError("body", f"not a JSON array of events: {error}", "body")
        ) from None
    if len(raw) > PUSH_ITEMS_LIMIT:
        reason = f"{len(raw)} events; the limit of one request is {PUSH_ITEMS_LIMIT}"
        raise BadRequestError(FieldError("body", reason, "body"))
    return [_read_item(at, item) for at, item in enumerate(raw)]


def _read_item(at: int, raw: msgspec.Raw) -> Item:
    try:
        item = _decode_item(raw)
    except NOT_JSON:
        return _read_leniently(at, raw)
    return _completed(at, item)


def _completed(at: int, item: PushItem) -> Item:
    if not item.device_id:
        return BadRequestError(FieldError(f"[{at}].device_id", MISSING, "body"))
    if len(item.event_type) > EVENT_TYPE_LIMIT:
        reason = f"longer than {EVENT_TYPE_LIMIT} characters"
        return BadRequestError(FieldError(f"[{at}].event_type", reason, "body"))
    item.event_type = item.event_type or DEFAULT_EVENT_TYPE
    return item


def _read_leniently(at: int, raw: msgspec.Raw) -> Item:
    """Decode an item that the fast decoder refused.

    Keys in another case and nulls are accepted, as in Go's decoder. Otherwise the error names
    each offending field.
    """
    try:
        value = from_json(raw, msgspec.json.decode)
    except ValueError as error:
        return BadRequestError(FieldError(f"[{at}]", f"not JSON: {error}", "body"))
    if not isinstance(value, dict):
        return BadRequestError(FieldError(f"[{at}]", "not a JSON object", "body"))
    item = lower_keys(value)
    wrong = [
        FieldError(f"[{at}].{name}", "not a string", "body")
        for name in ("device_id", "event_type", "payload")
        if not isinstance(item.get(name, ""), str)
    ]
    if wrong:
        return BadRequestError(*wrong)
    known = {name: item[name] for name in PushItem.__struct_fields__ if name in item}
    return _completed(at, msgspec.convert({"device_id": "", **known}, PushItem))


class _Collected:
    """Collects the answers of a data push.

    After the last answer, `done` receives all of them, and whether all results are stored ones.
    """

    def __init__(self, size: int, done: Callable[[list[Json], bool], None]) -> None:
        self._answers: list[Json] = [{"index": at, "results": None} for at in range(size)]
        self._left = size
        self._replayed = True
        self._done = done
        if not size:
            done([], False)

    def settle(self, at: int, results: list[Json] | None, *, replayed: bool = False) -> None:
        """Record the results of one item; the last one calls `done`."""
        self._answers[at]["results"] = results
        if replayed:
            self._answers[at]["replayed"] = True
        else:
            self._replayed = False
        self._left -= 1
        if not self._left:
            self._done(self._answers, self._replayed)


def _result(name: tuple[str, str], outcome: HandlerResult) -> Json:
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


def _failure(error: NodeError) -> Json:
    return _result(("", ""), (0, -1, error.text()))
