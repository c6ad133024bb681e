"""A new host and a cluster, over TLS on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fieldbrook import __version__
from fieldbrook.cluster import hosts_file, joining
from fieldbrook.cluster.identity import Identity
from fieldbrook.cluster.links.lines import LINE_BYTES, receive, send
from fieldbrook.core.cluster.membership import Host, Membership
from fieldbrook.core.errors import SettingsError
from fieldbrook.security import node_secrets

LOCAL = "127.0.0.1"
NEW = Host("h2", LOCAL, 9001, 9002)


class Cluster:
    """The founder of a cluster: it answers like the cluster process, and stores the requests."""

    def __init__(self, data: Path) -> None:
        self.data = data
        for name in joining.SHARED_SECRETS:
            node_secrets.load_or_create_key(data / "secrets", name)
        self.identity = Identity(data)
        self.identity.create_authority()
        self.identity.store_own(self.identity.issue("h1", LOCAL))
        self.known = Membership("c1", "h1", (Host("h1", LOCAL, 8001, 8002),))
        self.questions: list[dict[str, Any]] = []
        self.changes: dict[str, object] = {}  # changes to the message of a new host

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = {**await receive(reader, 5.0), **self.changes}
        self.questions.append(question)
        answer: dict[str, Any]
        match question["op"]:
            case "authority":
                answer = {"authority": self.identity.read("ca.pem").decode()}
            case "hosts":
                answer = {"membership": msgspec.to_builtins(self.known)}
            case _:
                answer, self.known = joining.admit(self.data, self.known, question)
        send(writer, answer)
        await writer.drain()
        writer.close()

    def serve(self, client: Callable[[tuple[str, int]], object]) -> Any:
        """Call `client` with the address, in another thread, and return what it returns."""

        async def run() -> object:
            tls = self.identity.server_context()
            async with await asyncio.start_server(
                self._serve, LOCAL, 0, ssl=tls, limit=LINE_BYTES
            ) as server:
                address = server.sockets[0].getsockname()
                return await asyncio.to_thread(client, address)

        return asyncio.run(run())

    def join(self, data: Path, token: str | None = None, host: Host = NEW) -> Membership:
        """Let a host join."""
        shown = self.identity.token() if token is None else token
        joined = self.serve(lambda address: joining.join(data, address, shown, host))
        assert isinstance(joined, Membership)
        return joined


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of the new host."""
    path = tmp_path / "2"
    path.mkdir()
    return path


def test_a_host_that_joins_gets_a_certificate_the_secrets_and_the_hosts(
    cluster: Cluster, data: Path
) -> None:
    joined = cluster.join(data)
    assert [host.name for host in joined.hosts] == ["h1", "h2"]
    assert (joined.cluster, joined.me, joined.formed) == ("c1", "h2", False)
    assert hosts_file.load(data) == joined
    for name in joining.SHARED_SECRETS:
        path = data / "secrets" / name
        assert path.read_bytes() == (cluster.data / "secrets" / name).read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    new = Identity(data)
    assert new.shared() == cluster.identity.shared()
    answer = cluster.serve(
        lambda address: asyncio.run(joining.ask(address, new.client_context(), {"op": "hosts"}))
    )
    assert msgspec.convert(answer["membership"], Membership).hosts == joined.hosts


def test_a_host_that_asks_again_gets_another_certificate_and_joins_once(
    cluster: Cluster, data: Path
) -> None:
    cluster.join(data)
    assert [host.name for host in cluster.join(data).hosts] == ["h1", "h2"]


def test_a_wrong_cluster_is_recognised_before_the_token_is_sent(
    cluster: Cluster, data: Path, tmp_path: Path
) -> None:
    other = Cluster(tmp_path / "other")
    with pytest.raises(SettingsError, match="does not belong to the cluster of the join token"):
        cluster.join(data, other.identity.token())
    assert cluster.questions == [{"op": "authority"}]
    assert list(data.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "host", "token_of_s", "reason"),
    [
        ({}, Host("h1", LOCAL, 9001, 9002), None, "already has a host 'h1' at 127.0.0.1"),
        ({}, Host("old", LOCAL, 9001, 9002), None, "names cannot be used again"),
        ({}, Host("h2", LOCAL, 8001, 9002), None, "already uses the address 127.0.0.1:8001"),
        ({}, Host("a b", LOCAL, 9001, 9002), None, "is not a valid host name"),
        ({}, NEW, 1_000, "the join token has expired"),
        ({"version": "0.0.1"}, NEW, None, "it runs fieldbrook 0.0.1, but the cluster"),
        ({"host": None}, NEW, None, "its request is malformed"),
        ({"token": "x"}, NEW, None, "is not a join token"),
    ],
)
def test_a_host_is_refused_in_words_and_nothing_changes(
    cluster: Cluster,
    data: Path,
    changes: dict[str, object],
    host: Host,
    token_of_s: int | None,
    reason: str,
) -> None:
    before = cluster.known = msgspec.structs.replace(cluster.known, gone=("old",))
    join = cluster._serve

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cluster.changes = changes if cluster.questions else {}  # the first one has no token
        await join(reader, writer)

    cluster._serve = serve  # type: ignore[method-assign]
    with pytest.raises(SettingsError, match="the cluster refuses this host") as refused:
        cluster.join(data, cluster.identity.token(token_of_s), host)
    assert reason in str(refused.value)
    assert cluster.known == before
    assert list(data.iterdir()) == []


def test_a_host_that_is_not_there_is_reported(data: Path, cluster: Cluster) -> None:
    token = cluster.identity.token()
    with pytest.raises(SettingsError, match=r"host 127\.0\.0\.1:1 does not answer"):
        joining.join(data, (LOCAL, 1), token, NEW)
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("answer", [b"", b"nonsense\n", b"{}\n"])
def test_an_answer_that_is_none_is_reported(cluster: Cluster, data: Path, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(reader, 5.0)
        writer.write(answer)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    cluster._serve = serve  # type: ignore[method-assign]
    with pytest.raises(SettingsError):
        cluster.join(data)
    assert list(data.iterdir()) == []


def test_a_host_waits_until_there_are_enough(
    cluster: Cluster, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_RETRY_S", 0.0)
    cluster.join(data)

    def wait(address: tuple[str, int]) -> Membership:
        founder, two = cluster.known.hosts
        here = msgspec.structs.replace(founder, port=address[1])
        cluster.known = msgspec.structs.replace(cluster.known, hosts=(here, two))
        known = msgspec.structs.replace(cluster.known, me="h2")
        asked = []

        def stops() -> bool:
            asked.append(1)
            if len(asked) == 3:  # now the third one joins
                cluster.known = cluster.known.joined(Host("h3", LOCAL, 7001, 7002))
            return False

        return joining.await_forming(data, known, stops)

    formed = cluster.serve(wait)
    assert (formed.formed, formed.me, len(formed.hosts)) == (True, "h2", 3)
    assert hosts_file.load(data) == formed


def test_a_host_that_is_ended_stops_waiting(cluster: Cluster, data: Path) -> None:
    known = cluster.join(data)
    assert joining.await_forming(data, known, lambda: True) == known


def test_the_version_of_a_new_host_is_sent(cluster: Cluster, data: Path) -> None:
    cluster.join(data)
    assert cluster.questions[-1]["version"] == __version__
