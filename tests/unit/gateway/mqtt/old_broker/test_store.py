"""Which files of an earlier version's broker are removed, and which are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.mqtt.old_broker import store

MESSAGES = "jetstream/$G/streams/$MQTT_msgs/msgs"


def make(data: Path, size: int = 1) -> None:
    """Make a data folder with a store."""
    blocks = store.store_of(data) / MESSAGES
    blocks.mkdir(parents=True)
    (blocks / "1.blk").write_bytes(bytes(size))
    for name in ("nats.conf", "nats.log", "nats.pid", "nats-server_7.ports"):
        (data / "broker" / name).write_text("x")
    (data / "secrets").mkdir()
    for name in ("broker.key", "token.key"):
        (data / "secrets" / name).write_text("x")


def test_only_files_of_that_broker_are_removed(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "broker" / "mosquitto.db").write_text("x")
    assert store.exists(tmp_path)
    assert store.may_hold_messages(tmp_path)
    assert store.discard(tmp_path)
    assert [path.name for path in (tmp_path / "broker").iterdir()] == ["mosquitto.db"]
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["token.key"]
    assert not store.exists(tmp_path)
    assert not store.discard(tmp_path)


def test_a_removal_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    make(tmp_path)
    store.store_of(tmp_path).rename(tmp_path / "broker" / "store.removed")
    assert store.exists(tmp_path)
    assert not store.may_hold_messages(tmp_path)
    assert store.discard(tmp_path)
    assert not (tmp_path / "broker").exists()


def test_a_store_with_empty_files_holds_no_messages(tmp_path: Path) -> None:
    make(tmp_path, size=0)
    assert store.exists(tmp_path)
    assert not store.may_hold_messages(tmp_path)


def test_a_store_that_is_read_cannot_be_removed(tmp_path: Path) -> None:
    make(tmp_path)
    reader = store.lock(tmp_path, 0.0)
    with pytest.raises(UnavailableError, match="another process"):
        store.discard(tmp_path)
    os.close(reader)
    assert store.discard(tmp_path)
