"""When a broker that stores nothing is called a trouble, and when it is ended."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fieldbrook import broker
from fieldbrook.gateway import broker_watch as module
from fieldbrook.gateway.broker_watch import BrokerWatch
from fieldbrook.health import BROKER_FULL, Reporter


class World:
    """A broker that answers as it is told, on a disk with room."""

    def __init__(self, folder: Path) -> None:
        (folder / "broker" / "store").mkdir(parents=True)
        self.answer: str | None = ""
        self.time = 0.0
        self.ended: list[float] = []
        self.health = Reporter()
        self.watch = BrokerWatch(folder, self._probe, self.health, lambda: self.time, self._end)

    async def _probe(self) -> str | None:
        return self.answer

    def _end(self, data: Path) -> bool:
        self.ended.append(self.time)
        return True

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.time += module.AGAIN_S
            asyncio.run(self.watch.look())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_one_probe_that_failed_is_no_trouble_yet_and_two_are_until_one_is_stored(
    world: World,
) -> None:
    world.answer = "not stored"
    world.look()
    assert BROKER_FULL not in world.health
    world.look()
    assert BROKER_FULL in world.health
    world.answer = None  # no connection: nothing is known
    world.look()
    assert BROKER_FULL in world.health
    world.answer = ""
    world.look()
    assert BROKER_FULL not in world.health
    assert not world.ended


def test_a_broker_that_stores_nothing_with_room_is_ended_once_in_a_while(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.answer = "not stored"
    world.look(module.END_AFTER + 20)
    assert len(world.ended) == 1
    world.time += module.PAUSE_S
    world.look()
    assert len(world.ended) == 2
    assert "it was ended" in caplog.text


def test_without_room_it_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM_BYTES", 1 << 60)
    world.answer = "not stored"
    world.look(20)
    assert not world.ended


def test_a_process_that_only_has_the_number_of_the_broker_is_not_ended(tmp_path: Path) -> None:
    assert not broker.end(tmp_path)
    (tmp_path / "broker").mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "broker" / "nats.pid").write_text(f"{other.pid}")
        assert not broker.end(tmp_path)
        assert other.poll() is None
        os.kill(other.pid, 9)
