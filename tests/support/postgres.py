"""A PostgreSQL server for the tests: a private folder and a loopback port."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from fieldbrook.system.process_tree import descendants
from tests.support.nodes import alive
from tests.support.tools import LIMIT_S, free_port, require_tool

# Exactly the rights that the documentation requires for the role of the DSN.
_RIGHTS = (
    "CREATE ROLE node LOGIN CREATEROLE PASSWORD '{password}'",
    "CREATE DATABASE node",
    "GRANT CREATE, CONNECT ON DATABASE node TO node",
    "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC",
)
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "40",
    "shared_buffers": "16MB",
    "fsync": "off",  # safe, because tests kill processes but never the machine
}


class PostgresServer:
    """A running server; `dsn` has a role with the rights that a node needs."""

    def __init__(self) -> None:
        self._initdb, self._postgres = require_tool("initdb"), require_tool("postgres")
        self.folder = Path(tempfile.mkdtemp(prefix="fieldbrook-postgres-"))
        self._user: str | None = None
        if os.geteuid() == 0:  # a server refuses to run as root
            self._user = "postgres"
            account = pwd.getpwnam(self._user)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self._password = secrets.token_hex(8)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._make()
        except BaseException:
            self.remove()
            raise

    def _make(self) -> None:
        given = self.folder / "password"
        given.write_text(self._password)
        given.chmod(0o644)
        command = [
            *(self._initdb, "-D", str(self.folder / "data"), "-U", "owner", "--no-sync"),
            *("--auth=scram-sha-256", f"--pwfile={given}", "--encoding=UTF8", "--locale=C.UTF-8"),
        ]
        done = subprocess.run(
            command, user=self._user, cwd=self.folder, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        self.start()
        for statement in _RIGHTS:
            self.run(statement.format(password=self._password), self.owner_dsn)

    @property
    def dsn(self) -> str:
        """The DSN of the node's role."""
        return f"postgresql://node:{self._password}@127.0.0.1:{self.port}/node"

    @property
    def owner_dsn(self) -> str:
        """The DSN of the superuser."""
        return f"postgresql://owner:{self._password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._postgres, "-D", str(self.folder / "data"), "-p", str(self.port)),
                    *(f"-c{name}={value}" for name, value in _SETTINGS.items()),
                ],
                user=self._user,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while True:
            try:
                self.run("SELECT 1", self.owner_dsn)
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.02)  # attempts without a pause would slow down the start

    def run(self, statement: str, dsn: str | None = None) -> list[tuple[object, ...]]:
        """Execute a statement as the node's role, or as the role of `dsn`; return its rows."""
        with psycopg.connect(dsn or self.dsn, autocommit=True, connect_timeout=60) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def stop(self) -> None:
        """Stop the server at once; open transactions are rolled back."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        pids = descendants(process.pid)
        process.send_signal(number)
        if number == signal.SIGKILL:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        process.wait(LIMIT_S)
        while any(alive(pid) for pid in pids):  # they hold resources of the next server
            time.sleep(0.005)

    def remove(self) -> None:
        """Stop the server and remove its files."""
        self._end(signal.SIGINT)
        shutil.rmtree(self.folder, ignore_errors=True)
