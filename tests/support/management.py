"""The management interface over real HTTP without a node: a Tornado server in a thread, an LMDB
registry, compiled modules, and accounts that call routes."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from tornado import httpserver, netutil, web

from fieldbrook.actors.wire import pack, unpack
from fieldbrook.core.clock import Clock, now_ms
from fieldbrook.core.errors import NodeError, UnavailableError, from_wire, to_wire
from fieldbrook.core.model import ADMIN, DEVELOPER, Account
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.http.tornado.request_log import log_request
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.gateway.management.application import make_application_routes
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.prefixes import PREFIXES
from fieldbrook.observability.health import NodeHealth
from fieldbrook.security import tokens
from fieldbrook.security.operator_keys import Vault
from fieldbrook.storage.lmdb.rows import Numbered
from fieldbrook.storage.project.dead_letters import (
    ANY_LETTER,
    DeadLetter,
    LetterFilter,
    LetterGroup,
    LetterRange,
    NumberedDeadLetter,
)
from fieldbrook.storage.project.history.chunks import StoredChunk
from fieldbrook.storage.project.history.flow import Flow
from fieldbrook.storage.project.history.records import EventRecord
from fieldbrook.storage.project.history.replays import Replayable, ReplayFilter
from fieldbrook.storage.project.history.search import EventFilter, EventPage, Span
from fieldbrook.storage.project.history.traces import EventTrace
from fieldbrook.storage.project.log_search import LogFilter, LogPage
from fieldbrook.storage.project.outbox import DeliveryCounts, EffectOf
from fieldbrook.storage.project.rows import LogRow, MetricRow, NumberedRow
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.service import (
    RegistryWriter,
    decode_result,
    encode_result,
    execute,
)
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.storage.sql.sqlite.reader import SqliteReader
from fieldbrook.wasm.limits import Limits
from tests.support.tools import LIMIT_S

KEY = b"k" * 32
CODE = "one-time-code"
UPLOAD_LIMIT = 1 << 20
V0 = PREFIXES[0]

LOG_WAT = """
(module
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) i32.const 1024)
  (func (export "start") (param i32) (result i32) i32.const 0)
  (func (export "mint") (param i32) (result i32) i32.const 7))
"""
PLAIN_WAT = """
(module
  (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) i32.const 1024)
  (func (export "start") (param i32) (result i32) i32.const 1))
"""
NO_START_WAT = """
(module
  (memory (export "memory") 1)
  (func (export "mint") (param i32) (result i32) i32.const 1))
"""
UNLINKABLE_WAT = """
(module
  (import "env" "no_such_function" (func $f (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "start") (param i32) (result i32) i32.const 0))
"""


def wasm(text: str) -> bytes:
    """Return a module in binary form."""
    return bytes(wasmtime.wat2wasm(text))


class DirectRegistry:
    """Commands on a real writer, encoded as between processes."""

    def __init__(self, writer: RegistryWriter) -> None:
        self._writer = writer

    async def call(self, op: str, **args: Any) -> Any:
        """See `RegistryClient.call`."""
        try:
            return decode_result(op, encode_result(execute(self._writer, op, unpack(pack(args)))))
        except NodeError as error:
            raise from_wire(*to_wire(error)) from None


class MemoryStore:
    """The part of a project's store that management reads."""

    def __init__(self) -> None:
        self.rows: list[NumberedRow] = []
        self.pairs: dict[tuple[int, bytes], bytes] = {}

    def logs(self, after: int, limit: int) -> list[NumberedRow]:
        if after < 0:
            return self.rows[after:][:limit]
        return [row for row in self.rows if row.sequence > after][:limit]

    def find_logs_after(self, wanted: LogFilter, after: int, limit: int) -> LogPage:
        rows = [row for row in self.logs(after, limit) if wanted.matches(row.row)]
        return LogPage(rows, rows[-1].sequence if rows else after)

    def find_logs_before(self, wanted: LogFilter, before: int, limit: int) -> LogPage:
        rows = [row for row in self.rows[::-1] if wanted.matches(row.row)]
        return LogPage([row for row in rows if not before or row.sequence < before][:limit], 0)

    def metrics(self, after: int, limit: int) -> list[Numbered[MetricRow]]:
        return []

    def find_events(self, wanted: EventFilter, before: int, limit: int) -> EventPage:
        return EventPage([])

    def event_at(self, place: int) -> tuple[EventRecord, bytes | None] | None:
        return None

    def flow(self, begin_ms: int, now_ms: int) -> Flow:
        return Flow(begin_ms, now_ms)

    def deliveries(self, begin_ms: int) -> dict[str, DeliveryCounts]:
        return {}

    def trace_at(self, place: int) -> EventTrace | None:
        return None

    def trace_count(self) -> int:
        return 0

    def events_after(self, after: int, limit: int) -> list[StoredChunk]:
        return []

    def replayable(
        self, wanted: ReplayFilter, after: int, limit: int
    ) -> tuple[list[Replayable], int]:
        return [], 0

    def logs_of(self, event_id: str, limit: int, spans: Sequence[Span]) -> list[LogRow]:
        return []

    def effects_of(self, event_id: str, limit: int, spans: Sequence[Span]) -> list[EffectOf]:
        return []

    def dead_letters(
        self, before: int | None, limit: int, wanted: LetterFilter = ANY_LETTER
    ) -> tuple[list[NumberedDeadLetter], int]:
        return [], 0

    def newest_dead_letter(self) -> tuple[int, int]:
        return 0, 0

    def dead_letter_groups(self, wanted: LetterFilter) -> list[LetterGroup]:
        return []

    def select_dead_letters(
        self, wanted: LetterFilter, selected: LetterRange, limit: int
    ) -> tuple[list[int], int]:
        return [], 0

    def dead_letter(self, number: int) -> DeadLetter | None:
        return None

    def copy(self, target: Path) -> None:
        ProjectStore(target, 1 << 20).close()

    def kv_get(self, applet_id: int, key: bytes) -> bytes | None:
        return self.pairs.get((applet_id, key))

    def kv_keys(
        self, applet_id: int, prefix: bytes, limit: int, after: bytes | None = None
    ) -> list[bytes]:
        keys = sorted(key for owner, key in self.pairs if owner == applet_id)
        found = [key for key in keys if key.startswith(prefix) and (after is None or key > after)]
        return found[:limit]

    def kv_pairs(
        self, applet_id: int, prefix: bytes, limit: int, after: bytes | None, limit_bytes: int
    ) -> list[tuple[bytes, bytes]]:
        keys = self.kv_keys(applet_id, prefix, limit, after)
        return [(key, self.pairs[applet_id, key]) for key in keys]


@dataclass
class Reply:
    """An answer in its received form."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def key(self) -> str:
        """Return the error key, after checking that the body has the 8 keys in order."""
        error = self.json
        assert list(error) == [
            "key",
            "code",
            "msg",
            "desc",
            "canBeTalk",
            "id",
            "sources",
            "fields",
        ]
        assert error["code"] // 1_000_000 == self.status
        assert error["sources"] == ["srv-applet-mgr@0.0.9"]
        found = error["key"]
        assert isinstance(found, str)
        return found

    @property
    def fields(self) -> dict[str, str]:
        """`field` -> `msg` of a validation failure."""
        assert (self.status, self.key, self.json["code"]) == (400, "badRequest", 400_000_000)
        return {entry["field"]: entry["msg"] for entry in self.json["fields"]}


@dataclass
class Server:
    """The server under test, and ways to talk to it."""

    folder: Path
    writer: RegistryWriter
    port: int = 0
    stores: dict[int, MemoryStore] = field(default_factory=dict)
    health: NodeHealth = field(default_factory=NodeHealth)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def account(self, username: str, role: str = DEVELOPER) -> User:
        created = self.writer.create_account(username, "no password", role)
        return User(self, created)


class User:
    """An account that calls routes."""

    def __init__(self, server: Server, account: Account) -> None:
        self.server = server
        self.account = account
        self.log_in()

    def log_in(self) -> None:
        """Make a token of the present generation."""
        account = self.server.writer.reader().account(self.account.account_id)
        assert account is not None
        expires, generation = now_ms() // 1000 + 600, account.token_generation
        login = tokens.new_login(expires)
        self.token = tokens.issue_account_token(KEY, account.account_id, expires, login, generation)

    def __call__(self, method: str, path: str, body: Any = None) -> Reply:
        raw = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.token}"}
        return self.server.send(method, V0 + path, raw, headers)

    def upload(
        self, method: str, path: str, file: bytes | None, info: Any, filename: str = "log.wasm"
    ) -> Reply:
        body = b""
        if info is not None:
            text = info if isinstance(info, bytes) else json.dumps(info).encode()
            body += b'--B\r\nContent-Disposition: form-data; name="info"\r\n\r\n' + text + b"\r\n"
        if file is not None:
            head = f'Content-Disposition: form-data; name="file"; filename="{filename}"'
            body += b"--B\r\n" + head.encode() + b"\r\n\r\n" + file + b"\r\n"
        headers = {
            "Authorization": self.token,
            "Content-Type": "multipart/form-data; boundary=B",
        }
        return self.server.send(method, V0 + path, body + b"--B--\r\n", headers)

    def project(self, name: str = "NftMinter") -> dict[str, Any]:
        reply = self("POST", "/project", {"name": name})
        assert reply.status == 201, reply.body
        created: dict[str, Any] = reply.json
        return created

    def applet(self, project: str = "NftMinter", name: str = "log") -> dict[str, Any]:
        reply = self.upload("POST", f"/applet/{project}", wasm(LOG_WAT), {"appletName": name})
        assert reply.status == 201, reply.body
        created: dict[str, Any] = reply.json
        return created


def started(tmp_path: Path, clock: Clock = now_ms) -> tuple[Server, ManagementContext]:
    """Make the registry of a node, and the objects with which a server serves it."""
    writer = RegistryWriter(tmp_path / "registry", 16 << 20, clock, KEY)
    server = Server(tmp_path, writer)
    context = ManagementContext(
        reader=writer.reader(),
        registry=DirectRegistry(writer),
        token_key=KEY,
        vault=Vault(KEY),
        upload_limit_bytes=UPLOAD_LIMIT,
        token_lifetime_s=3_600,
        modules_dir=tmp_path / "modules",
        uploads_dir=tmp_path / "uploads",
        setup_code=lambda: CODE,
        version="0.0.9",
        health=lambda: server.health,
        database_reader=lambda project_id, config: SqliteReader(
            tmp_path / "projects" / str(project_id) / "sql.db", config, SqlLimits()
        ),
        store_reader=lambda project_id: server.stores.get(project_id),
        limits=Limits(),
        command=obeys_nothing,
        chains=(Chain(id=4690, name="iotex-testnet", endpoints=("https://babel.example",)),),
        cron_jobs_limit=3,
        applet_versions_kept=3,
        clock=clock,
    )
    return server, context


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server, context = started(tmp_path)
    with serving(context) as port:
        server.port = port
        yield server
    server.writer.close()


async def obeys_nothing(_project_id: int, _name: str, _numbers: list[int]) -> Outcome:
    return UnavailableError(what="there is no project process here")


class serving:  # noqa: N801 - used as a context manager, like a function
    """A Tornado server in a thread, on a free port."""

    def __init__(self, context: ManagementContext) -> None:
        self._context = context
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.port = 0
        self._stop: Callable[[], object] = lambda: None

    def __enter__(self) -> int:
        self._thread.start()
        assert self._listening.wait(LIMIT_S)
        return self.port

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(LIMIT_S)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        application = web.Application(
            make_application_routes(self._context), log_function=log_request
        )
        server = httpserver.HTTPServer(application)
        sockets = netutil.bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        self.port = sockets[0].getsockname()[1]
        self._listening.set()
        await stopped.wait()
        server.stop()
        await server.close_all_connections()


@pytest.fixture
def ada(server: Server) -> User:
    return server.account("ada")


@pytest.fixture
def bob(server: Server) -> User:
    return server.account("bob")


@pytest.fixture
def root(server: Server) -> User:
    return server.account("root", ADMIN)


def register(server: Server, body: Any, **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.send("POST", f"{V0}/register/admin", json.dumps(body), names)


class KeyHolder:
    """Calls routes with an access key."""

    def __init__(self, server: Server, text: str) -> None:
        self.server = server
        self.text = text

    def __call__(self, method: str, path: str, body: Any = None) -> Reply:
        raw = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.text}"}
        return self.server.send(method, V0 + path, raw, headers)


def holder(user: User, name: str = "ci", days: int = 0, **privileges: str) -> KeyHolder:
    """Make a new key of the user; in names of groups, underscores stand for blanks."""
    body = {
        "name": name,
        "expirationDays": days,
        "privileges": [
            {"name": group.replace("_", " "), "perm": permission}
            for group, permission in privileges.items()
        ],
    }
    reply = user("POST", "/account_access_key", body)
    assert reply.status == 201, reply.body
    return KeyHolder(user.server, reply.json["accessKey"])


PASSWORD = "correct horse"


def login(server: Server, username: str, password: str = PASSWORD) -> Reply:
    body = json.dumps({"username": username, "password": password})
    return server.send("PUT", f"{V0}/login", body)
