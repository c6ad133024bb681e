"""The sending thread: sends the queued events, and decides when to send them again."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from fieldbrook.device.disk_queue import DiskQueue, Queued
from fieldbrook.device.errors import QueueError
from fieldbrook.device.event import Accepted, Event, Later, Outcome, Refused
from fieldbrook.device.transport import Transport

log = logging.getLogger("fieldbrook.device")
_JOIN_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0

Given = TypeVar("Given", Accepted, Refused)
OnAccepted = Callable[[Event, Accepted], object]
OnRefused = Callable[[Event, Refused], object]


def pause_s(failures: int, retry_after_s: float = 0.0, chance: float = 0.0) -> float:
    """Return the time to wait before the next attempt, in seconds.

    Args:
        failures: the number of consecutive failed attempts, from 1 on. Each doubles the pause, up
            to a minute.
        retry_after_s: the time that the node asked for; the pause is at least as long.
        chance: a random number from 0 to 1, which makes the pause up to half shorter, so that
            devices that lost their node at the same time do not reconnect at the same time.
    """
    growing = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(failures - 1, 30)))
    return max(growing * (1 - chance / 2), retry_after_s)


class EventSender:
    """Sends the events of a queue in order, in a thread of its own.

    An event leaves the queue before its callback is called. An exception of a callback is only
    logged.
    """

    def __init__(
        self,
        queue: DiskQueue,
        transport: Transport,
        batch_events: int,
        batch_bytes: int,
        on_accepted: OnAccepted | None,
        on_refused: OnRefused | None,
    ) -> None:
        self._queue = queue
        self._transport = transport
        self._batch = batch_events, batch_bytes
        self._on_accepted, self._on_refused = on_accepted, on_refused
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_busy = False  # while a batch is sent and its callbacks run
        self.last_error = ""
        """Why events wait; "" if the last attempt succeeded."""
        self._thread = threading.Thread(target=self._run, name="fieldbrook-device", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Tell the thread that the queue has another event."""
        with self._changed:
            self._changed.notify_all()

    def wait_until_sent(self, timeout_s: float | None) -> bool:
        """Wait until no event waits and all callbacks have returned; return False if the time was
        not enough. In a callback, do not wait."""
        with self._changed:
            if threading.current_thread() is not self._thread:
                self._changed.wait_for(lambda: self._is_idle or self._is_closing, timeout_s)
            return self._is_idle

    @property
    def _is_idle(self) -> bool:
        return not self._is_busy and not self._queue.waiting

    def close(self) -> None:
        """End the thread. A request in progress is aborted."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._transport.abort()
        if threading.current_thread() is not self._thread:  # a callback may close the device
            # Connecting cannot be interrupted; because the queue is closed, the thread ends
            # afterwards.
            self._thread.join(_JOIN_S)

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        failures = 0
        while self._wait_for_events():
            try:
                batch = self._queue.first(*self._batch)
                outcomes = self._transport.send([queued.event for queued in batch])
                later = self._settle(batch, outcomes)
            except QueueError as error:
                later = Later(str(error))
            except Exception as error:  # the thread must continue
                log.exception("cannot send events")
                later = Later(f"{type(error).__name__}: {error}")
            self.last_error = "" if later is None else later.reason
            if later is None:
                failures = 0
                continue
            failures += 1
            log.info("events wait: %s", later.reason)
            self._pause(pause_s(failures, later.retry_after_s, random.random()))  # noqa: S311
        self._transport.close()

    def _wait_for_events(self) -> bool:
        with self._changed:
            self._is_busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._queue.waiting or self._is_closing)
            self._is_busy = not self._is_closing
            return self._is_busy

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing, seconds)

    def _settle(self, batch: Sequence[Queued], outcomes: Sequence[Outcome]) -> Later | None:
        """Store the outcomes and call the callbacks. Return the outcome with the longest wait, if
        any event has to wait."""
        pairs = list(zip(batch, outcomes, strict=True))
        done = [queued.number for queued, outcome in pairs if isinstance(outcome, Accepted)]
        refused = [
            (queued.number, str(outcome))
            for queued, outcome in pairs
            if isinstance(outcome, Refused)
        ]
        if done or refused:
            self._queue.settle(done, refused)
        for queued, outcome in pairs:
            if isinstance(outcome, Accepted):
                self._call(self._on_accepted, queued.event, outcome)
            elif isinstance(outcome, Refused):
                if self._on_refused is None:
                    log.warning("event %s was refused: %s", queued.event.event_id, outcome)
                self._call(self._on_refused, queued.event, outcome)
        waiting = [outcome for outcome in outcomes if isinstance(outcome, Later)]
        return max(waiting, key=lambda outcome: outcome.retry_after_s, default=None)

    def _call(
        self, callback: Callable[[Event, Given], object] | None, event: Event, outcome: Given
    ) -> None:
        if callback is not None:
            try:
                callback(event, outcome)
            except Exception:
                log.exception("the callback for event %s failed", event.event_id)
