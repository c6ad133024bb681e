"""A process that has imported the command line and forks for each command.

The imports of a command take several times as long as its work, and the imports of a node take half
of its start. With this server, each command still has its own process, arguments, environment and
standard streams, and runs like `python -m fieldbrook` from its first line to its exit. But values
that modules read from the environment during their import are those of the server, except for the
fault points.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NoReturn

from tests.support.tools import LIMIT_S

ROOT = Path(__file__).parents[2]
_REQUEST_BYTES = 1 << 20


class Started:
    """A command that was started; has the methods of `subprocess.Popen` that tests need."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(connection.recv(16))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while the command runs."""
        return self._await(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the command; return the exit code.

        Raises:
            subprocess.TimeoutExpired: the command still runs after `timeout` seconds.
        """
        code = self._await(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("fieldbrook", timeout or 0)
        return code

    def _await(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = int(self._connection.recv(16))
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class CommandServer:
    """The server, which ends with this process."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="commands-")
        self._address = f"{self._folder.name}/socket"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_server", self._address],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n"
        atexit.register(self._process.communicate, timeout=LIMIT_S)

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: Sequence[int],
        *,
        folder: Path | None = None,
        own_session: bool = False,
        modules: Sequence[str] = (),
    ) -> Started:
        """Start a command. It is killed when the returned object is deleted.

        Args:
            arguments: the arguments after `fieldbrook`.
            environment: all environment variables of the command.
            streams: descriptors of the three standard streams.
            folder: the current folder of the command; None for that of this process.
            own_session: whether the command runs in a session of its own.
            modules: the modules that the server imports before it forks, unless it has imported
                them already.
        """
        request = {
            "arguments": arguments,
            "environment": {**environment},
            "folder": str(folder or Path.cwd()),
            "own_session": own_session,
            "modules": modules,
        }
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(LIMIT_S)
            connection.connect(self._address)
            socket.send_fds(connection, [json.dumps(request).encode()], streams)
            return Started(connection)
        except BaseException:
            connection.close()
            raise

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the current folder to its end, for at most `LIMIT_S`."""
        with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            streams = [given.fileno(), out.fileno(), err.fileno()]
            code = self.start(arguments, environment, streams).wait(LIMIT_S)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


@functools.cache
def command_server() -> CommandServer:
    """Return the server of this process."""
    return CommandServer()


@functools.cache
def node_server() -> CommandServer:
    """Return a second server of this process, for nodes, because their modules would make each
    command slower."""
    return CommandServer()


def _serve(path: str) -> None:
    """Answer requests until standard input ends."""
    import fieldbrook.cli.main
    import fieldbrook.cli.remote.lookup  # noqa: F401 - which most commands import

    gc.freeze()  # a collection in a command would copy what it shares with this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody collects their exit codes
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        while listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                data, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
                request = json.loads(data)
                _import(request["modules"])
                if os.fork():
                    for stream in streams:
                        os.close(stream)
                    continue
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                command = os.fork()
                if command:
                    for stream in streams:
                        os.close(stream)  # so that readers of a pipe notice the end
                    _await(command, connection)
            _run(request, streams)
            return


def _import(modules: Sequence[str]) -> None:
    new = [name for name in modules if name not in sys.modules]
    if not new:
        return
    gc.disable()
    limit = sys.getrecursionlimit()
    for name in new:
        importlib.import_module(name)
    sys.setrecursionlimit(limit)  # which eth-account raises, see `fieldbrook.chain.libraries`
    gc.collect()
    gc.freeze()
    gc.enable()


def _await(command: int, connection: socket.socket) -> NoReturn:
    """Send the client the process id and the exit code of its command; kill the command if the
    client has gone."""
    connection.send(str(command).encode())
    ended = os.pidfd_open(command)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(command, signal.SIGKILL)
    _, status = os.waitpid(command, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(request: dict[str, Any], streams: list[int]) -> None:
    """Run as `python -m fieldbrook` until it ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["own_session"]:
        os.setsid()
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    if fault_points := sys.modules.get("fieldbrook.observability.fault_points"):
        importlib.reload(fault_points)
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    sys.argv = ["fieldbrook", *request["arguments"]]
    runpy.run_module("fieldbrook", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
