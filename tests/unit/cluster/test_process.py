"""The cluster processes of several hosts, in one event loop and over real TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fieldbrook.actors import messages as m
from fieldbrook.actors.remote_path import HOSTS
from fieldbrook.cluster import hosts_file, joining
from fieldbrook.cluster.identity import Identity
from fieldbrook.cluster.links.lines import LINE_BYTES, LineError, receive, send
from fieldbrook.cluster.process import ClusterActor
from fieldbrook.core.cluster.membership import Host, Membership
from fieldbrook.core.settings import load
from tests.support.tools import free_port

LOCAL = "127.0.0.1"
LIMIT_S = 60.0
LONG_MS = 5_000


class Process(ClusterActor):
    """The cluster process of one host; its messages to the supervisor are stored."""

    def __init__(self, data: Path, silence_ms: int) -> None:
        super().__init__()
        self._settings = load(data=data, silence_ms=silence_ms)
        self._run_dir = data / "run"
        self._run_dir.mkdir(exist_ok=True)
        self._generation = 1
        self.sent: list[object] = []

    def post(self, message: object) -> None:
        self.sent.append(message)

    def hosts_up(self) -> list[tuple[str, ...]]:
        """Return the hosts that were present, at each change."""
        return [message.hosts for message in self.sent if isinstance(message, m.HostsUp)]

    def leaving(self) -> tuple[str, ...]:
        """Return the hosts that are present and get no projects."""
        return next(one.leaving for one in reversed(self.sent) if isinstance(one, m.HostsUp))

    def states(self) -> dict[str, str]:
        """Return the states of the hosts, as reported to gateways."""
        known = msgspec.json.decode((self._run_dir / HOSTS).read_bytes())
        return {host["name"]: host["state"] for host in known["hosts"]}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        """Run the process until the end of the context."""
        task = asyncio.ensure_future(self._main())
        try:
            await until(lambda: hasattr(self, "_listening"))
            self._serve_projects()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._listening.close()
            self._tunnels.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            ended = [other.task for other in self._peers.values() if other.task in tasks]
            for dialling in ended:
                dialling.cancel()
            await asyncio.gather(*ended, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


class Hosts:
    """The data folders of hosts of one cluster."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        names = [f"h{number}" for number in range(1, count + 1)]
        hosts = tuple(Host(name, LOCAL, free_port(), 1) for name in names)
        self.known = Membership("c1", "h1", hosts, formed=count >= 3)
        founder = self.identity = Identity(self.data("h1"))
        founder.create_authority()
        for name in names:
            identity = Identity(self.data(name))
            for file, content in founder.shared().items():
                identity.store_received(file, content)
            identity.store_own(founder.issue(name, LOCAL))
            hosts_file.save(self.data(name), msgspec.structs.replace(self.known, me=name))

    def data(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    def start(
        self, name: str, silence_ms: int = 500
    ) -> contextlib.AbstractAsyncContextManager[Process]:
        return Process(self.data(name), silence_ms).running()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def inner() -> None:
        await test()
        # The remaining tasks belong to connections whose other side has just ended.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    asyncio.run(inner())


def test_a_host_is_ready_when_it_has_heard_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 3)

    async def test() -> None:
        async with (
            hosts.start("h1", 10_000) as one,
            hosts.start("h2", 10_000) as two,
            hosts.start("h3", 10_000) as three,
        ):
            for host in (one, two, three):
                await until(lambda host=host: host.hosts_up())  # type: ignore[misc]
                first = next(each for each in host.sent if not isinstance(each, m.RunsOn))
                assert isinstance(first, m.Ready)
                # It never concludes that it is alone, because it would take over all projects then.
                assert host.hosts_up() == [("h1", "h2", "h3")]

    run(test)


def test_a_host_that_is_alone_is_ready_after_the_time_of_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 3)

    async def test() -> None:
        async with hosts.start("h2") as two:
            await until(two.hosts_up)
            assert two.hosts_up() == [("h2",)]

    run(test)


def test_a_host_that_ends_is_missed_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 3)

    async def test() -> None:
        async with hosts.start("h1") as one, hosts.start("h2"):
            async with hosts.start("h3"):
                await until(lambda: one.hosts_up()[-1:] == [("h1", "h2", "h3")])
            await until(lambda: one.hosts_up()[-1] == ("h1", "h2"))
            async with hosts.start("h3"):
                await until(lambda: one.hosts_up()[-1] == ("h1", "h2", "h3"))

    run(test)
    assert "host h3 is silent" in caplog.text


def test_two_hosts_that_join_at_the_same_time_both_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 1)
    (founder,) = hosts.known.hosts

    async def test() -> None:
        async with hosts.start("h1") as one:
            ports = [free_port() for _ in range(4)]
            new = [Host("h2", LOCAL, *ports[:2]), Host("h3", LOCAL, *ports[2:])]
            address, token = (LOCAL, founder.port), hosts.identity.token()
            joined = await asyncio.gather(
                *(joining._join(hosts.data(host.name), address, token, host) for host in new)
            )
            names = {host.name for host in one._known.hosts}
            assert names == {"h1", "h2", "h3"}
            assert hosts_file.load(hosts.data("h1")) == one._known
            assert [known.formed for known in joined].count(True) == 1

    run(test)


def test_a_host_that_waits_for_the_cluster_hears_at_once_that_it_has_formed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 2)
    third = Host("h3", LOCAL, free_port(), 1)

    async def test() -> None:
        async with hosts.start("h1") as one:
            myself = one._known.myself
            address = myself.address, myself.port
            context = Identity(hosts.data("h2")).client_context()
            question = {"op": "hosts", "more_than": 2}
            answer = await joining.ask(address, context, question)
            assert not answer["membership"]["formed"], "it waits again"
            waiting = asyncio.ensure_future(joining.ask(address, context, question))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await one._list._use(one._known.joined(third))
            assert (await waiting)["membership"]["formed"]

    run(test)


def test_a_host_that_was_away_learns_of_another_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 4)
    fewer = msgspec.structs.replace(hosts.known, me="h3", hosts=hosts.known.hosts[:3])
    hosts_file.save(hosts.data("h3"), fewer)

    async def test() -> None:
        async with hosts.start("h1"), hosts.start("h3") as three:
            await until(lambda: len(three._known.hosts) == 4)
            assert three._known.me == "h3"
            known = hosts_file.load(hosts.data("h3"))
            assert known is not None
            assert len(known.hosts) == 4

    run(test)


@pytest.mark.parametrize(
    "question",
    [{"op": "hosts"}, {"op": "tunnel", "socket": "w0.1"}, {"op": "link"}, {"op": None}, {}],
)
def test_a_host_that_was_removed_reaches_nothing(
    tmp_path: Path, question: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 3)
    removed = Identity(hosts.data("h3")).client_context()
    fewer = msgspec.structs.replace(hosts.known, hosts=hosts.known.hosts[:2], gone=("h3",))
    hosts_file.save(hosts.data("h1"), fewer)

    async def test() -> None:
        async with hosts.start("h1"):
            port = hosts.known.hosts[0].port
            reader, writer = await asyncio.open_connection(
                LOCAL, port, ssl=removed, limit=LINE_BYTES
            )
            send(writer, question)
            assert await receive(reader, LIMIT_S) == {"removed": "h3"}
            with pytest.raises(LineError):
                await receive(reader, LIMIT_S)
            writer.close()

    run(test)


def test_a_host_gets_no_projects_before_its_engine_has_caught_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A host without a majority, as on a busy machine, is not ready any more.
    hosts = Hosts(tmp_path, 3)

    async def test() -> None:
        async with hosts.start("h1", LONG_MS) as one, hosts.start("h2", LONG_MS) as two:
            await until(lambda: one.hosts_up()[-1:] == [("h1", "h2")])
            one._watch._is_ready = two._watch._is_ready = True
            async with hosts.start("h3", LONG_MS) as three:
                for host in (one, two, three):
                    await until(lambda host=host: host.hosts_up()[-1:] == [("h1", "h2")])  # type: ignore[misc]
                await until(lambda: one.leaving() == ("h3",))
                assert one.states() == {"h1": "up", "h2": "up", "h3": "catching_up"}
                three._watch._is_ready = True
                for host in (one, two, three):
                    await until(lambda host=host: host.hosts_up()[-1] == ("h1", "h2", "h3"))  # type: ignore[misc]
                assert {*one.states().values()} == {"up"}

    run(test)


def test_the_connection_of_a_silent_host_is_ended_so_that_no_old_beat_comes_over_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 3)

    async def test() -> None:
        async with hosts.start("h1") as one:
            context = Identity(hosts.data("h3")).client_context()
            port = hosts.known.hosts[0].port
            reader, writer = await asyncio.open_connection(
                LOCAL, port, ssl=context, limit=LINE_BYTES
            )
            send(writer, {"op": "link", "from": "h3"})
            while ("h1", "h3") not in one.hosts_up():
                one._watch._is_ready = True  # its engine has caught up with the engine of h3
                send(writer, {"beat": {}})
                await asyncio.sleep(0.1)
            await until(lambda: one.hosts_up()[-1] == ("h1",))
            with pytest.raises((LineError, OSError)):
                await receive(reader, LIMIT_S)
            writer.close()

    run(test)


def test_what_another_host_was_asked_is_asked_again_when_the_connection_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 3)
    lost = m.RemoteRoute(7, "h2", None, alone=False)

    async def test() -> None:
        async with hosts.start("h1") as one:
            one._routes.ask(one._peers.get("h2"), m.ActivateOn("h2", 7, 1))
            await until(lambda: lost in one.sent)  # there is no connection
            async with hosts.start("h2") as two:
                await until(lambda: one.hosts_up()[-1:] == [("h1", "h2")])
                one.sent.clear()
                one._routes.ask(one._peers.get("h2"), m.ActivateOn("h2", 7, 1))
                one._routes.ask(one._peers.get("h2"), m.ActivateOn("h2", 8, 1))
                await until(lambda: {7, 8} <= two._routes._asked.keys())
                two._routes.answer(8, {"route": [8, "w0.1", False]})
                await until(lambda: one._peers["h2"].asked == {7})
                assert lost not in one.sent
            await until(lambda: lost in one.sent)
            assert m.RemoteRoute(8, "h2", None, alone=False) not in one.sent

    run(test)


def test_a_host_that_asks_before_a_project_has_moved_gets_its_route_and_no_refusal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = Hosts(tmp_path, 3)

    async def test() -> None:
        async with hosts.start("h1") as one:
            async with hosts.start("h2") as two:
                await until(lambda: one.hosts_up()[-1:] == [("h1", "h2")])
                for project_id in (7, 8):
                    one._routes.ask(one._peers.get("h2"), m.ActivateOn("h2", project_id, 1))
                await until(lambda: {7, 8} <= two._routes._asked.keys())
                for project_id in (7, 8):
                    two._routes.refuse_later(project_id)
                two._announce_running(m.ProjectRuns(7, runs=True, sends=False))
                await until(lambda: m.RemoteRoute(8, "h2", None, alone=False) in one.sent)
                two._routes.answer(7, {"route": [7, "w0.1", False]})
                await until(lambda: m.RemoteRoute(7, "h2", "w0.1", alone=False) in one.sent)
                assert m.RemoteRoute(7, "h2", None, alone=False) not in one.sent
            await until(lambda: one.hosts_up()[-1:] == [("h1",)])

    run(test)
