"""One nats-server for all tests of this folder, with streams of one replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fieldbrook.cluster.engine import Address, Engine
from fieldbrook.storage.replication import streams
from fieldbrook.storage.replication.connection import Connection, Endpoint
from fieldbrook.storage.replication.streams import REGISTRY, SNAPSHOTS


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The address of the server."""
    folder = tmp_path_factory.mktemp("engine")
    engine = Engine(folder, "h1", "c1", Address("127.0.0.1", 0), [], None, 1 << 30)
    found = engine.start()
    connection = Connection(lambda: found, "streams")
    streams.create(connection, (REGISTRY, SNAPSHOTS, *streams.shard_streams()), 1, 20.0)
    connection.close()
    yield found
    engine.stop()


@pytest.fixture
def connect(endpoint: Endpoint) -> Iterator[Callable[[], Connection]]:
    """Opens connections for a test."""
    opened: list[Connection] = []

    def connect() -> Connection:
        opened.append(Connection(lambda: endpoint, f"test {len(opened)}"))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def connection(connect: Callable[[], Connection]) -> Connection:
    """One connection."""
    return connect()
