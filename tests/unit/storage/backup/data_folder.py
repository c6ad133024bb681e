"""A small data folder to back up and to verify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb

from fieldbrook.core import clock
from fieldbrook.storage.mqtt import (
    Enqueue,
    MqttStore,
    PutRetained,
    PutSession,
    Release,
    StoredMessage,
    StoredSession,
)
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.service import Module, RegistryWriter

MAP = 1 << 24
WASM = b"\0asm\1\0\0\0"
SHA256 = "93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476"
SESSION = StoredSession("d\0d", 3, b"record")
MESSAGE = StoredMessage("state", b"on", 2, True, b"", 0)
KEY = kv.stored_key(kv.scope(7), b"count")


def write(data: Path) -> None:
    """Write a small node's data: an account, a project with an applet, and its store."""
    (data / "secrets").mkdir(parents=True)
    (data / "secrets" / "token.key").write_bytes(bytes(32))
    (data / "secrets" / "token.key").chmod(0o600)
    (data / "run").mkdir()
    (data / "run" / "lock").touch()
    (data / "broker").mkdir()
    (data / "broker" / "nats.log").write_text("x")
    (data / "modules").mkdir()
    (data / "modules" / f"{SHA256}.wasm").write_bytes(WASM)
    (data / "modules" / f"{SHA256}.tag.cwasm").write_bytes(b"compiled")
    writer = RegistryWriter(data / "registry", MAP, clock.now_ms, bytes(32))
    account = writer.create_account("admin", "hash", "ADMIN")
    project = writer.create_project(account.account_id, "room")
    module = Module("a.wasm", SHA256, "0" * 32, len(WASM), ["start"])
    writer.create_applet(
        project.project_id,
        account.account_id,
        "a",
        "a.wasm",
        *(module.filename, module.sha256, module.md5, module.size, module.handlers),
        [("DEFAULT", "start")],
    )
    writer.create_publisher(project.project_id, "d", "d", access_key=True)
    writer.close()
    store = ProjectStore(data / "projects" / str(project.project_id), MAP)
    store.overlay[KEY] = b"1"
    store.commit()
    store.close()
    mqtt = MqttStore(data / "mqtt", MAP)
    mqtt.commit([PutSession(SESSION), Enqueue(3, 1, MESSAGE), Enqueue(3, 2, MESSAGE)])
    mqtt.commit([Release(3, 1), PutRetained("state", MESSAGE)])
    mqtt.close()
    (data / "made" / "later").mkdir(parents=True)
    later = lmdb.open(str(data / "made" / "later"))
    with later.begin(write=True) as txn:
        txn.put(b"k", b"v")
    later.close()


def project_folder(data: Path) -> Path:
    (folder,) = (data / "projects").iterdir()
    return folder


def change(path: Path, table: bytes, edit: Callable[[Any, Any], None]) -> None:
    """Write into a store without the node."""
    environment = lmdb.open(str(path), max_dbs=128, map_size=MAP)
    with environment.begin(write=True) as txn:
        edit(txn, environment.open_db(table, txn=txn))
    environment.close()
