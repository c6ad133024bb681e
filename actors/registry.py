"""The actor of the registry: the only process that writes to the registry.

Gateways send commands `[operation, arguments]` over a Unix socket. Each is answered by
`[True, result]` once it is on disk, or by `[False, error class, details]`.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fieldbrook.actors import messages as m
from fieldbrook.actors.frame_server import FrameServer, Request
from fieldbrook.actors.runtime import Address, NodeActor
from fieldbrook.actors.store_watch import StoreWatch
from fieldbrook.actors.wire import unpack
from fieldbrook.core import clock
from fieldbrook.core.errors import InternalError, NodeError, StoreError, to_wire
from fieldbrook.core.model import Project
from fieldbrook.observability import metrics, metrics_table, node_log
from fieldbrook.observability.health import CHAIN_BROKEN, ProcessHealth
from fieldbrook.security.node_secrets import load_or_create_key
from fieldbrook.storage.lmdb.condition import client_error
from fieldbrook.storage.registry.module_files import collect
from fieldbrook.storage.registry.service import (
    RegistryWriter,
    encode_result,
    execute,
)
from fieldbrook.storage.registry.usage import stored_bytes_in
from fieldbrook.system.kernel import name_process

if TYPE_CHECKING:
    from fieldbrook.actors.registry_replication import RegistryReplication

log = logging.getLogger(__name__)

PART = "registry"
COLLECTION_S = 30.0  # shortest interval between searches for unreferenced module files
STORAGE_S = 5.0  # shortest interval between checks of the quotas of stored bytes
_STORAGE_SHARE = 50  # a check that takes t s runs every 50 t s at most: 2 % of the time
_FREES_STORAGE = frozenset({"remove_project", "remove_resource", "remove_account"})
SOCKET_NAME = "registry"


class RegistryActor(NodeActor):
    """Writes the registry; tells the supervisor which projects are removed or dedicated."""

    def __init__(self) -> None:
        super().__init__()
        self._server: FrameServer | None = None
        self._thread: threading.Thread | None = None
        self._replication: RegistryReplication | None = None  # on a host of a cluster

    def receive(self, message: object, sender: Address) -> None:
        """See `actors.messages`."""
        match message:
            case m.Start():
                self._start(message, sender)
            case m.HostsUp() if self._replication is not None:
                self._replication.on_hosts(message)
            case m.Ping(number=number):
                self.send(sender, m.Ponged(PART, number))
            case _:
                self.unexpected(message, sender)

    def posted(self, message: object) -> None:
        """Forward a message of the data thread to the supervisor."""
        self.send(self._supervisor, message)

    def stopping(self) -> None:
        """Finish the running command, then close the registry; waits at most 5 s."""
        if self._server and self._thread and self._thread.is_alive():
            self._server.stop()
            self._thread.join(5)

    def _start(self, start: m.Start, sender: Address) -> None:
        name_process("fb-registry")
        node_log.name(start.part)
        metrics_table.attach(start.slot)
        self._supervisor = sender
        generation = start.generation
        self._health = ProcessHealth(lambda now: self.post(m.HealthReported(PART, generation, now)))
        try:
            self._open(start)
        except NodeError as error:
            self.send(sender, m.Failed(PART, str(error)))
            return
        self.send(sender, m.DedicatedProjects(self._dedicated))
        self.accept_posts()
        self._thread = threading.Thread(target=self._serve, name="data", daemon=True)
        self._thread.start()
        self.send(sender, m.Ready(PART, start.generation, os.getpid(), str(self._path)))

    def _open(self, start: m.Start) -> None:
        settings, data = start.settings, start.settings.data
        key = load_or_create_key(data / "secrets", "token.key")
        self._writer = RegistryWriter(
            data / "registry",
            settings.registry_map_bytes,
            clock.now_ms,
            key,
            settings.audit_rows,
            settings.quotas,
            stored_bytes_in(data / "projects"),
        )
        tick_s = 1.0
        if start.host:
            from fieldbrook.actors.registry_replication import TICK_S, RegistryReplication

            tick_s = TICK_S
            self._replication = RegistryReplication(
                settings, start.run_dir, start.host, self._writer, start.is_founder, self.post
            )
            self._replication.open()
        self._reader = self._writer.reader()
        self._watch = StoreWatch(self._health, self._writer)
        self._modules = data / "modules"
        projects = self._reader.projects()
        _remove_stores(data / "projects", projects)
        self._dedicated = frozenset(one.project_id for one in projects if one.dedicated)
        self._has_orphans = True
        self._next_collection = self._next_storage = 0.0
        self._path = start.run_dir / SOCKET_NAME
        self._server = FrameServer(self._path, self._on_requests, self._on_quiet, tick_s)

    def _serve(self) -> None:
        assert self._server is not None
        try:
            self._server.serve()
            self._writer.close()
        except BaseException:
            log.exception("the registry's data thread failed")
            os._exit(70)

    def _on_requests(self, requests: list[Request]) -> None:
        for connection, data in requests:
            request = unpack(data)
            operation, arguments = request[:2]
            if self._replication is not None and self._replication.take(connection, list(request)):
                continue
            connection.answer(self._execute(operation, arguments))
        self._check_storage()

    def _execute(self, operation: str, arguments: dict[str, Any]) -> tuple[Any, ...]:
        try:
            result = execute(self._writer, operation, arguments)
            if self._replication is not None:
                self._replication.spread()
        except NodeError as error:
            metrics.add(metrics.COMMANDS_REFUSED)
            if isinstance(error, StoreError):
                self._watch.failed(error)
                error = client_error(error)
            return (False, *to_wire(error))
        except Exception:
            log.exception("the registry's command %s failed", operation)
            return (False, *to_wire(InternalError()))
        metrics.add(metrics.COMMANDS)
        if operation == "remove_project":
            self.post(m.ProjectRemoved(arguments["project_id"]))
            if self._replication is not None:
                self._replication.remove_project(arguments["project_id"])
        if isinstance(result, Project):
            self._note_dedicated(result, removed=operation == "remove_project")
        if self._writer.resources_removed:
            self._writer.resources_removed = False
            self._has_orphans, self._next_collection = True, 0.0
        if operation in _FREES_STORAGE:
            self._next_storage = 0.0
        return True, encode_result(result)

    def _note_dedicated(self, project: Project, *, removed: bool) -> None:
        """Tell the supervisor if the set of projects with `dedicated = true` has changed."""
        others = self._dedicated - {project.project_id}
        wanted = project.dedicated and not removed
        dedicated = others | {project.project_id} if wanted else others
        if dedicated != self._dedicated:
            self._dedicated = dedicated
            self.post(m.DedicatedProjects(dedicated))

    def _on_quiet(self) -> None:
        """Do idle work: probe a failed store again, and remove module files that no resource refers
        to."""
        if self._replication is not None:
            self._replication.tick()
            if self._replication.damage:
                self._health.raise_(CHAIN_BROKEN, self._replication.damage)
            else:
                self._health.clear(CHAIN_BROKEN)
            if not self._replication.is_owner:
                return
        self._watch.probe()
        self._check_storage()
        if not self._has_orphans or time.monotonic() < self._next_collection:
            return
        self._next_collection = time.monotonic() + COLLECTION_S
        try:
            owned = {resource.sha256 for resource in self._reader.resources()}
            young = collect(self._modules, owned)
        except (OSError, StoreError) as error:
            log.warning("module files without a resource were not removed: %s", error)
            return
        self._has_orphans = young > 0

    def _check_storage(self) -> None:
        """Update which accounts exceed their quota of stored bytes.

        The check is periodic, because handlers write to stores without a command to the registry.
        """
        began = time.monotonic()
        if began < self._next_storage:
            return
        try:
            for account in self._writer.update_storage_marks():
                if account.over_storage:
                    log.warning(
                        "account %s exceeds its quota of stored bytes: "
                        "events of its projects are refused",
                        account.username,
                    )
                else:
                    log.info(
                        "account %s is within its quota of stored bytes again", account.username
                    )
        except (OSError, StoreError) as error:
            log.warning("the stored bytes of accounts could not be checked: %s", error)
        took_s = time.monotonic() - began
        self._next_storage = began + max(STORAGE_S, _STORAGE_SHARE * took_s)


def _remove_stores(stores: Path, projects: Iterable[Project]) -> None:
    """Remove stores of removed projects that were not cleaned up because of a crash."""
    known = {str(project.project_id) for project in projects}
    for folder in stores.iterdir():
        if folder.name not in known:
            log.warning("removing the store of project %s, which no longer exists", folder.name)
            shutil.rmtree(folder, ignore_errors=True)
