"""Look-ahead rounds: when a project runs heavy handlers of queued events before their turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from fieldbrook.actors.project.configuration import ProjectConfiguration
from fieldbrook.actors.project.execution.commit import Batch
from fieldbrook.actors.project.execution.runner import HandlerRunner
from fieldbrook.actors.project.look_ahead.look_ahead import LookAhead
from fieldbrook.actors.wire import Requester

_Queue = Iterable[tuple[Requester, Any, int]]


class LookAheadRounds:
    """Measures the cost of handlers, and starts look-ahead where it saves time.

    Args:
        look_ahead: runs handlers before their turn; None when it is switched off.
        runner: gets the results of the speculative runs.
    """

    def __init__(self, look_ahead: LookAhead | None, runner: HandlerRunner) -> None:
        self._look_ahead = look_ahead
        self._runner = runner
        # Counted since the last decision whether to look ahead:
        self._speculated = self._handled = 0  # events
        self._cpu_s = 0.0

    def configure(self, configuration: ProjectConfiguration) -> None:
        """Use another configuration of the project."""
        if self._look_ahead is not None:
            self._look_ahead.configure(configuration.env, configuration.applets.values())

    def run(
        self, queue: _Queue, configuration: ProjectConfiguration, handle: Callable[[], Batch]
    ) -> Batch:
        """Handle a batch; some of its handlers may run before their turn.

        Args:
            queue: the bodies that wait, each with the index of its first event to be handled.
            configuration: the project's.
            handle: handles the batch.
        """
        look_ahead = self._look_ahead
        if look_ahead is None:
            return handle()
        if self._speculated or look_ahead.policy.measures:
            if not self._speculated:
                self._speculate(look_ahead, queue, configuration)
            began_s = time.thread_time()
            batch = handle()
            self._cpu_s += time.thread_time() - began_s
            self._handled += _size(batch)
        else:
            began_s = time.monotonic()
            batch = handle()
            look_ahead.policy.add_wall_time(time.monotonic() - began_s, _size(batch))
        return batch

    def _speculate(
        self, look_ahead: LookAhead, queue: _Queue, configuration: ProjectConfiguration
    ) -> None:
        """Start a round over the queued events, if look-ahead saves time at present."""
        events = [
            event
            for _, body, at in tuple(queue)
            if not isinstance(body, dict)
            for event in body[at:]
        ]
        if look_ahead.wanted and configuration.closed is None:
            self._runner.speculation = look_ahead.speculate(events, configuration.early_targets)
        self._speculated = len(events)

    def settle(self) -> None:
        """Forget the writes of committed speculative runs; end the round when all its events are
        handled."""
        if self._look_ahead is None or not self._speculated:
            return
        if self._runner.speculation is not None:
            self._runner.speculation.settle()
        if self._handled and self._handled >= self._speculated:
            self._runner.speculation = None
            # CPU time of the thread, not wall time: on a busy machine wall time would make every
            # handler look expensive, and other threads can save only CPU time.
            self._look_ahead.end_round(self._cpu_s, self._handled)
            self._cpu_s, self._speculated, self._handled = 0.0, 0, 0

    def release_idle(self) -> None:
        """Release copies of hosts that look-ahead has not used for some seconds."""
        if self._look_ahead is not None:
            self._look_ahead.release_idle()

    def close(self) -> None:
        """End the threads."""
        if self._look_ahead is not None:
            self._look_ahead.close()


def _size(batch: Batch) -> int:
    return sum(len(results) for _, results, _, _ in batch)
