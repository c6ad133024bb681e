"""The node's main process: it prepares the data folder, starts the actor system and watches it.

It has no threads, and no sockets except those of the actor system. When the supervisor or
the admin process of the actor system dies, it kills all other processes and exits, so that its
own supervisor (supervisord, `fieldbrook up`, a container) starts a complete node again.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from fieldbrook import __version__
from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings, clean_environment
from fieldbrook.node.first_page import announce, in_child
from fieldbrook.observability import fault_points, logs, node_log
from fieldbrook.security import node_secrets, tls
from fieldbrook.storage import data_lock
from fieldbrook.system import process_tree
from fieldbrook.system.fsync import make_folder, start_unsynced
from fieldbrook.system.process import keep_memory_private, name_process, report_fatal_signals

log = logging.getLogger(__name__)

PART_LOST, CANNOT_START = 1, 2  # exit codes
BOOT_LIMIT_S = 60.0
DRAIN_LIMIT_S = 2.0
# Workers write what their stores lack. A kill after it loses nothing: the journal has it.
_END_LIMIT_S = 10.0
REFUSED = "refused"  # as `storage.project.refused` names it
FOLDERS = ("registry", "projects", "chains", "journal", "modules", "uploads", "secrets", "run")


def run(settings: Settings) -> int:
    """Run a node until SIGTERM or SIGINT.

    Returns:
        The exit code: 0 after a drain, 1 when a part was lost, 2 when it cannot start.
    """
    name_process("fb-node")
    report_fatal_signals()
    settings = settings.model_copy(update={"data": settings.data.absolute()})
    stop = _StopFlag()
    logs.configure(settings.log_level, settings.log_format)
    node_log.start("node")
    for warning in settings.warnings:
        log.warning("%s", warning)
    if not settings.core_dumps:
        keep_memory_private()
    clean_environment()
    if fault_points.is_armed:
        log.warning("%s is set: it kills processes of this node", fault_points.VARIABLE)
    try:
        tls.check(settings)
        # The processes forked below inherit both locks, so they last until the last one ends.
        locks = _take_locks(settings.data)
        _prepare_data(settings.data)
    except SettingsError as error:
        log.critical("%s", error)
        return CANNOT_START
    if not _upgraded(settings.data):
        return CANNOT_START
    code = _run_actors(settings, stop)
    for lock in locks:
        os.close(lock)
    return code


def _run_actors(settings: Settings, stop: _StopFlag) -> int:
    """Start the actor system, watch it until `stop` is set, and drain it."""
    from fieldbrook.actors import messages as m
    from fieldbrook.actors import runtime

    run_dir = settings.data / "run"
    runtime.harden(run_dir)
    _preload(settings)
    tree = runtime.ActorTree("fieldbrook.actors.supervisor.supervisor.Supervisor")
    booted = tree.ask(m.Boot(settings, run_dir), BOOT_LIMIT_S, (m.Booted, m.BootFailed))
    if not isinstance(booted, m.Booted):
        reason = f"{booted.part}: {booted.reason}" if booted else "time ran out"
        log.critical("the node cannot start: %s", reason)
        process_tree.kill_descendants()
        return CANNOT_START
    log.info("fieldbrook@%s listen on :%d", __version__, settings.http_port)
    announce(settings)
    watch = process_tree.DeathWatch(_vital(booted.pids["supervisor"]))
    lost: list[str] = []
    while not stop.set and not lost:
        lost = watch.wait(0.2)
        process_tree.reap()
    if lost:
        log.critical("%s died: the node ends, to be restarted as a whole", ", ".join(lost))
        process_tree.kill_descendants()
        return PART_LOST
    started = time.monotonic()
    tree.ask(m.Drain(), DRAIN_LIMIT_S, m.Drained)
    tree.shutdown()
    process_tree.await_descendants(_END_LIMIT_S)
    killed = process_tree.kill_descendants()
    if killed:
        log.warning("killed %d processes that did not end by themselves", killed)
    log.info("stopped in %.1f s", time.monotonic() - started)
    return 0


class _StopFlag:
    """Set by the first SIGTERM, SIGINT or SIGQUIT."""

    def __init__(self) -> None:
        self.set = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self.set = True


def _take_locks(data: Path) -> tuple[int, int]:
    """Take the lock of the data folder and the lock of the node; returns their descriptors."""
    return data_lock.acquire_data_lock(data), data_lock.acquire_node_lock(data)


def _prepare_data(data: Path) -> None:
    """Create missing folders and secrets, and remove the files that an earlier run left in `run`.

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


def _upgraded(data: Path) -> bool:
    """Upgrade the stores to this version's schema; False, with the reason in the log, on failure.

    The upgrade runs in a child process, because LMDB must not be open in a process that forks.
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

    return in_child(work) == 0


def _preload(settings: Settings) -> None:
    """Import the actors' modules once: actors are forks and share these memory pages."""
    import fieldbrook.actors.registry
    import fieldbrook.actors.supervisor.supervisor
    import fieldbrook.actors.worker.actor
    import fieldbrook.gateway.http.server
    import fieldbrook.gateway.mqtt.gateway
    import fieldbrook.gateway.schedule.ticker

    if settings.chains:
        import fieldbrook.chain.process

    if settings.mqtt_broker is None:
        import fieldbrook.gateway.mqtt.listener.server
    else:
        import fieldbrook.gateway.mqtt.paho_source  # noqa: F401

    gc.collect()
    gc.freeze()


def _vital(supervisor_pid: int) -> dict[int, str]:
    """Return the names, by pid, of the processes without which the node ends: the supervisor and
    its parent, the admin of the actor system."""
    status = Path(f"/proc/{supervisor_pid}/stat").read_text()
    admin_pid = int(status.rpartition(")")[2].split()[1])
    return {supervisor_pid: "the supervisor", admin_pid: "the actor system"}
