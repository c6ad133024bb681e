"""Runners: the threads of a worker, of which one at a time serves all projects.

One thread at a time holds the *execution lock*: it polls the connections and gives projects their
turns. A handler runs outside the interpreter's lock (the GIL); when a handler takes long, a watcher
gives the execution lock to another thread, which continues with all other projects. The first
thread finishes its project's turn, commits it alone, and waits for the execution lock. So a slow
handler delays other projects by a few milliseconds at most, and without slow handlers a single
thread does all the work.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from fieldbrook.actors.frame_server import FrameServer
from fieldbrook.actors.project.actor import ProjectActor
from fieldbrook.actors.worker.core import CARE_S, WorkerCore

log = logging.getLogger(__name__)

SLOW_S = 0.002  # of processor time
WAITS_S = 0.010  # without processor time: for a disk or a service, or on a busy machine
SLICE_S = 0.005  # of a project's events, while other projects wait
ALONE_S = 0.020  # of a project's events, while no other project waits
_COMMIT_S = 0.005  # between two commits of finished turns; the answers leave after a commit
_WATCH_S = 0.002
_QUIET_WATCHES = 50  # checks without a turn before the watcher sleeps until the next turn
_MOST_RUNNERS = 256  # some may only wait, for a chain or a database
_STOP_S = 3.0


class _Runner:
    """One thread, and the project whose turn it runs."""

    def __init__(self) -> None:
        self.holds_execution_lock = threading.Event()
        self.project: ProjectActor | None = None
        self.clock = 0  # id of the clock of the thread's processor time

    def is_slow(self, seen: _Seen) -> bool:
        """Whether the same step has taken long since the watcher has first seen it."""
        project = self.project
        since = 0.0 if project is None else project.busy_since
        if not since or not self.clock:
            seen.since = 0.0
            return False
        cpu_s = time.clock_gettime(self.clock)
        if since != seen.since:
            seen.since, seen.cpu_s = since, cpu_s
        return cpu_s - seen.cpu_s >= SLOW_S or time.monotonic() - since >= WAITS_S


class _Seen:
    """The step that the watcher has seen last: when it began, and the thread's time then."""

    def __init__(self) -> None:
        self.since = self.cpu_s = 0.0


class Runners:
    """The threads of a worker.

    Args:
        core: the worker's projects.
        server: the connections to the gateways.
    """

    def __init__(self, core: WorkerCore, server: FrameServer) -> None:
        self._core = core
        self._server = server
        self._lock = threading.Lock()
        self._runners: list[_Runner] = []
        self._idle: list[_Runner] = []
        self._holder: _Runner | None = None
        self._prepared: list[ProjectActor] = []  # turns that wait for their commit
        self._busy = threading.Event()  # wakes the watcher
        self._watcher_sleeps = False
        self._commands: list[object] = []
        self._ended = threading.Event()
        self.saved = False  # after the end: whether the stores have everything

    # ---------------------------------------------------------------- for the actor

    def start(self) -> None:
        """Start the first thread, with the execution lock, and the watcher."""
        self._hand_over()
        threading.Thread(target=self._watch, name="watcher", daemon=True).start()

    def stop(self, limit_s: float) -> bool:
        """Finish the current turns and close all projects.

        Returns:
            Whether that was done within `limit_s`.
        """
        self._server.stop()
        return self._ended.wait(limit_s)

    def current(self) -> tuple[float, str, float, int]:
        """What takes longest now: see `Activity.current`; and the id of its project, 0 for none."""
        longest = (0.0, "", 0.0, 0)
        for runner in list(self._runners):
            project = runner.project
            if project is not None:
                busy_s, phase, phase_s = project.current()
                if max(busy_s, phase_s) > max(longest[0], longest[2]):
                    longest = busy_s, phase, phase_s, project.project_id
        return longest

    # ---------------------------------------------------------------- the execution lock

    def _hand_over(self) -> None:
        """Give the execution lock to an idle thread or to a new one. The caller holds `_lock`, or
        no other thread runs yet."""
        if self._idle:
            runner = self._idle.pop()
        else:
            runner = _Runner()
            name = f"runner-{len(self._runners)}"
            threading.Thread(target=self._run, args=(runner,), name=name, daemon=True).start()
            self._runners.append(runner)
        if self._holder is not None:
            self._holder.holds_execution_lock.clear()
        self._holder = runner
        runner.holds_execution_lock.set()

    def _watch(self) -> None:
        """Give the execution lock to another thread when the turn of its holder takes long."""
        quiet = 0
        seen = _Seen()
        while not self._ended.is_set():
            time.sleep(_WATCH_S)
            holder = self._holder
            project = None if holder is None else holder.project
            if holder is None or project is None:
                quiet += 1
                if quiet >= _QUIET_WATCHES:
                    self._watcher_sleeps = True
                    woken = self._busy.wait(CARE_S)
                    self._busy.clear()
                    self._watcher_sleeps = False
                    if woken:
                        quiet = 0
                continue
            quiet = 0
            if not holder.is_slow(seen) or not self._core.others_wait():
                continue
            with self._lock:
                if (
                    self._holder is holder
                    and holder.project is project
                    and (self._idle or len(self._runners) < _MOST_RUNNERS)
                ):
                    try:
                        self._hand_over()
                    except RuntimeError as error:
                        # The next check tries again.
                        log.warning("cannot start another thread for projects: %s", error)

    def _run(self, runner: _Runner) -> None:
        runner.clock = time.pthread_getcpuclockid(threading.get_ident())
        try:
            while not self._server.stopping:
                runner.holds_execution_lock.wait()
                self._serve(runner)
            with self._lock:
                last = self._holder is runner
                if runner in self._idle:
                    self._idle.remove(runner)  # it cannot get the execution lock any more
            if last:
                self._close()
        except BaseException:
            # A worker that cannot run its projects is useless. The supervisor starts it again.
            log.exception("a thread that runs projects failed; the worker ends")
            os._exit(70)

    def _serve(self, runner: _Runner) -> None:
        """Serve all projects for as long as this thread has the execution lock."""
        core, server, ready = self._core, self._server, self._core.ready
        self._commit()  # the turns of the thread that had the execution lock before
        while not server.stopping:
            requests = server.poll(0 if ready else int(CARE_S * 1000))
            if requests:
                core.arrive(requests)
            core.care(time.monotonic())
            if ready and self._watcher_sleeps:
                self._busy.set()
            ends_at = time.monotonic() + _COMMIT_S
            for _ in range(len(ready)):
                project = runner.project = ready.popleft()
                core.run(project, SLICE_S if ready else ALONE_S)
                with self._lock:
                    lost = self._holder is not runner
                    if not lost:
                        runner.project = None
                if lost:
                    self._finish_alone(runner, project)
                    return
                self._prepared.append(project)
                if time.monotonic() >= ends_at:
                    break
            self._commit()

    def _commit(self) -> None:
        """Commit the turns since the last commit; only with the execution lock."""
        if self._prepared:
            prepared, self._prepared = self._prepared, []
            self._core.commit(prepared)
            for project in prepared:
                self._core.done(project)

    def _finish_alone(self, runner: _Runner, project: ProjectActor) -> None:
        """Commit a turn whose thread has lost the execution lock, and make the thread idle."""
        self._core.commit([project])
        if self._core.done(project):
            self._server.wake()
        with self._lock:
            runner.project = None
            self._idle.append(runner)

    def _in_turn(self) -> set[ProjectActor]:
        """The projects whose turns other threads still run."""
        return {runner.project for runner in self._runners if runner.project is not None}

    def _close(self) -> None:
        """Close all projects, after the turns that other threads still run."""
        self._commit()
        limit = time.monotonic() + _STOP_S
        while self._in_turn() and time.monotonic() < limit:
            time.sleep(0.005)
        self.saved = self._core.close(self._in_turn())
        self._server.close()
        self._ended.set()
