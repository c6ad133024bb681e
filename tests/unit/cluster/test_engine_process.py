"""The actor of the replication engine, with three real nats-servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.cluster import hosts_file
from fieldbrook.cluster.engine import Address, Engine
from fieldbrook.cluster.engine_process import EngineActor
from fieldbrook.core.cluster.membership import Host, Membership
from fieldbrook.storage.replication.endpoint import endpoint_in
from tests.support.nodes import until
from tests.support.tools import free_port

NAMES = ("h1", "h2", "h3")


class Actor(EngineActor):
    """The actor of h1; it gets no messages."""

    def __init__(self, data: Path, engine: Engine) -> None:
        super().__init__()
        self._data, self._run_dir = data, data / "run"
        self._run_dir.mkdir(parents=True)
        self.engine = self._engine = engine
        self._start_engine(engine)

    def look(self) -> int | None:
        """Check the routes like the timer; return the process of the engine."""
        self._check_routes(self.engine)
        return self.engine.pid


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[list[Engine]]:
    """The engines of three hosts, which do not run yet."""
    places = {name: Address("127.0.0.1", free_port()) for name in NAMES}
    hosts = tuple(Host(name, "127.0.0.1", 1, place.port) for name, place in places.items())
    hosts_file.save(tmp_path / "h1", Membership("c1", "h1", hosts, formed=True))
    made = []
    for name, place in places.items():
        others = [other for other in places.values() if other != place]
        made.append(Engine(tmp_path / f"{name}-engine", name, "c1", place, others, None, 1 << 30))
    yield made
    for engine in made:
        engine.stop()


def test_an_engine_that_loses_a_majority_of_the_hosts_is_started_again_once(
    engines: list[Engine], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, *others = engines
    actor = Actor(tmp_path / "h1", own)
    first = own.pid
    assert actor.look() == first, "it has not had a majority yet"
    for other in others:
        other.start()
    until(lambda: own.peers() == {"h2", "h3"}, "it has routes to both")
    assert actor.look() == first
    others[1].stop()
    until(lambda: own.peers() == {"h2"}, "the route ends")
    assert actor.look() == first, "two of three hosts are a majority"
    before = endpoint_in(tmp_path / "h1/run")()
    others[0].stop()
    until(lambda: not own.peers(), "it has no route")
    second = actor.look()
    assert "no route to a majority" in caplog.text
    assert second not in (first, None)
    assert actor.look() == second
    after = endpoint_in(tmp_path / "h1/run")()
    assert (after.host, after.port) != (before.host, before.port)
