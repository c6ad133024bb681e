"""Data push: one request of a project's owner with events of many devices.

Source: interface document, 3.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from fieldbrook.actors.wire import KEYED, item_key, keyed
from fieldbrook.core import clock
from fieldbrook.core.bounded_json import from_json
from fieldbrook.core.errors import BadRequestError, FieldError, NodeError
from fieldbrook.core.model import DEFAULT_EVENT_TYPE, EVENT_TYPE_LIMIT, Project, Publisher
from fieldbrook.gateway.access_key_usage import AccessKeyUsage
from fieldbrook.gateway.events.admission import Admission, require_type
from fieldbrook.gateway.events.message import MISSING, NOT_JSON, lower_keys, trimmed
from fieldbrook.gateway.events.raw import HandlerNames, Json, failure_json
from fieldbrook.gateway.events.refusals import Refuser
from fieldbrook.gateway.events.request import DATA_PUSH, Meta, check_meta
from fieldbrook.gateway.links.pending_event import BlockedPublishers, Outcome, StoredResults
from fieldbrook.gateway.links.project_clients import ProjectClients
from fieldbrook.gateway.replies import Answer, EventReply, to_json
from fieldbrook.observability import metrics
from fieldbrook.storage.registry.service import RegistryClient

PUSH_ITEMS_LIMIT = 4_096


class DataPush:
    """Accepts data pushes; creates publishers for devices that send for the first time."""

    def __init__(
        self,
        admission: Admission,
        projects: ProjectClients,
        names: HandlerNames,
        registry: RegistryClient,
        refuser: Refuser,
        new_id: Callable[[], str],
        source: int,
    ) -> None:
        """Create the service; `source` has the same meaning as for `EventService`."""
        self._admission = admission
        self._clients = projects
        self._names = names
        self._registry = registry
        self._refuser = refuser
        self._new_id = new_id
        self._source = source
        self._access_key_usage = AccessKeyUsage(registry)
        self.tasks: set[asyncio.Task[None]] = set()

    def submit(
        self, channel: str, body: bytes, answer: Answer, meta: Meta, *, resend: bool, key: str
    ) -> None:
        """Accept one request; `answer` is called once.

        `key` is the `Idempotency-Key`. Never raises: errors are in the answer.
        """
        event_id = self._new_id()
        try:
            project, access_key = self._admission.admit_owner(channel, meta.token)
            self._access_key_usage.record(access_key, clock.now_ms())
            check_meta(meta)
            push = _Push(project, read_items(body), answer, event_id, resend, key)
        except NodeError as error:
            answer(
                self._refuser.refuse(
                    error, event_id, channel, event_type=DATA_PUSH, body=body, resend=resend
                )
            )
            return
        task = asyncio.get_running_loop().create_task(self._run(push, len(body)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _run(self, push: _Push, size: int) -> None:
        project = push.project
        try:
            publishers = await self._publishers(project, push.items)
            client = self._clients[project.project_id]
            # All events or none, because clients send a refused request again as a whole.
            client.require_space_to_push(len(push.items), size)
        except NodeError as error:
            push.answer(
                self._refuser.refuse(
                    error, push.event_id, project.name, event_type=DATA_PUSH, resend=push.resend
                )
            )
            return
        metrics.add(metrics.EVENTS_RECEIVED, max(0, len(push.items) - 1))  # one is counted
        blocked: BlockedPublishers = set()
        for at, item in enumerate(push.items):
            if isinstance(item, NodeError):
                metrics.refused(item.key)
                push.settle(at, [failure_json(item)])
                continue
            publisher = publishers[item.device_id]
            event = (
                item.event_type,
                publisher.publisher_id,
                f"{push.event_id}.{at}",
                item.payload.encode(),
                clock.now_ms(),
                self._source | KEYED if push.key else self._source,
                keyed(item_key(push.key, at), "") if push.key else "",
            )
            settle = partial(self._settle_item, push, at, item, event[2])
            try:
                require_type(publisher, item.event_type)
                client.submit(event, settle, resend=push.resend, pushed=True, blocked=blocked)
            except NodeError as error:
                settle(error)
        if not push.items:
            push.finish()

    def _settle_item(
        self, push: _Push, at: int, item: PushItem, event_id: str, outcome: Outcome
    ) -> None:
        project = push.project
        if isinstance(outcome, NodeError):
            self._refuser.refuse(
                outcome,
                event_id,
                project.name,
                publisher=item.device_id,
                event_type=item.event_type,
                body=item.payload.encode(),
            )
            push.settle(at, [failure_json(outcome)])
        else:
            results = self._names.results(project.project_id, item.event_type, outcome)
            push.settle(at, results, replayed=type(outcome) is StoredResults)

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


class _Push:
    """One data push: collects the answers of its items and sends them after the last one."""

    def __init__(
        self,
        project: Project,
        items: list[Item],
        answer: Answer,
        event_id: str,
        resend: bool,
        key: str,
    ) -> None:
        self.project = project
        self.items = items
        self.answer = answer
        self.event_id = event_id
        self.resend = resend
        self.key = key
        self._answers: list[Json] = [{"index": at, "results": None} for at in range(len(items))]
        self._left = len(items)
        self._replayed = bool(items)

    def settle(self, at: int, results: list[Json] | None, *, replayed: bool = False) -> None:
        """Record the results of one item; the last one sends the answer."""
        self._answers[at]["results"] = results
        if replayed:
            self._answers[at]["replayed"] = True
        else:
            self._replayed = False
        self._left -= 1
        if not self._left:
            self.finish()

    def finish(self) -> None:
        """Send the answer, which tells whether all results are stored ones."""
        body = to_json(self._answers)
        self.answer(EventReply(201, body, self.event_id, replayed=self._replayed))


class PushItem(msgspec.Struct, forbid_unknown_fields=True):
    """One event of a device in a data push; `payload` is used verbatim.

    An item with other keys is read by `_read_leniently`, because keys may be in another case.
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
