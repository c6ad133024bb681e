"""When a broker that stores nothing raises a health condition, and when it is restarted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fieldbrook.gateway.mqtt import broker_watch as module
from fieldbrook.gateway.mqtt import embedded_broker
from fieldbrook.gateway.mqtt.broker_watch import BrokerWatch
from fieldbrook.observability.health import BROKER_FULL, ProcessHealth


class World:
    """A broker that answers as it is told, on a disk with room."""

    def __init__(self, folder: Path) -> None:
        (folder / "broker" / "store").mkdir(parents=True)
        self.answer: str | None = ""
        self.time = 0.0
        self.ended: list[float] = []
        self.health = ProcessHealth()
        self.limits_s: list[float] = []
        self.watch = BrokerWatch(folder, self._probe, self.health, lambda: self.time, self._end)

    async def _probe(self, limit_s: float) -> str | None:
        self.limits_s.append(limit_s)
        return self.answer

    def _end(self, data: Path) -> bool:
        self.ended.append(self.time)
        return True

    def look(self, times: int = 1, every_s: float = module.PROBE_S) -> None:
        for _ in range(times):
            self.time += every_s
            asyncio.run(self.watch.check())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_one_probe_that_failed_raises_no_condition_yet_and_two_do_until_one_is_stored(
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


def test_a_broker_that_stores_nothing_with_room_is_ended_ever_more_seldom(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.answer = "not stored"
    world.look(module.END_AFTER - 1, module.AGAIN_S)
    assert not world.ended, "the machine may be slow"
    world.look(300, module.AGAIN_S)
    pauses = [later - first for first, later in zip(world.ended, world.ended[1:], strict=False)]
    assert pauses[0] == module.FIRST_PAUSE_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == module.LONGEST_PAUSE_S
    assert "it was ended" in caplog.text


def test_without_room_it_is_left_alone_and_ended_as_soon_as_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.look()
    enough = module.ROOM_BYTES
    monkeypatch.setattr(module, "ROOM_BYTES", 1 << 60)
    world.answer = "not stored"
    world.look(20)
    assert not world.ended
    monkeypatch.setattr(module, "ROOM_BYTES", enough)
    world.look(1, module.TICK_S)
    assert len(world.ended) == 1
    assert world.limits_s[-1] == module.SHORT_LIMIT_S
    assert "it was ended" in caplog.text


def test_one_that_stores_again_by_itself_when_there_is_room_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    enough = module.ROOM_BYTES
    monkeypatch.setattr(module, "ROOM_BYTES", 1 << 60)
    world.answer = "not stored"
    world.look(5)
    monkeypatch.setattr(module, "ROOM_BYTES", enough)
    world.answer = ""
    world.look(1, module.TICK_S)
    assert not world.ended
    assert BROKER_FULL not in world.health


def test_a_disk_that_was_full_for_a_moment_between_two_probes_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.look()
    with monkeypatch.context() as full:
        full.setattr(module, "ROOM_BYTES", 1 << 60)
        world.answer = None  # the probe of that moment tells nothing
        world.look(1, module.TICK_S)
    world.answer = "not stored"
    world.look(1, module.TICK_S)
    assert len(world.ended) == 1
    assert "it was ended" in caplog.text


def test_a_process_that_only_has_the_number_of_the_broker_is_not_ended(tmp_path: Path) -> None:
    assert not embedded_broker.end(tmp_path)
    (tmp_path / "broker").mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "broker" / "nats.pid").write_text(f"{other.pid}")
        assert not embedded_broker.end(tmp_path)
        assert other.poll() is None
        os.kill(other.pid, 9)
