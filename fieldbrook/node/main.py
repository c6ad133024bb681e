"""The node's main process: prepares the data folder, opens the ports, keeps the core running.

The core is its only child, a fork in which the actor system starts. When the core dies, or ends
because the supervisor or the admin process of the actor system has died, the main process kills the
remaining processes and forks again. The modules are imported and the ports are open, so clients
wait for a short time instead of being refused. The main process has no threads and opens no store.
When it dies itself, all processes die, and its own supervisor (supervisord, `fieldbrook up`, a
container) starts a complete node again.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fieldbrook import __version__
from fieldbrook.actors.runtime import describe_exit
from fieldbrook.actors.supervisor.restarts import Restarts
from fieldbrook.cluster import hosts_file
from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings, clean_environment
from fieldbrook.gateway.listening import sockets
from fieldbrook.node import core
from fieldbrook.node.core import CANNOT_START, FORMED, PART_LOST, REMOVED
from fieldbrook.node.first_page import in_child
from fieldbrook.observability import fault_points, logs, node_log
from fieldbrook.security import node_secrets, tls
from fieldbrook.storage import data_lock
from fieldbrook.system import process_tree
from fieldbrook.system.fsync import make_folder, start_unsynced
from fieldbrook.system.kernel import adopt_orphans, die_with, name_process
from fieldbrook.system.process import keep_memory_private, report_fatal_signals
from fieldbrook.system.service_manager import Reports, ServiceManager

log = logging.getLogger(__name__)

_FAILURES_IN_A_ROW = 3
_TICK_S = 0.2
_COLLECTOR_DEFAULT = (700, 10, 10)  # the default of CPython
REFUSED = "refused"  # the same name as in `storage.project.refused`
FOLDERS = ("registry", "projects", "chains", "journal", "modules", "uploads", "secrets", "run")


def run(settings: Settings, *, is_told: bool = False) -> int:
    """Run a node until SIGTERM or SIGINT.

    Args:
        settings: the node's settings.
        is_told: whether the warnings of the settings have been logged already.

    Returns:
        The exit code: 0 after a drain, 1 if a process was lost, 2 if the node cannot start.
    """
    name_process("fb-node")
    report_fatal_signals()
    settings = settings.changed(data=settings.data.absolute())
    stop, manager = _StopFlag(), ServiceManager.from_environment()
    logs.configure(settings.log_level, settings.log_format)
    node_log.start("node")
    for warning in () if is_told else settings.warnings:
        log.warning("%s", warning)
    if not settings.core_dumps:
        keep_memory_private()
    clean_environment()
    if fault_points.is_armed:
        log.warning("%s is set: it kills processes of this node", fault_points.VARIABLE)
    try:
        tls.check(settings)
        # The processes that are forked below inherit both locks, so the locks are held until the
        # last of them ends.
        locks = _take_locks(settings.data)
        _prepare_data(settings.data)
    except SettingsError as error:
        log.critical("%s", error)
        return CANNOT_START
    upgrade_ends = _begin_upgrade(settings.data)
    is_host = settings.join is not None or hosts_file.is_formed(settings.data)
    cluster: Membership | None = None
    reason = _hold_ports(settings, listens=not is_host)
    if not reason:
        try:
            # The other hosts can begin to form the cluster while this host imports its modules.
            cluster = _join_cluster(settings)
        except SettingsError as error:
            reason = str(error)
        else:
            _preload(settings)
    if upgrade_ends() != 0:
        return CANNOT_START
    if reason:
        log.critical("the node cannot start: %s", reason)
        return CANNOT_START
    code = _keep_running(settings, stop, manager, _await_hosts(settings, stop, cluster))
    for lock in locks:
        os.close(lock)
    return code


def _keep_running(
    settings: Settings, stop: _StopFlag, manager: ServiceManager, cluster: Membership | None
) -> int:
    """Start the core, and start it again after it has lost a process, until `stop` is set.

    Returns:
        The exit code of the core, or PART_LOST if the core dies again and again: then a restart of
        the whole node may help.
    """
    adopt_orphans()
    restarts, is_first = Restarts(), True
    while True:
        started = time.monotonic()
        code = _run_core(settings, stop, manager, cluster, is_first=is_first)
        # Two processes must never write the same journal, and a process that is syncing ends only
        # after the sync.
        while process_tree.own_descendants():
            process_tree.kill_descendants()
        if stop.is_set() or code in (0, REMOVED) or (code == CANNOT_START and is_first):
            return 0 if code == FORMED else code
        is_first = False
        if code == FORMED:
            log.warning("enough hosts have joined: all parts of the node restart as a cluster")
            cluster = hosts_file.load(settings.data)
            _prepare_data(settings.data)
            continue
        if cluster is not None and cluster.formed:
            sockets.release()  # meanwhile devices connect to another host
        restarts = restarts.after_exit(time.monotonic() - started)
        if restarts.failures > _FAILURES_IN_A_ROW:
            log.critical("its parts died %d times in a row: the node ends", restarts.failures)
            return PART_LOST
        log.error("all parts of the node start again in %.1f s", restarts.delay_s)
        time.sleep(restarts.delay_s)
        if stop.is_set():
            return 0
        try:
            _prepare_data(settings.data)
        except SettingsError as error:
            log.critical("%s", error)
            return PART_LOST
        if cluster is not None and cluster.formed:
            reason = _hold_ports(settings, listens=False)
            if reason:
                log.critical("the node cannot start again: %s", reason)
                return PART_LOST


def _run_core(
    settings: Settings,
    stop: _StopFlag,
    manager: ServiceManager,
    cluster: Membership | None,
    *,
    is_first: bool,
) -> int:
    """Run the core in a child until it ends; return its exit code."""
    parent = os.getpid()
    reports = Reports() if manager.is_there else None
    pid = os.fork()
    if not pid:
        code = PART_LOST
        try:
            die_with(parent)
            if os.getppid() != parent:
                os._exit(code)  # the parent died before `die_with` took effect
            code = core.run(
                *(settings, stop.is_set, cluster),
                is_first=is_first,
                reports=reports,
                sign_s=manager.sign_s,
            )
        except BaseException:
            log.exception("the node failed")
        finally:
            os._exit(code)
    watch = process_tree.DeathWatch({pid: "the core"})
    asked = serves = False
    while not watch.wait(_TICK_S):
        if stop.is_set() and not asked:
            manager.stopping()
            os.kill(pid, signal.SIGTERM)
            asked = True
        if reports is not None:
            serves = _pass_on(reports, manager, settings, serves=serves)
    watch.close()
    if reports is not None:
        reports.close()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        log.critical("the core died: %s", describe_exit(code))
    return code if code >= 0 else PART_LOST


def _pass_on(
    reports: Reports, manager: ServiceManager, settings: Settings, *, serves: bool
) -> bool:
    """Forward the core's reports to the service manager; return whether the core serves now.

    While the core starts, it sends no signs of life; its start has time limits of its own.
    """
    ready, alive = reports.take()
    if ready:
        manager.ready(f"listens on port {settings.http_port}")
    if alive or not serves:
        manager.alive()
    return ready or serves


class _StopFlag:
    """Set by the first SIGTERM, SIGINT or SIGQUIT."""

    def __init__(self) -> None:
        self._set = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self._set = True

    def is_set(self) -> bool:
        """Whether the node has to stop."""
        return self._set


def _take_locks(data: Path) -> tuple[int, int]:
    """Take the lock of the data folder and the lock of the node; returns their descriptors."""
    return data_lock.acquire_data_lock(data), data_lock.acquire_node_lock(data)


def _prepare_data(data: Path) -> None:
    """Create missing folders and secrets, and remove files of an earlier run from `run`.

    Raises:
        SettingsError: a folder cannot be created.
    """
    try:
        for name in FOLDERS:
            make_folder(data / name)
    except OSError as error:
        raise SettingsError(reason=f"data folder {data}: {error.strerror}") from error
    for stale in (data / data_lock.RUN).iterdir():
        if stale.name not in data_lock.NAMES:
            with suppress(OSError):
                stale.unlink()
    start_unsynced(data / REFUSED)
    node_secrets.load_or_create_key(data / "secrets", "token.key")
    node_secrets.setup_code(data / "secrets")


def _begin_upgrade(data: Path) -> Callable[[], int]:
    """Begin to upgrade the stores to this version's schema; the result waits for its end.

    The result returns 0, or another number on failure, with the reason in the log. The upgrade runs
    in a child process, because LMDB must not be open in a process that forks, and at the same time
    as the imports of this process.
    """
    from fieldbrook.storage.upgrade import upgrade

    def work() -> int:
        done = upgrade(data)
        if done is not None:
            log.warning(
                "upgraded %d stores to the schema of fieldbrook %s; the old ones are in %s",
                done.stores,
                __version__,
                done.copy,
            )
        return 0

    return in_child(work)


def _join_cluster(settings: Settings) -> Membership | None:
    """See `cluster.startup.prepare`, which a node without a cluster need not import.

    Raises:
        SettingsError: the settings do not fit, or the cluster refuses this host.
    """
    alone = settings.cluster_bind is None and settings.join is None
    if alone and hosts_file.load(settings.data) is None:
        return None
    from fieldbrook.cluster import startup

    return startup.prepare(settings)


def _await_hosts(
    settings: Settings, stop: _StopFlag, cluster: Membership | None
) -> Membership | None:
    """Wait until a cluster that this host has joined has enough hosts; return all its hosts."""
    if cluster is None or cluster.formed or cluster.is_founder:
        return cluster
    from fieldbrook.cluster import joining

    return joining.await_forming(settings.data, cluster, stop.is_set)


def _hold_ports(settings: Settings, *, listens: bool) -> str:
    """Bind the ports of all gateways.

    Args:
        settings: the node's settings.
        listens: whether clients wait until the gateways serve. On a host of a cluster they are
            refused, because another host can serve them at once.

    Returns:
        The reason of a failure, such as a port that is taken; "" if it succeeded.
    """
    processes = settings.http_processes
    try:
        sockets.hold(settings.bind, settings.http_port, processes, listens=listens)
        if settings.event_port is not None:
            sockets.hold(settings.bind, settings.event_port, processes, listens=listens)
        sockets.hold(settings.dashboard_bind, settings.dashboard_port, listens=listens)
        if settings.mqtt_broker is None:
            sockets.hold(settings.bind, settings.mqtt_port, listens=listens)
    except SettingsError as error:
        return str(error)
    return ""


def _preload(settings: Settings) -> None:
    """Import the modules of several processes once: actors are forks and share these memory pages.

    A module that only one process needs is imported by that process, in parallel with the others.
    """
    gc.disable()  # it would examine all modules again and again
    import fieldbrook.actors.registry
    import fieldbrook.actors.supervisor.supervisor
    import fieldbrook.actors.worker.actor
    import fieldbrook.gateway.http.server

    if settings.http_processes > 1:
        import fieldbrook.gateway.http.tornado.applications
    if len(settings.chains) > 1:
        import fieldbrook.chain.process  # noqa: F401

    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_DEFAULT)  # the command line has raised the threshold
    gc.enable()
