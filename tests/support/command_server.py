"""A process that has imported the command line and forks for each command.

The imports of a command take several times as long as what it does. Here each command still has a
process of its own, with its arguments, environment and standard streams, and runs as
`python -m fieldbrook` does from its first line to its exit.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NoReturn

from tests.support.tools import LIMIT_S

ROOT = Path(__file__).parents[2]
_REQUEST_BYTES = 1 << 20


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

    def run(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], stdin: bytes
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the current folder to its end, which comes within `LIMIT_S`."""
        request = {
            "arguments": arguments,
            "environment": {**environment},
            "folder": str(Path.cwd()),
        }
        with (
            TemporaryFile() as given,
            TemporaryFile() as out,
            TemporaryFile() as err,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server,
        ):
            given.write(stdin)
            given.seek(0)
            server.settimeout(LIMIT_S)
            server.connect(self._address)
            streams = [given.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(server, [json.dumps(request).encode()], streams)
            code = int(server.recv(16))
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


@functools.cache
def command_server() -> CommandServer:
    """The server of this process."""
    return CommandServer()


def _serve(path: str) -> None:
    """Answer until standard input ends."""
    import fieldbrook.cli.main
    import fieldbrook.cli.remote.lookup  # noqa: F401 - which most commands import

    gc.freeze()  # a collection in a command would copy what it shares with this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for commands
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        while listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if os.fork():
                    continue
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                data, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
                command = os.fork()
                if command:
                    _await(command, connection)
            _run(json.loads(data), streams)
            return


def _await(command: int, connection: socket.socket) -> NoReturn:
    """Tell the client the exit code of its command; kill the command when the client is gone."""
    ended = os.pidfd_open(command)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(command, signal.SIGKILL)
    _, status = os.waitpid(command, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(request: dict[str, Any], streams: list[int]) -> None:
    """Be `python -m fieldbrook` until it ends."""
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    sys.argv = ["fieldbrook", *request["arguments"]]
    runpy.run_module("fieldbrook", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
