"""An event's way through a gateway: decode, admit, hand over, and the answer back."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

from fieldbrook import clock
from fieldbrook.actors.frames import HandlerResult
from fieldbrook.errors import NodeError, PayloadTooLargeError, StrategyNotFoundError
from fieldbrook.gateway.admission import Admission
from fieldbrook.gateway.link import LinkTable, Outcome
from fieldbrook.gateway.message import decode_message
from fieldbrook.gateway.replies import error_json, to_json

_REMEMBERED_REPLIES = 4_096


class EventReply:
    """The answer to one event, ready for the wire."""

    __slots__ = ("body", "error", "event_id", "status")

    def __init__(
        self, status: int, body: bytes, event_id: str, error: NodeError | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.event_id = event_id
        self.error = error


Answer = Callable[[EventReply], None]


class EventIds:
    """Ids for events that come without one: unique in the node, ordered within a gateway."""

    def __init__(self) -> None:
        self._prefix = f"{time.time_ns() // 1000:x}-{os.getpid():x}-"
        self._numbers = itertools.count(1)

    def __call__(self) -> str:
        """The next id."""
        return f"{self._prefix}{next(self._numbers):x}"


class EventService:
    """Takes events in the single-message form and answers each exactly once."""

    def __init__(
        self, admission: Admission, links: LinkTable, version: str, body_limit_bytes: int
    ) -> None:
        self._admission = admission
        self._links = links
        self._version = version
        self._limit = body_limit_bytes
        self._new_id = EventIds()
        self._replies: dict[tuple[HandlerResult, ...], bytes] = {}

    def submit(
        self, project_name: str, body: bytes, answer: Answer, *, resend: bool = False
    ) -> None:
        """Take one event; `answer` is called once, now or after its effects are on disk.

        Never raises: what is wrong with the event is in its answer (interface document, 3.1).
        """
        event_id = ""
        try:
            if len(body) > self._limit:
                raise PayloadTooLargeError(size=len(body), limit_bytes=self._limit)
            message = decode_message(body)
            header = message.header
            event_id = header.event_id or self._new_id()
            project_id, publisher_id = self._admission.admit(
                project_name, header.pub_id, header.token
            )
            event_type = message.event_type

            def settle(outcome: Outcome) -> None:
                answer(self._reply(outcome, event_id, event_type))

            self._links[project_id].submit(
                (event_type, publisher_id, event_id, message.payload, clock.now_ms()),
                settle,
                resend=resend,
            )
        except NodeError as error:
            answer(self.refusal(error, event_id or self._new_id()))

    def refusal(self, error: NodeError, event_id: str) -> EventReply:
        """The 8-key error as the answer to an event."""
        body = error_json(error, self._version)
        return EventReply(error.status, body, event_id, error)

    def _reply(self, outcome: Outcome, event_id: str, event_type: str) -> EventReply:
        if isinstance(outcome, NodeError):
            return self.refusal(outcome, event_id)
        if not outcome:
            error = StrategyNotFoundError(what=f"no strategy for event type {event_type}")
            return self.refusal(error, event_id)
        body = self._replies.get(outcome)
        if body is None:
            body = to_json({"results": [_result(result) for result in outcome]})
            if len(self._replies) >= _REMEMBERED_REPLIES:
                self._replies.clear()
            self._replies[outcome] = body
        return EventReply(201, body, event_id)


def _result(result: HandlerResult) -> dict[str, Any]:
    instance_id, code, error = result
    return {"instanceID": str(instance_id), "code": code, "errMsg": error}
