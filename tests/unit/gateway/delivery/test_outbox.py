"""Consuming an outbox of a real frame server in a thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from pathlib import Path

import pytest

from fieldbrook.actors.frame_server import FrameServer, Request
from fieldbrook.actors.wire import AFTER, DONE, LIMIT, NOT_HERE, WireEntry, frame, pack, unpack
from fieldbrook.gateway.chain_client import read_frame
from fieldbrook.gateway.delivery.outbox import _IN_FLIGHT_BYTES, OutboxConsumer, deliveries
from fieldbrook.storage.project.outbox import FIRST_BYTES, MQTT, OutboxEntry
from fieldbrook.storage.project.store import ProjectStore
from tests.support.tools import LIMIT_S

BODY = bytes(1 << 20)
ENTRIES = 60


class Project:
    """A project that gives its store's outbox to consumers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.left = ENTRIES
        self.asked = 0
        self.server = FrameServer(folder / "p", self._on_requests, tick_s=0.05)
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        store = ProjectStore(self.folder / "store", 256 << 20)
        store.sent += [OutboxEntry(MQTT, "t", BODY, "e", "a", 1, 0) for _ in range(ENTRIES)]
        store.commit()
        self.outbox = store.outbox
        self.server.serve()
        store.close()

    def _on_requests(self, requests: list[Request]) -> None:
        for connection, data in requests:
            [(project_id, request)] = unpack(data)
            self.outbox.remove(request[DONE])
            entries = self.outbox.first(request[LIMIT], request[AFTER])
            assert sum(len(entry.body) for _, entry in entries) <= FIRST_BYTES + len(BODY)
            rows = [(n, e.kind, e.target, e.body, e.event_id) for n, e in entries]
            connection.answer([(project_id, rows)])
            self.left = len(self.outbox)
            self.asked += 1

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(LIMIT_S)


async def _call_nothing(project_id: int, entry: WireEntry) -> None:
    raise AssertionError("there are no API calls")


def test_large_messages_wait_in_the_outbox_while_the_broker_takes_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        project = Project(tmp_path)
        under_way = 0
        broker_takes = asyncio.Event()

        async def publish(topic: str, payload: bytes, project_id: int) -> None:
            nonlocal under_way
            under_way += 1
            await broker_takes.wait()
            under_way -= 1

        consumer = OutboxConsumer(deliveries(publish, _call_nothing))
        consumer.consume(7, str(project.server._path))
        async with asyncio.timeout(LIMIT_S):
            while project.asked < 20:
                await asyncio.sleep(0.01)
            assert under_way * len(BODY) >= _IN_FLIGHT_BYTES
            assert under_way * len(BODY) <= _IN_FLIGHT_BYTES + FIRST_BYTES + len(BODY)
            broker_takes.set()
            while project.left:
                await asyncio.sleep(0.01)
        consumer.stop()
        await asyncio.to_thread(project.stop)

    asyncio.run(scenario())


def test_projects_whose_messages_wait_leave_memory_for_those_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        slow = []
        for number in range(4):
            (tmp_path / f"{number}").mkdir()
            slow.append(Project(tmp_path / f"{number}"))
        (tmp_path / "other").mkdir()
        other = Project(tmp_path / "other")
        waiting: Counter[int] = Counter()
        broker_takes = asyncio.Event()

        async def publish(topic: str, payload: bytes, project_id: int) -> None:
            if project_id < len(slow):
                waiting[project_id] += 1
                await broker_takes.wait()

        limit = 8 << 20
        consumer = OutboxConsumer(deliveries(publish, _call_nothing), limit_bytes=limit)
        for number, project in enumerate(slow):
            consumer.consume(number, str(project.server._path))
        async with asyncio.timeout(LIMIT_S):
            while any(project.asked < 20 for project in slow):
                await asyncio.sleep(0.01)
            assert len(waiting) == len(slow), "each has something"
            # A project that requests while others do may get one answer beyond the limit.
            assert waiting.total() * len(BODY) <= limit + len(slow) * (FIRST_BYTES + len(BODY))
            consumer.consume(len(slow), str(other.server._path))
            while other.left:
                await asyncio.sleep(0.01)
            broker_takes.set()
            while any(project.left for project in slow):
                await asyncio.sleep(0.01)
        consumer.stop()
        for project in (*slow, other):
            await asyncio.to_thread(project.stop)

    asyncio.run(scenario())
    warned = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    # The consumer may have sent a request just before it was stopped.
    assert [text for text in warned if "a connection was closed" not in text] == []


def test_a_project_that_has_left_the_worker_ends_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        asked: list[object] = []
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await read_frame(reader))
            writer.write(frame(pack([(7, NOT_HERE)])))
            assert await reader.read() == b""
            writer.close()
            ended.set()

        path = str(tmp_path / "w")
        server = await asyncio.start_unix_server(serve, path)
        consumer = OutboxConsumer({})
        consumer.consume(7, path)
        async with asyncio.timeout(LIMIT_S):
            await ended.wait()
            while consumer._projects:
                await asyncio.sleep(0.001)
        assert len(asked) == 1
        server.close()

    asyncio.run(scenario())


def test_a_project_that_moves_is_asked_in_its_new_worker(tmp_path: Path) -> None:
    async def scenario() -> None:
        asked, moved, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def serve_old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_frame(reader)
            asked.set()
            await moved.wait()
            writer.write(frame(pack([(7, [])])))
            await read_frame(reader)
            writer.write(frame(pack([(7, NOT_HERE)])))
            writer.close()

        async def serve_new(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_frame(reader)
            done.set()
            writer.close()

        old = await asyncio.start_unix_server(serve_old, tmp_path / "old")
        new = await asyncio.start_unix_server(serve_new, tmp_path / "new")
        consumer = OutboxConsumer({})
        consumer.consume(7, str(tmp_path / "old"))
        async with asyncio.timeout(LIMIT_S):
            await asked.wait()
            consumer.consume(7, str(tmp_path / "new"))
            moved.set()
            await done.wait()
        consumer.stop()
        old.close()
        new.close()

    asyncio.run(scenario())


def test_a_project_that_announces_entries_while_its_old_connection_ends_is_asked_again(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        connections = 0
        asked, may_end = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await read_frame(reader)
            asked.set()
            await may_end.wait()
            if connections == 1:
                writer.write(frame(pack([(7, [])])))
                await read_frame(reader)
            writer.close()

        path = str(tmp_path / "w")
        server = await asyncio.start_unix_server(serve, path)
        consumer = OutboxConsumer({})
        async with asyncio.timeout(LIMIT_S):
            consumer.consume(7, path)
            await asked.wait()
            consumer.consume(7, path)  # by the next worker of the project, at the same path
            may_end.set()
            while connections < 2 or consumer._projects:
                await asyncio.sleep(0.001)
        server.close()

    asyncio.run(scenario())
