"""Look-ahead for one project: decides whether it is used, for which events and with which hosts.

A look-ahead round consists of the events that a project has queued when the round begins. The
project's thread handles these events in order. When handlers are heavy, other threads run later
events before their turn (`speculation`). The decision page is docs/decisions/0042-look-ahead.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from fieldbrook.actors.project.capabilities import ProjectCapabilities
from fieldbrook.actors.project.look_ahead.policy import SpeculationPolicy
from fieldbrook.actors.project.look_ahead.speculation import Basis, Plan, Speculation
from fieldbrook.actors.project.look_ahead.tasks import HostCopies, Step
from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.project.topics import HandlerTopics
from fieldbrook.actors.wire import WireEvent
from fieldbrook.core.model import Applet
from fieldbrook.observability import metrics
from fieldbrook.storage.project import kv

IDLE_S = 10.0


class Store(Protocol):
    """The part of the project's store that look-ahead depends on."""

    def read_committed(self, stored_key: bytes) -> bytes | None:
        """See `ProjectStore.read_committed`."""
        ...


class _NeverFull:
    """An outbox that is never full: the real one is checked when the turn of the event comes."""

    is_full = False


class LookAhead:
    """Look-ahead for one project. Only the project's thread calls it.

    Args:
        threads: the threads that help; other projects may use them, too.
        pool: the project's instance pool.
        store: the project's store.
        topics: the topics that handlers may publish on.
        api_hosts: the hosts that applets may call, from the settings.
        policy: decides whether look-ahead is used.
        row: the project's row in the table of metrics; by default the row of this thread.
    """

    def __init__(
        self,
        threads: LookAheadThreads,
        pool: InstancePool,
        store: Store,
        topics: HandlerTopics,
        api_hosts: Sequence[str] = (),
        policy: SpeculationPolicy | None = None,
        row: memoryview[float] | None = None,
    ) -> None:
        self._threads = threads
        self._pool = pool
        self._store = store
        self.policy = policy or SpeculationPolicy()
        self._capabilities = ProjectCapabilities(topics, _NeverFull(), api_hosts)
        self._env: Mapping[str, str] = {}
        self._applets: dict[int, Applet] = {}
        self._scopes: dict[int, bytes] = {}
        self._hosts: dict[int, HostCopies] = {}
        self._in_turn_only: set[int] = set()  # applets whose handlers must not run ahead
        self._row = metrics.here.row if row is None else row
        self._counting = threading.Lock()
        self._running = 0
        self._speculation: Speculation | None = None
        self._used = time.monotonic()  # when a round last used look-ahead

    def configure(self, env: Mapping[str, str], applets: Iterable[Applet]) -> None:
        """Set the environment and the applets; earlier speculative runs are dropped."""
        if self._speculation is not None:
            self._speculation.forget()
        self._env = env
        self._applets = {applet.applet_id: applet for applet in applets}
        self._scopes = {number: kv.scope(kv.owner(a)) for number, a in self._applets.items()}
        self._in_turn_only = set()
        self._capabilities.forget()
        for applet_id in self._hosts.keys() - self._applets.keys():
            self._hosts.pop(applet_id).close()

    @property
    def wanted(self) -> bool:
        """Whether there are threads for look-ahead, and it saves time at present."""
        return self._threads.count > 0 and self.policy.is_worthwhile(time.monotonic())

    def speculate(self, events: Sequence[WireEvent], plan: Plan) -> Speculation | None:
        """Begin to run the events of a round before their turn. Check `wanted` first.

        Args:
            events: the events of one round, in order. They are recognised by identity, so the
                caller must not copy them during the round.
            plan: returns the handlers of an event, or none if it has to wait for its turn. It is
                called in this thread.

        Returns:
            The speculation of this round, valid until `end_round`; None when all events are of one
            publisher, because such events run one after another.
        """
        if len({event[1] for event in events}) < 2:
            return None
        self._used = time.monotonic()
        basis = Basis(
            self._store.read_committed,
            *(self._env, self._capabilities, self._scopes, self._in_turn_only, self._count),
        )
        self._speculation = Speculation(
            *(self._threads, self.policy, basis, events), lambda event: self._steps(plan(event))
        )
        return self._speculation

    def end_round(self, seconds: float, events: int) -> None:
        """End a round of `events` events; `seconds` is the CPU time of the project's thread."""
        speculation, self._speculation = self._speculation, None
        if speculation is not None:
            speculation.forget()
            seconds = speculation.seconds
        self.policy.add_cpu_time(seconds, events)
        self.release_idle()

    def release_idle(self) -> None:
        """Release the copies of hosts if they were not used for `IDLE_S`."""
        if self._hosts and time.monotonic() - self._used >= IDLE_S:
            self.close()

    def close(self) -> None:
        """End the speculation, if there is one, and release the copies of hosts.

        Runs that are under way end by themselves; their results are dropped.
        """
        if self._speculation is not None:
            self._speculation.forget()
        for hosts in self._hosts.values():
            hosts.close()
        self._hosts.clear()

    def _count(self, change: int) -> None:
        """Count the running events: if the process dies meanwhile, the supervisor suspects the
        project.

        Threads of different rounds may call it at the same time.
        """
        with self._counting:
            self._running += change
            self._row[metrics.RUNNING_AHEAD] = self._running

    def _steps(self, targets: Sequence[Target]) -> list[Step]:
        """Return the handlers of an event, or none if one of them has to wait for its turn."""
        steps: list[Step] = []
        for target in targets:
            applet_id = target.applet_id
            hosts = None if applet_id in self._in_turn_only else self._hosts_of(applet_id)
            if hosts is None:
                return []
            scope = self._scopes[applet_id]
            steps.append(Step(target.strategy_id, applet_id, target.handler, scope, hosts))
        return steps

    def _hosts_of(self, applet_id: int) -> HostCopies | None:
        """Return the copies of an applet's host; None before the first run, and if the applet uses
        SQL."""
        applet = self._applets.get(applet_id)
        original = None if applet is None else self._pool.loaded(applet)
        if original is None or original.uses_sql:
            return None
        hosts = self._hosts.get(applet_id)
        if hosts is None or hosts.original is not original:
            if hosts is not None:
                hosts.close()
            hosts = self._hosts[applet_id] = HostCopies(original)
        return hosts
