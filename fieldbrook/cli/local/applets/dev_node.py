"""`applet dev --project`: deploys a module, sends events and follows the log."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any

from fieldbrook.cli.client import Client
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import (
    ClientError,
    RefusedError,
    UnreachableError,
    expected_errors,
)
from fieldbrook.cli.input import read_module
from fieldbrook.cli.local.applets.dev_blocks import Block, Blocks, Shown
from fieldbrook.cli.remote.events.logs import last_sequence, log_line
from fieldbrook.cli.remote.events.send import failed, post_event
from fieldbrook.cli.remote.lookup import Object, find_publisher, open_project, publishers
from fieldbrook.cli.remote.projects.applets import deploy_module
from fieldbrook.cli.stream import follow
from fieldbrook.cli.text import available

_RETRY_S = 1.0
_FOLLOWED_ROWS = 1_000


class ProjectTarget:
    """Deploys to a project. Within its context, it prints the project's log rows."""

    def __init__(
        self,
        project: str,
        name: str,
        strategies: Sequence[tuple[str, str]],
        send: Path | None,
        publisher: str | None,
        blocks: Blocks,
    ) -> None:
        """Look the project up.

        Raises:
            ClientError: there is no login, no such project, or no such publisher.
        """
        self._client, self._project = open_project(project)
        self._client.call("GET", ["project", self._project])
        self._sender = current().anonymous_client()
        self._name, self._send, self._blocks = name, send, blocks
        self._info: dict[str, Any] = {"appletName": name}
        if strategies:
            pairs = [{"eventType": kind, "handler": handler} for kind, handler in strategies]
            self._info["strategies"] = pairs
        self._publisher: Object = {}
        if send is not None:
            self._publisher = self._find_publisher(publisher)
        self._deployed = b""
        self.kept = ""
        follower = current().client()
        newest = last_sequence(follower, self._project)
        self._log = _LogFollower(follower, self._project, newest, blocks)

    def __enter__(self) -> ProjectTarget:
        self._log.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._blocks.close()
        self._log.stop()

    def apply(self, module: Path, block: Block) -> None:
        """Deploy the module unless it is deployed already, and send the events."""
        # A node closes idle connections, and a request that changes something is not repeated, so
        # begin with a new connection.
        self._client.close()
        self._sender.close()
        content = read_module(module)
        if content == self._deployed:
            block.deployed = f"the module is the same: {self.kept}"
        else:
            info = {**self._info, "wasmName": module.name}
            try:
                value = deploy_module(self._client, self._project, info, content)
            except ClientError as error:
                error.hint = self._blocks.explain(error)
                raise
            self._deployed = content
            self._info.pop("strategies", None)  # they may change on the node
            version = f"version {value['version']} of {self._name}"
            self.kept = f"{version} keeps running in {self._project}"
            block.deployed = f"deployed {version} to {self._project}"
        if self._send is not None:
            self._send_events(self._send, block)

    def _send_events(self, path: Path, block: Block) -> None:
        from fieldbrook.workbench import files

        with expected_errors(files.WorkbenchError):
            events = files.read_events(path)
        for event_type, payload in events:
            header = {
                "event_type": event_type,
                "pub_id": str(self._publisher["key"]),
                "token": str(self._publisher["token"]),
                "event_id": f"cli-{secrets.token_hex(8)}",
                "pub_time": time.time_ns() // 1_000_000,
            }
            before = time.perf_counter()
            results = post_event(self._sender, self._project, header, payload)
            elapsed_ms = (time.perf_counter() - before) * 1000
            block.runs.append(
                Shown(
                    f"{event_type} ({len(payload)} bytes)",
                    [_result(result) for result in results] or ["no handler ran"],
                    any(failed(result) for result in results),
                    elapsed_ms,
                    key=(event_type, payload),
                )
            )

    def _find_publisher(self, given: str | None) -> Object:
        if given is not None:
            return find_publisher(self._client, self._project, given)
        rows = publishers(self._client, self._project)
        if not rows:
            raise ClientError(
                f"project {self._project} has no publisher to send events as",
                f"add one with `fieldbrook publisher add {self._project} KEY`",
            )
        if len(rows) > 1:
            hint = available("publisher", [str(row["key"]) for row in rows])
            raise ClientError("name the publisher with --publisher", hint)
        return rows[0]


def _result(result: Object) -> str:
    error = result.get("errMsg")
    return f"trap     {error}" if error else f"code     {result.get('code', 0)}"


class _LogFollower:
    """Prints the log rows of a project as they arrive, in a thread."""

    def __init__(self, client: Client, project: str, after: int, blocks: Blocks) -> None:
        self._client, self._project, self._after = client, project, after
        self._blocks = blocks
        self._stopped = Event()
        self._thread = Thread(target=self._follow, name="log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end; if it waits for the node, it ends with the program."""
        self._stopped.set()

    def _follow(self) -> None:
        is_told = False
        while not self._stopped.is_set():
            query = {"follow": "true", "after": self._after, "limit": _FOLLOWED_ROWS}
            try:
                for row in follow(self._client, ["applet_log", self._project], **query):
                    is_told = False
                    self._after = int(row["sequence"])
                    self._blocks.write_row(row, log_line(row))
            except UnreachableError as error:
                if not is_told:
                    self._blocks.write_note(f"the log is interrupted: {error}")
                is_told = True
            except RefusedError as error:
                if error.status not in (429, 503):
                    self._blocks.write_note(f"the log ends: {error}")
                    return
            except ClientError as error:
                self._blocks.write_note(f"the log ends: {error}")
                return
            self._stopped.wait(_RETRY_S)
