"""Starts dry runs in child processes, with limits of time and memory."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import msgspec

from fieldbrook.actors.dry_run.trial import NodeParts, Report, Task, Trial
from fieldbrook.core.settings import Settings
from fieldbrook.storage.sql.access import sql_limits
from fieldbrook.system.confined import Bounds, run_confined
from fieldbrook.wasm.limits import Limits

_MODULE = "fieldbrook.actors.dry_run.child"
_START_S = 15  # for the interpreter, and for a module that has to be compiled again
# Wasmtime reserves 6 GiB of addresses for an instance, and uses only the guest's memory of them.
_ADDRESS_BYTES = 24 << 30
_OWN_BYTES = (2 << 30) + (384 << 20)  # what Wasmtime maps; the interpreter and its libraries
_TABLES_BYTES = 128 << 20


def node_parts(settings: Settings) -> NodeParts:
    """Return the settings and folders of the node that runs need."""
    return NodeParts(
        projects=str(settings.data / "projects"),
        modules=str(settings.data / "modules"),
        registry=str(settings.data / "registry"),
        limits=Limits(deadline_ms=settings.deadline_ms, memory_bytes=settings.memory_limit_bytes),
        sql_limits=sql_limits(settings),
        tables=settings.postgres_dsn is None,
        api_hosts=settings.api_host_list,
        open_topics=settings.mqtt_device_topic_list,
        chains=tuple((chain.id, chain.name) for chain in settings.chains),
        default_chain=settings.default_chain,
    )


class DryRunner:
    """Runs trials for one node.

    Args:
        node: the parts of the node that runs need.
    """

    def __init__(self, node: NodeParts) -> None:
        self._node = node

    def run(self, trial: Trial, scratch: Path) -> Report:
        """Run a trial; blocks until it has ended.

        Args:
            trial: what to run.
            scratch: the path of a new folder for this run; it is removed afterwards.

        Raises:
            ConfinedError: the child exceeded a limit or died; the text has the reason.
            OSError: no process or no file could be made.
        """
        deadline_s = math.ceil(self._node.limits.deadline_ms / 1_000)
        bounds = Bounds(
            cpu_s=deadline_s + _START_S,
            timeout_s=deadline_s + 2 * _START_S,
            address_bytes=_ADDRESS_BYTES,
            file_bytes=2 * _TABLES_BYTES,
            data_bytes=_OWN_BYTES + self._node.limits.memory_bytes,
        )
        scratch.mkdir(mode=0o700)
        try:
            task = Task(trial=trial, node=self._node, scratch=str(scratch))
            output = run_confined(_MODULE, [], bounds, scratch, msgspec.msgpack.encode(task))
            return msgspec.msgpack.decode(output, type=Report)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
