"""A worker's projects, runners and journal in this process, without a node and without actors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fieldbrook.actors import messages as m
from fieldbrook.actors.frame_server import FrameServer
from fieldbrook.actors.project.actor import ProjectActor, WorkerContext
from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads
from fieldbrook.actors.shared_journal import ProjectRecords, SharedJournal
from fieldbrook.actors.wire import FrameReader, WireEvent, frame, pack, unpack
from fieldbrook.actors.worker.core import WorkerCore
from fieldbrook.actors.worker.journal import open_journal
from fieldbrook.actors.worker.runners import Runners
from fieldbrook.core import clock
from fieldbrook.core.model import ADMIN
from fieldbrook.core.settings import load
from fieldbrook.storage.project.store import store_path
from fieldbrook.storage.registry.service import RegistryWriter
from fieldbrook.wasm.engine.compile import CompiledModule, compile_in_child
from fieldbrook.wasm.engine.engine import make_engine, start_ticker
from fieldbrook.wasm.limits import Limits
from tests.support.nodes import until
from tests.support.projects import MODULE

LIMITS = Limits(deadline_ms=1_000)
STRATEGIES = [("DEFAULT", "start"), ("TWO", "quick")]


class Worker:
    """A worker with some projects, and a connection to it.

    Project n has the module n of `modules` (modulo their number), with `strategies`.
    """

    def __init__(
        self,
        folder: Path,
        projects: int = 2,
        modules: Sequence[bytes] = (MODULE,),
        strategies: Sequence[tuple[str, str]] = STRATEGIES,
    ) -> None:
        self.folder = folder
        self._strategies = strategies
        self.settings = load(data=folder, deadline_ms=LIMITS.deadline_ms, project_idle_s=3600)
        self.posted: list[object] = []
        (folder / "modules").mkdir()
        (folder / "projects").mkdir()
        writer = RegistryWriter(folder / "registry", 64 << 20, clock.now_ms, b"k" * 32)
        account = writer.create_account("ada", "h", ADMIN)
        self.projects = [
            writer.create_project(account.account_id, f"p{n}").project_id for n in range(projects)
        ]
        compiled = [self._compile(module) for module in modules]
        self.applets = {
            project: self._deploy(writer, account.account_id, project, compiled[n % len(compiled)])
            for n, project in enumerate(self.projects)
        }
        self._writer = writer
        self.start()

    def _compile(self, module: bytes) -> CompiledModule:
        source = self.folder / "modules/upload"
        source.write_bytes(module)
        return compile_in_child(source, self.folder / "modules", LIMITS)

    def _deploy(
        self, writer: RegistryWriter, account_id: int, project_id: int, found: CompiledModule
    ) -> int:
        made = writer.create_applet(
            *(project_id, account_id, "applet", "a.wasm", "a.wasm", found.sha256),
            *(found.md5, found.size, list(found.handlers), list(self._strategies)),
        )
        return made.applet.applet_id

    def start(self) -> None:
        """Start to serve; the journal is that of an earlier worker, if there was one."""
        self.open()
        self.serve()

    def open(self) -> None:
        """Make the worker's core, with a journal that is recovered."""
        self.look_ahead_threads = LookAheadThreads(1)
        engine = make_engine(LIMITS)
        start_ticker(engine)
        reader = self._writer.reader()
        journal, damaged = open_journal(self.settings, reader, "0", segment_bytes=1 << 20)
        assert not damaged
        self.journal = SharedJournal(journal)
        context = WorkerContext(
            *(self.settings, self.folder, reader, engine),
            *(self.look_ahead_threads, self.posted.append),
        )
        self.core = WorkerCore(self.journal, self.posted.append)
        self.actors = {
            project_id: ProjectActor(
                project_id, 1, -1, context, ProjectRecords(project_id, self.journal)
            )
            for project_id in self.projects
        }
        for actor in self.actors.values():
            self.core.host(actor)

    def serve(self) -> None:
        """Start the worker's threads, and connect to it."""
        path = self.folder / "w0.1"
        self.server = FrameServer(path)
        self.runners = Runners(self.core, self.server)
        self.runners.start()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._reader = FrameReader()
        self._answers: list[tuple[int, Any]] = []

    def send(self, *bodies: tuple[int, Sequence[WireEvent] | dict[str, Any]]) -> None:
        """Send one frame with bodies of several projects."""
        self._socket.sendall(frame(pack(bodies)))

    def receive(self, count: int) -> list[tuple[int, Any]]:
        """Return the next `count` answers, in the order in which they arrive."""
        self._socket.settimeout(20)
        while len(self._answers) < count:
            data = self._socket.recv(1 << 16)
            assert data, "the worker closed the connection"
            for answers in self._reader.feed(data):
                self._answers.extend(unpack(answers))
        taken, self._answers = self._answers[:count], self._answers[count:]
        return taken

    def ended(self, project_id: int) -> m.ProjectEnded:
        """Wait for the message that a project has ended, and return it."""
        part = f"project:{project_id}"

        def found() -> m.ProjectEnded | None:
            for message in list(self.posted):
                if isinstance(message, m.ProjectEnded) and message.part == part:
                    return message
            return None

        ended: m.ProjectEnded = until(found, f"{part} ended")
        return ended

    def store(self, project_id: int) -> Path:
        """Return the folder of a project's store."""
        return store_path(self.folder / "projects", project_id)

    def call(self, action: Any) -> None:
        """Have the thread with the execution lock call a function, and wait for the call."""
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self.core.call(act)
        self.server.wake()
        assert done.wait(20)

    def close(self) -> None:
        """Close the worker; afterwards all stores are up to date."""
        self.runners.stop(20)
        self.look_ahead_threads.close()
        self._socket.close()
        self.journal.close()
        self._writer.close()


@contextmanager
def running_worker(folder: Path, projects: int = 2) -> Iterator[Worker]:
    """Run a worker during the block."""
    worker = Worker(folder, projects)
    try:
        yield worker
    finally:
        worker.close()


def count(results: Any) -> int:
    """Return the count that a handler returned for one event."""
    (((_, code, error),),) = results
    assert error == ""
    return int(code)
