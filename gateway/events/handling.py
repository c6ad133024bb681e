"""The path of an event through a gateway: decode, admit, submit to the project, answer."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from fieldbrook.actors.wire import HandlerResult, item_key
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    BadRequestError,
    MalformedMessageError,
    NodeError,
    PayloadTooLargeError,
    StrategyNotFoundError,
)
from fieldbrook.gateway.events.admission import Admission
from fieldbrook.gateway.events.data_push import DataPush
from fieldbrook.gateway.events.message import (
    BOTH_OR_NONE,
    NONE_NEEDED,
    DataMessage,
    decode_message,
    is_single,
    message_token,
    split_batch,
)
from fieldbrook.gateway.events.raw import HandlerNames, RawEvents
from fieldbrook.gateway.events.refusals import Refusals, Refuser
from fieldbrook.gateway.events.request import (
    NO_META,
    NO_NAME,
    DeliveryName,
    Identity,
    Meta,
    identify,
    is_message,
    read_key,
)
from fieldbrook.gateway.links.pending_event import (
    BlockedPublishers,
    Outcome,
    Settle,
    StoredResults,
)
from fieldbrook.gateway.links.project_clients import ProjectClients
from fieldbrook.gateway.replies import Answer, EventReply, to_json
from fieldbrook.observability import metrics
from fieldbrook.storage.registry.service import RegistryClient, RegistryReader

_REPLIES_CACHED = 4_096
_CACHED_REPLY_BYTES = 1_024  # larger answers contain many reasons of failures, and rarely repeat
_TOO_MANY_REQUESTS = 429
_BATCH_SLICE_S = 0.004
_ITEMS_AT_ONCE = 8  # messages of a batch between two checks of the time

Rest = Callable[[], bool]
"""Submits more of a long batch in a later iteration; returns whether nothing is left."""


class Login(NamedTuple):
    """The publisher that logged in on a connection, and its token; messages may leave out both."""

    pub_id: str
    token: str


class EventIds:
    """Generates ids for events without one: unique in the node, ordered within a gateway.

    Args:
        host: the name of this host in a cluster, because processes on two hosts may have the same
            id and start at the same time. Even with the longest name, an id is shorter than
            `EVENT_ID_LIMIT`.
    """

    def __init__(self, host: str = "") -> None:
        where = f"{host}-" if host else ""
        self._prefix = f"{time.time_ns() // 1000:x}-{where}{os.getpid():x}-"
        self._numbers = itertools.count(1)

    def __call__(self) -> str:
        """The next id."""
        return f"{self._prefix}{next(self._numbers):x}"


class EventService:
    """Accepts events in every form and answers each exactly once.

    Transports that already know that an event has the raw form pass it to `raw`.
    """

    def __init__(
        self,
        reader: RegistryReader,
        registry: RegistryClient,
        token_key: bytes,
        projects: ProjectClients,
        version: str,
        body_limit_bytes: int,
        refusals: Refusals | None = None,
        source: int = 0,
        host: str = "",
    ) -> None:
        """Create the service.

        `registry` creates publishers for devices that send for the first time. `source` is the way
        by which events reach this gateway (`wire.BY_MQTT`, or 0 for HTTP). `host` is the name of
        this host in its cluster.
        """
        self._source = source
        self._admission = Admission(reader, token_key)
        self._clients = projects
        self._limit = body_limit_bytes
        self._new_id = EventIds(host)
        self.refuser = Refuser(version, self._new_id, refusals)
        self._replies: dict[tuple[HandlerResult, ...], bytes] = {}
        names = HandlerNames(reader)
        self.data_push = DataPush(
            self._admission, projects, names, registry, self.refuser, self._new_id, source
        )
        self.raw = RawEvents(
            self._admission,
            projects,
            names,
            self.data_push.submit,
            self.refuser,
            body_limit_bytes,
            source,
        )

    def accept(
        self, project_name: str, body: bytes, answer: Answer, meta: Meta = NO_META
    ) -> Rest | None:
        """Accept the body of an HTTP request: a message, a batch of messages, or raw bytes.

        `answer` is called once. Never raises, like `submit`.

        Returns:
            None, or for a long batch a function that submits the rest. The caller calls it in later
            iterations of the loop, and before later events of the same connection, until it returns
            True.
        """
        key = ""
        if meta is not NO_META:
            try:
                key = read_key(meta.key)
            except BadRequestError as error:
                metrics.add(metrics.EVENTS_RECEIVED)
                answer(self.refuser.refuse(error, "", project_name, body=body))
                return None
            if self._is_raw(body, meta):
                self.raw.submit(project_name, body, answer, meta, key=key)
                return None
        if not is_single(body) and len(body) <= self._limit:
            try:
                messages = split_batch(body)
            except NodeError as error:
                metrics.add(metrics.EVENTS_RECEIVED)
                answer(self.refuser.refuse(error, "", project_name, body=body))
                return None
            if messages is not None:
                return self._accept_batch(project_name, messages, answer, key)
            if self._admission.is_public(project_name) and not is_message(body):
                self.raw.submit(project_name, body, answer, meta, key=key)
                return None
        self.submit(project_name, body, answer, key=key)
        return None

    def _is_raw(self, body: bytes, meta: Meta) -> bool:
        """Return whether a body has the raw form.

        A data message with its own token is not raw, even if the request has a token, too: early
        clients send both. A body without its own token is raw if the request has a token, whatever
        the body contains. Source: interface document, 3.6.
        """
        if meta.event_type is not None:
            return True
        if not meta.token:
            return False
        if body.startswith(b'{"header"'):
            return not message_token(body)
        return not is_message(body, signed=True)

    def submit(
        self,
        project_name: str,
        body: bytes,
        answer: Answer,
        *,
        resend: bool = False,
        delivery: DeliveryName = NO_NAME,
        key: str = "",
        login: Login | None = None,
    ) -> None:
        """Accept one event; `answer` is called once, now or after its effects are on disk.

        `delivery` is the name of an MQTT delivery. `key` is the `Idempotency-Key`. `resend` is set
        if the sender sends the event again after a temporary error. `login` supplies the publisher
        and the token if the message leaves them out.

        Never raises: errors of the event are in its answer (interface document, 3.1).
        """
        event_id = ""
        message: DataMessage | None = None
        if not resend:  # MQTT messages are counted on arrival
            metrics.here.row[metrics.EVENTS_RECEIVED] += 1
        try:
            if len(body) > self._limit:
                raise PayloadTooLargeError(size=len(body), limit_bytes=self._limit)
            try:
                message = decode_message(body)
            except MalformedMessageError:
                message = self._decode_incomplete(project_name, body, login)
                if message is None:
                    raise
            header = message.header
            if header.event_id or key or delivery[0]:
                identity = identify(header.event_id, header.pub_time, delivery, key, self._new_id)
            else:  # the result of `identify`, without the cost of the call
                identity = self._new_id(), *delivery
            event_id = identity[0]
            decoded = message

            def settle(outcome: Outcome) -> None:
                if isinstance(outcome, NodeError):
                    answer(self._refuse_message(outcome, event_id, project_name, decoded, resend))
                else:
                    answer(self._reply(outcome, event_id, decoded.event_type))

            self._submit_message(project_name, message, identity, settle, resend=resend)
        except NodeError as error:
            if message is None:
                answer(self.refuser.refuse(error, event_id, project_name, body=body))
            else:
                answer(self._refuse_message(error, event_id, project_name, message, resend))

    def _refuse_message(
        self, error: NodeError, event_id: str, channel: str, message: DataMessage, resend: bool
    ) -> EventReply:
        return self.refuser.refuse(
            error,
            event_id,
            channel,
            publisher=message.header.pub_id,
            event_type=message.event_type,
            body=message.payload,
            resend=resend,
        )

    def _decode_incomplete(
        self, project_name: str, body: bytes, login: Login | None
    ) -> DataMessage | None:
        """Decode again a message that may lack `pub_id` and `token`; None if it may not.

        The error is not passed to this method: an error that is raised again from a variable refers
        to its traceback, which refers to the variable. Such a cycle would keep the body in memory
        for some time.
        """
        if login is None:
            return self._decode_anonymous(project_name, body)
        message = decode_message(body, credentials=NONE_NEEDED)
        header = message.header
        if not header.token:
            header.pub_id, header.token = header.pub_id or login.pub_id, login.token
        elif not header.pub_id:
            return None
        return message

    def _decode_anonymous(self, project_name: str, body: bytes | msgspec.Raw) -> DataMessage | None:
        """Decode again for public projects, whose messages may lack `pub_id` and `token`."""
        if self._admission.is_public(project_name):
            return decode_message(body, credentials=BOTH_OR_NONE)
        return None

    def _submit_message(
        self,
        project_name: str,
        message: DataMessage,
        identity: Identity,
        settle: Settle,
        *,
        resend: bool = False,
        blocked: BlockedPublishers | None = None,
    ) -> None:
        header = message.header
        event_id, name, kind = identity
        event_type = message.event_type
        project_id, publisher_id = self._admission.admit(project_name, header.pub_id, header.token)
        self._admission.allow(publisher_id, event_type)
        self._clients[project_id].submit(
            (
                event_type,
                publisher_id,
                event_id,
                message.payload,
                clock.now_ms(),
                kind | self._source,
                name,
            ),
            settle,
            resend=resend,
            blocked=blocked,
        )

    def _accept_batch(
        self, project_name: str, messages: list[msgspec.Raw], answer: Answer, key: str
    ) -> Rest | None:
        batch_id = self._new_id()
        try:
            self._admission.refresh()
            self._admission.project(project_name)
        except NodeError as error:
            metrics.add(metrics.EVENTS_RECEIVED)
            answer(self.refuser.refuse(error, batch_id, project_name))
            return None

        def done(body: bytes, refused: NodeError | None, replayed: bool) -> None:
            if refused is None:
                answer(EventReply(201, body, batch_id, replayed=replayed))
            else:
                answer(self.refuser.reply(refused, batch_id))

        metrics.add(metrics.EVENTS_RECEIVED, len(messages))
        batch = _Batch(project_name, len(messages), done)
        blocked: BlockedPublishers = set()
        items = iter(enumerate(messages))

        def submit_more() -> bool:
            # A refusal takes a tenth of a millisecond, so the refusals of a whole batch would take
            # a second.
            ends_at = time.perf_counter() + _BATCH_SLICE_S
            for index, raw in items:
                self._submit_item(batch, index, raw, project_name, key, blocked)
                if not index % _ITEMS_AT_ONCE and time.perf_counter() >= ends_at:
                    return False
            return True

        return None if submit_more() else submit_more

    def _submit_item(
        self,
        batch: _Batch,
        index: int,
        raw: msgspec.Raw,
        project_name: str,
        key: str,
        blocked: BlockedPublishers,
    ) -> None:
        message: DataMessage | None = None
        event_id = ""
        try:
            try:
                message = decode_message(raw)
            except MalformedMessageError:
                message = self._decode_anonymous(project_name, raw)
                if message is None:
                    raise
            header = message.header
            item = item_key(key, index) if key else ""
            identity = identify(header.event_id, header.pub_time, NO_NAME, item, self._new_id)
            event_id = identity[0]
            batch.name(index, event_id)
            _, publisher_id = self._admission.admit(project_name, header.pub_id, header.token)
            batch.name_publisher(index, publisher_id, self._admission.name_of(publisher_id))
            settle = partial(self._settle_item, batch, index, project_name, message, event_id)
            self._submit_message(project_name, message, identity, settle, blocked=blocked)
        except NodeError as error:
            if message is None:
                event_id = self._new_id()
                batch.name(index, event_id)
                self.refuser.record(error, event_id, project_name, body=bytes(raw))
                batch.settle(index, error)
            else:
                self._settle_item(batch, index, project_name, message, event_id, error)

    def _settle_item(
        self,
        batch: _Batch,
        index: int,
        channel: str,
        message: DataMessage,
        event_id: str,
        outcome: Outcome,
    ) -> None:
        if isinstance(outcome, NodeError):
            self._refuse_message(outcome, event_id, channel, message, resend=False)
        batch.settle(index, outcome)

    def refuse_unread(self, error: NodeError, channel: str) -> EventReply:
        """Refuse an event whose body was not read completely; see `Refuser.refuse`."""
        metrics.add(metrics.EVENTS_RECEIVED)
        return self.refuser.refuse(error, "", channel)

    def _reply(
        self, outcome: tuple[HandlerResult, ...], event_id: str, event_type: str
    ) -> EventReply:
        if not outcome:
            error = StrategyNotFoundError(what=f"no strategy for event type {event_type}")
            return self.refuser.reply(error, event_id)
        body = self._replies.get(outcome)
        if body is None:
            body = to_json({"results": [_result(result) for result in outcome]})
            if len(body) <= _CACHED_REPLY_BYTES:
                if len(self._replies) >= _REPLIES_CACHED:
                    self._replies.clear()
                self._replies[outcome] = body
        repeats = len(body) <= _CACHED_REPLY_BYTES
        return EventReply(201, body, event_id, None, repeats, "", type(outcome) is StoredResults)


class _Batch:
    """Collects the answers of a batch, one per message in order, and sends them together.

    An error of a message is in the answer of that message. A batch is refused as a whole (429)
    when a limit refused every message, so that its sender waits. `done` receives the body, the
    429 error or None, and whether every result was stored by an earlier run.

    Source: interface document, 3.1.
    """

    def __init__(
        self, project_name: str, size: int, done: Callable[[bytes, NodeError | None, bool], None]
    ) -> None:
        self._answers: list[dict[str, Any]] = [
            {"projectName": project_name, "eventID": "", "wasmResults": None} for _ in range(size)
        ]
        self._left = size
        self._done = done
        self._limit_error: NodeError | None = None
        self._any_accepted = False
        self._replayed = True
        if not size:
            done(to_json([]), None, False)

    def name(self, index: int, event_id: str) -> None:
        """Set the event id of an answer."""
        self._answers[index]["eventID"] = event_id

    def name_publisher(self, index: int, publisher_id: int, name: str) -> None:
        """Set the publisher of an admitted message: its id, and its name if it has one."""
        self._answers[index]["pubID"] = str(publisher_id)
        if name:
            self._answers[index]["pubName"] = name

    def settle(self, index: int, outcome: Outcome) -> None:
        """Record the outcome of one message; the last one calls `done`."""
        answer = self._answers[index]
        if type(outcome) is StoredResults:
            answer["replayed"] = True
        else:
            self._replayed = False
        if isinstance(outcome, NodeError) and outcome.status == _TOO_MANY_REQUESTS:
            self._limit_error = outcome
        else:
            self._any_accepted = True
        if isinstance(outcome, NodeError):
            answer["errMsg"] = outcome.text()
        elif outcome:
            answer["wasmResults"] = [_result(result) for result in outcome]
        else:
            answer["errMsg"] = StrategyNotFoundError(what="not found strategy").text()
        self._left -= 1
        if not self._left:
            refused = None if self._any_accepted else self._limit_error
            self._done(to_json(self._answers), refused, self._replayed)


def _result(result: HandlerResult) -> dict[str, Any]:
    instance_id, code, error = result
    return {"instanceID": str(instance_id), "code": code, "errMsg": error}
