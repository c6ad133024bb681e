"""Connects the MQTT gateways of all hosts of a cluster.

Clients are connected to any host, and a handler runs on one host. So a message of a handler is sent
to each host, and counts as delivered when each host has stored it for its own subscribers. The same
connections carry questions about sessions (`gateway.mqtt.listener.moving`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fieldbrook.actors.remote_path import MQTT_SOCKET, remote_path, split_path
from fieldbrook.actors.wire import frame, pack
from fieldbrook.core.errors import NodeError
from fieldbrook.gateway.chain_client import read_frame
from fieldbrook.gateway.delivery.outbox import MessageRefusedError, Publish
from fieldbrook.gateway.links.cluster_hosts import ClusterHosts
from fieldbrook.observability.logs import RateLimitedLog

log = logging.getLogger(__name__)

Answer = Callable[[str, Sequence[Any]], Awaitable[object]]
"""Answers a question of another host; question and answer are msgpack values."""

_QUESTION = ""  # takes the place of the topic
_ANSWER_S = 10.0
_AGAIN_S = 0.5
_LOG_INTERVAL_S = 1.0
_AT_ONCE = 256  # the most messages of one host that are being stored at the same time


class OtherHosts:
    """Publishes messages on all other hosts that are up; used in the gateway's event loop.

    Args:
        run_dir: the folder of sockets.
        hosts: the hosts of the cluster.
    """

    def __init__(self, run_dir: Path, hosts: ClusterHosts) -> None:
        self._run_dir, self._hosts = run_dir, hosts
        self._links: dict[str, _Link] = {}
        self._in_progress: set[asyncio.Future[None]] = set()
        self._failures = RateLimitedLog(log, _LOG_INTERVAL_S)

    async def publish_on_all(
        self, publish: Publish, topic: str, payload: bytes, project_id: int
    ) -> None:
        """Make this host and each other host store a message of a handler.

        This does not wait for hosts that become silent meanwhile.

        Args:
            publish: stores the message on this host.
            topic: the topic of the message.
            payload: the payload of the message.
            project_id: the project of the handler.

        Raises:
            NodeError, MessageRefusedError: as `publish`.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_progress.add(done)
        try:
            await publish(topic, payload, project_id)
            await self._publish_on_others(topic, payload, project_id)
        finally:
            self._in_progress.discard(done)
            done.set_result(None)

    async def settled(self, limit_s: float) -> None:
        """Wait until each message that is being sent now is on all hosts, for at most `limit_s`."""
        if self._in_progress:
            await asyncio.wait(list(self._in_progress), timeout=limit_s)

    async def _publish_on_others(self, topic: str, payload: bytes, project_id: int) -> None:
        there = self.names()
        if there:
            message = topic, payload, project_id
            await asyncio.gather(*(self._publish_on(host, message) for host in there))

    async def ask(self, host: str, question: str, argument: Sequence[object]) -> Any:
        """Send a question to one host and return the answer; a host of an earlier version answers
        with an empty text.

        Raises:
            OSError, EOFError, ValueError, TimeoutError: the connection failed.
        """
        return await self._ask(host, (_QUESTION, question, argument))

    def names(self) -> list[str]:
        """Return the names of the other hosts that are up."""
        return list(self._there())

    def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            link.close()

    def _there(self) -> Iterator[str]:
        known = self._hosts.known()
        if known is not None and known.owners:
            for host in known.hosts:
                if host.name != known.me and host.state in ("up", "drained"):
                    yield host.name

    async def _publish_on(self, host: str, message: tuple[str, bytes, int]) -> None:
        while True:
            try:
                why = await self._ask(host, message)
            except (OSError, EOFError, ValueError, TimeoutError) as error:
                why = str(error) or type(error).__name__
            if not why or host not in self._there():
                return
            self._failures.warning("host %s does not take a message yet: %s", host, why)
            await asyncio.sleep(_AGAIN_S)

    async def _ask(self, host: str, request: tuple[object, object, object]) -> Any:
        link = self._links.get(host)
        if link is None:
            link = self._links[host] = _Link(remote_path(self._run_dir, host, MQTT_SOCKET))
        try:
            return await link.ask(request)
        except (OSError, EOFError, ValueError, TimeoutError):
            link.close()
            if self._links.get(host) is link:
                del self._links[host]
            raise


class _Link:
    """A connection to the MQTT gateway of one host, with many messages in flight."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._opened: asyncio.Task[asyncio.StreamWriter] | None = None
        self._reads: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: tuple[object, object, object]) -> Any:
        """Send a message or a question. The result for a message is why the host could not store
        it, empty if it did; for a question it is the answer.

        Raises:
            OSError, EOFError, ValueError, TimeoutError: the connection failed; the host may still
                have stored the message.
        """
        loop = asyncio.get_running_loop()
        if self._opened is None:
            self._opened = loop.create_task(self._open())
        async with asyncio.timeout(_ANSWER_S):
            writer = await asyncio.shield(self._opened)
            self._number += 1
            number = self._number
            answered: asyncio.Future[Any] = loop.create_future()
            self._waiting[number] = answered
            try:
                writer.write(frame(pack([number, *request])))
                await writer.drain()
                return await answered
            finally:
                self._waiting.pop(number, None)

    def close(self) -> None:
        """Close the connection. Callers that wait for an answer get an error."""
        for task in (self._opened, self._reads):
            if task is not None:
                task.cancel()
        if self._writer is not None:
            self._writer.close()
        self._fail(ConnectionError("the connection was closed"))

    async def _open(self) -> asyncio.StreamWriter:
        here, first = split_path(self._path)
        reader, self._writer = await asyncio.open_unix_connection(here)
        self._writer.write(first)
        self._reads = asyncio.get_running_loop().create_task(self._read(reader))
        return self._writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        error: Exception
        try:
            while True:
                number, answer = await read_frame(reader)
                answered = self._waiting.get(number)
                if answered is not None and not answered.done():
                    answered.set_result(answer)
        except (OSError, EOFError, ValueError, TypeError) as failed:
            error = failed
        self._fail(ConnectionError(str(error) or "the host has ended the connection"))

    def _fail(self, error: OSError) -> None:
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_exception(error)


async def serve_hosts(run_dir: Path, publish: Publish, answer: Answer) -> asyncio.Server:
    """Publish the messages of handlers on other hosts, and answer the questions of these hosts,
    until the server is closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        room = asyncio.Semaphore(_AT_ONCE)
        tasks: set[asyncio.Task[None]] = set()

        async def serve_one(number: int, topic: str, payload: Any, argument: Any) -> None:
            try:
                if topic == _QUESTION:
                    done = await _answered(answer, payload, argument)
                else:
                    done = await _stored(publish, topic, payload, argument)
                writer.write(frame(pack([number, done])))
            finally:
                room.release()

        try:
            while True:
                message: Any = await read_frame(reader)
                await room.acquire()
                task = asyncio.get_running_loop().create_task(serve_one(*message))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (OSError, EOFError, ValueError, TypeError) as error:
            log.debug("the connection of another host ended: %r", error)
        finally:
            for task in tasks:
                task.cancel()
            writer.close()

    path = run_dir / MQTT_SOCKET
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(serve, path)
    path.chmod(0o600)
    return server


async def _stored(publish: Publish, topic: str, payload: bytes, project_id: int) -> str:
    """Publish a message; return why it could not be stored, empty if it was stored."""
    try:
        await publish(topic, payload, project_id)
    except MessageRefusedError as error:
        log.debug("a message of project %d is refused here: %s", project_id, error)
    except NodeError as error:
        return str(error)
    return ""


async def _answered(answer: Answer, question: str, argument: Sequence[Any]) -> object:
    try:
        return await answer(question, argument)
    except NodeError as error:
        log.warning("a question of another host about a session has no answer: %s", error)
        return None
