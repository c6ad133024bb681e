"""The core of the node: starts the actor system, watches it, and drains it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from fieldbrook import __version__
from fieldbrook.actors import messages as m
from fieldbrook.actors import runtime
from fieldbrook.cluster import hosts_file
from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings
from fieldbrook.gateway.listening import sockets
from fieldbrook.node.first_page import announce, ready_line
from fieldbrook.system import kernel, process_tree
from fieldbrook.system.kernel import name_process
from fieldbrook.system.service_manager import Reports

log = logging.getLogger(__name__)

PART_LOST, CANNOT_START, FORMED, REMOVED = 1, 2, 3, 4  # exit codes
BOOT_LIMIT_S = 60.0
DRAIN_LIMIT_S = 2.0
HOST_DRAIN_LIMIT_S = 5.0  # for a host of a cluster, which also hands over its projects
# In this time workers write missing batches into their stores. A kill after it loses nothing,
# because the journal has the batches.
_END_LIMIT_S = 10.0
_SIGN_LIMIT_S = (
    1.0  # for the answer of the supervisor; meanwhile the death of a process is not noticed
)


def run(
    settings: Settings,
    stops: Callable[[], bool],
    cluster: Membership | None = None,
    *,
    is_first: bool,
    reports: Reports | None = None,
    sign_s: float | None = None,
) -> int:
    """Start the actor system, watch it until `stops` returns True, and drain it.

    Args:
        settings: the node's settings.
        stops: returns whether the node has to stop.
        cluster: the hosts of the node's cluster; None when it runs alone.
        is_first: whether to print the address of the dashboard.
        reports: receives the reports that the node serves and that it works; None for no reports.
        sign_s: seconds between two reports that it works; None for no such reports.

    Returns:
        0 after a drain, PART_LOST, CANNOT_START, FORMED if the cluster has enough hosts now, or
        REMOVED if this host was removed from the cluster.
    """
    name_process("fb-core")
    run_dir = settings.data / "run"
    runtime.harden(run_dir)
    tree = runtime.ActorTree("fieldbrook.actors.supervisor.supervisor.Supervisor")
    booted = tree.ask(m.Boot(settings, run_dir, cluster), BOOT_LIMIT_S, (m.Booted, m.BootFailed))
    if not isinstance(booted, m.Booted):
        reason = f"{booted.part}: {booted.reason}" if booted else "time ran out"
        log.critical("the node cannot start: %s", reason)
        process_tree.kill_descendants()
        return CANNOT_START
    log.info("fieldbrook@%s %s", __version__, ready_line(settings.bind, settings.http_port))
    if is_first:
        announce(settings)
    if reports is not None:
        reports.ready()
    watch = process_tree.DeathWatch(_vital(booted.pids["supervisor"]))
    is_forming = cluster is not None and not cluster.formed
    is_host = cluster is not None and cluster.formed
    lost: list[str] = []
    next_sign = time.monotonic()
    formed, removed = False, ""
    while not stops() and not (lost or formed or removed):
        lost = watch.wait(0.2)
        process_tree.reap()
        formed = is_forming and hosts_file.is_formed(settings.data)
        if is_host:
            removed = _removal(settings.data)
        if reports is not None and sign_s is not None and time.monotonic() >= next_sign:
            next_sign = time.monotonic() + sign_s
            # The supervisor replaces every other process that does not answer. Only this check
            # detects that the supervisor itself does not answer.
            if tree.ask(m.Inspect(), min(_SIGN_LIMIT_S, sign_s), m.Inspected) is not None:
                reports.alive()
    if lost:
        log.critical("%s died", ", ".join(lost))
        process_tree.kill_descendants()
        return PART_LOST
    _drain(tree, is_host=is_host, keeps_ports=formed)
    if removed:
        log.critical("%s", removed)
        return REMOVED
    return FORMED if formed else 0


def _drain(tree: runtime.ActorTree, *, is_host: bool, keeps_ports: bool) -> None:
    """Stop all processes; the next core uses the ports if `keeps_ports` is set.

    A host of a cluster also hands its projects over to other hosts.
    """
    started = time.monotonic()
    tree.ask(m.Drain(), HOST_DRAIN_LIMIT_S if is_host else DRAIN_LIMIT_S, m.Drained)
    if not keeps_ports:
        sockets.stop_listening()
    tree.shutdown()
    process_tree.await_descendants(_END_LIMIT_S)
    killed = process_tree.kill_descendants()
    if killed:
        log.warning("killed %d processes that did not end by themselves", killed)
    log.info("stopped in %.1f s", time.monotonic() - started)


def _removal(data: Path) -> str:
    """Return why this host must stop; empty while it belongs to its cluster."""
    try:
        hosts_file.require_member(data)
    except SettingsError as error:
        return str(error)
    return ""


def _vital(supervisor_pid: int) -> dict[int, str]:
    """Return the processes whose death ends the node, by pid: the supervisor and its parent, the
    admin process of the actor system."""
    admin_pid = kernel.parents(os.getpid())[supervisor_pid]
    return {supervisor_pid: "the supervisor", admin_pid: "the actor system"}
