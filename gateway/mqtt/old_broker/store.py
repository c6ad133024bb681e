"""The files of an earlier version's broker below the data folder.

Earlier versions of the node started nats-server as their broker. It kept messages in
`broker/store`. Other brokers may use the folder `broker`, too: the mosquitto of `docker/` does. So
this module removes only files of nats-server.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from fieldbrook.core.errors import UnavailableError
from fieldbrook.storage.data_lock import flock_soon
from fieldbrook.system.fsync import sync_folder

_STREAM = "jetstream/$G/streams/$MQTT_msgs"
_LOCK = "store.lock"
_REMOVED = "store.removed"
_FILES = ("nats.conf", "nats.log*", "nats.pid", "nats-server_*.ports", "authorities.*")
_SECRETS = ("broker.key", "mqtt-client.pem", "mqtt-client.new")


def folder_of(data: Path) -> Path:
    """The folder in which brokers keep their files."""
    return data / "broker"


def store_of(data: Path) -> Path:
    """The folder with the messages."""
    return folder_of(data) / "store"


def exists(data: Path) -> bool:
    """Whether a data folder has a store of an earlier version's broker, or remains of it."""
    return store_of(data).is_dir() or (folder_of(data) / _REMOVED).is_dir()


def may_hold_messages(data: Path) -> bool:
    """Whether the store may have messages; False if its files are certainly empty."""
    blocks = (store_of(data) / _STREAM / "msgs").glob("*.blk")
    return any(block.stat().st_size for block in blocks)


def lock(data: Path, wait_s: float) -> int:
    """Lock the store for this process and the programs that inherit the descriptor.

    Returns:
        The descriptor that holds the lock.

    Raises:
        UnavailableError: another process has the store.
        OSError: the lock file cannot be made.
    """
    path = folder_of(data) / _LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flock_soon(descriptor, wait_s)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise UnavailableError(what="another process reads the old broker's messages") from None
        raise
    return descriptor


def remove(data: Path) -> None:
    """Remove the store and the other files of that broker.

    The caller holds the lock. The store is removed in one step, so that a crash leaves no part of
    it.

    Raises:
        OSError: a file cannot be removed.
    """
    folder, removed = folder_of(data), folder_of(data) / _REMOVED
    if removed.exists():  # of a removal that a crash has interrupted
        shutil.rmtree(removed)
    if store_of(data).exists():
        store_of(data).rename(removed)
        sync_folder(folder)
        shutil.rmtree(removed)
    for pattern in (*_FILES, _LOCK):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    for name in _SECRETS:
        (data / "secrets" / name).unlink(missing_ok=True)
    with suppress(OSError):  # another broker has files there
        folder.rmdir()


def discard(data: Path) -> bool:
    """Remove the store with all its messages; False when there is none.

    Raises:
        UnavailableError: the node is delivering the messages now.
        OSError: a file cannot be removed.
    """
    if not exists(data):
        return False
    descriptor = lock(data, 0.0)
    try:
        remove(data)
    finally:
        os.close(descriptor)
    return True
