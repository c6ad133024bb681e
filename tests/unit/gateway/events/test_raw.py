"""Events against a real registry, up to the project's link: data pushes, raw and refused ones."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.clock import now_ms
from fieldbrook.core.model import ADMIN
from fieldbrook.gateway.events.handling import EventService
from fieldbrook.gateway.events.request import Meta
from fieldbrook.gateway.http.fast_path import render
from fieldbrook.gateway.links import fair_queue
from fieldbrook.gateway.links.project_clients import ProjectClients
from fieldbrook.gateway.replies import EventReply
from fieldbrook.storage.registry.service import RegistryWriter, execute

KEY = b"k" * 32
RIGHTS = {"Event": "READ_WRITE"}


class Direct:
    """Runs the registry's commands without its process."""

    def __init__(self, writer: RegistryWriter) -> None:
        self._writer = writer

    async def call(self, op: str, **args: Any) -> Any:
        return execute(self._writer, op, args)


class Quiet:
    """A gateway whose supervisor never sends a route, so that events wait."""

    def activate(self, project_id: int) -> None:
        pass


class Node:
    """A registry with a project, and the service of a gateway in front of it."""

    def __init__(self, folder: Path) -> None:
        self.writer = RegistryWriter(folder / "registry", 64 << 20, now_ms, KEY)
        self.account = self.writer.create_account("ada", "h", ADMIN)
        project = execute(
            self.writer, "create_project", {"account_id": self.account.account_id, "name": "room"}
        )
        self.project_id: int = project.project_id
        self.projects = ProjectClients(Quiet(), asyncio.get_running_loop())
        self.service = EventService(
            self.writer.reader(), Direct(self.writer), KEY, self.projects, "v", 1 << 20
        )
        self.replies: list[EventReply] = []

    def key(self, name: str = "gateway", expires_at: int = 0) -> str:
        issued = self.writer.create_access_key(
            self.account.account_id, name, RIGHTS, expires_at=expires_at
        )
        return issued.text

    async def push(self, key: str, items: int) -> EventReply | None:
        body = json.dumps([{"device_id": f"d{n % 3}", "payload": "x"} for n in range(items)])
        before = len(self.replies)
        self.service.raw.submit(
            "room", body.encode(), self.replies.append, Meta("DA-TA_PU-SH", token=key)
        )
        await asyncio.gather(*self.service.data_push.tasks)
        return self.replies[-1] if len(self.replies) > before else None


@contextmanager
def serving(folder: Path) -> Iterator[Node]:
    node = Node(folder)
    try:
        yield node
    finally:
        node.writer.close()


async def test_a_push_that_does_not_fit_is_refused_whole(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        key = node.key()
        fitting = (fair_queue.EVENTS_LIMIT - 2 * 4_000) // (2 * 4_000) + 1
        for _ in range(fitting):
            assert await node.push(key, 4_000) is None
        refused = await node.push(key, 4_000)
        assert refused is not None
        assert (refused.status, json.loads(refused.body)["key"]) == (429, "TooManyRequests")
        assert len(node.projects[node.project_id]._queue) == fitting * 4_000


async def test_new_devices_are_registered_once_for_a_whole_push(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        reader = node.writer.reader()
        key = node.key()
        before = reader.version()
        assert await node.push(key, 300) is None
        assert {p.key for p in reader.publishers(node.project_id)} == {"d0", "d1", "d2"}
        assert reader.version() == before + 1
        assert await node.push(key, 300) is None
        assert reader.version() == before + 1


async def test_an_expired_access_key_is_refused_however_often_it_was_good(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        ends = now_ms() + 60_000
        key = node.key(expires_at=ends)
        assert await node.push(key, 1) is None
        node.writer.update_access_key(node.account.account_id, "gateway", expires_at=now_ms() - 1)
        refused = await node.push(key, 1)
        assert refused is not None
        assert (refused.status, json.loads(refused.body)["key"]) == (403, "AccessKeyExpired")


async def test_a_token_removed_in_the_registry_stops_with_the_next_event(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        publisher = node.writer.create_publisher(node.project_id, "d", "d", access_key=True)
        meta = Meta("T", token=publisher.token)
        node.service.raw.submit("room", b"x", node.replies.append, meta)
        assert not node.replies  # the event waits for the project
        node.writer.rotate_publisher_token(publisher.publisher_id)
        await asyncio.sleep(0)
        node.service.raw.submit("room", b"x", node.replies.append, meta)
        (refused,) = node.replies
        assert refused.status in (401, 404)


@pytest.mark.parametrize(
    "token", ["x", "x" * 2_000, None], ids=["wrong token", "long token", "no token"]
)
async def test_the_body_of_a_refused_event_is_freed_at_once(
    tmp_path: Path, token: str | None
) -> None:
    """The bodies must not wait for the garbage collector; once, 85 bodies of a megabyte did."""
    header = {"pub_id": "p"} if token is None else {"pub_id": "p", "token": token}
    body = json.dumps({"header": header, "payload": "aGlo" * 100_000}).encode()
    with serving(tmp_path) as node:
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(20):
                node.service.submit("room", bytes(bytearray(body)), node.replies.append)
                assert node.replies.pop().status in (400, 404)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert held < 2 * len(body)


async def test_answers_with_many_reasons_of_failures_are_not_kept(tmp_path: Path) -> None:
    """An applet can fail with another text in each of its handlers and at each event."""
    with serving(tmp_path) as node:
        tracemalloc.start()
        for number in range(500):
            results = tuple((handler, -1, f"{number} " + "x" * 250) for handler in range(50))
            reply = node.service._reply(results, "id", "DEFAULT")
            assert json.loads(reply.body)["results"][49]["errMsg"] == results[49][2]
            render(reply)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert held < 1 << 20
