"""Export and import of a project: one file with which another node can recreate it under new ids.

The file contains the project, its configurations, applets with their current modules,
strategies, publishers, cron jobs, monitors, ABIs and traffic limits. On request it also contains
the key-value pairs and SQL rows that its handlers stored. It does not contain logs, metrics,
event history, dead letters, deduplication entries and outbox entries, nor earlier versions of
modules, operators and accounts.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import (
    PROJECT_DATABASE,
    Applet,
    Config,
    ContractAbi,
    CronJob,
    Monitor,
    Project,
    Publisher,
    Resource,
    Strategy,
    TrafficLimit,
)
from fieldbrook.storage.backup.archive import Manifest, pack, unpack
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.store import ProjectStore
from fieldbrook.storage.registry.reader import RegistrySnapshot
from fieldbrook.storage.sql.sqlite import files as sql
from fieldbrook.storage.sql.sqlite.transfer import export_rows, import_rows

KIND = "project"
RECORDS, _PAIRS, _ROWS, MODULES = "project.bin", "pairs.bin", "rows.bin", "modules"
_LENGTH = struct.Struct("<I")
_BATCH_BYTES = 8 << 20
MANIFEST_LIMIT_BYTES = 1 << 20  # enough for thousands of modules
RECORDS_LIMIT_BYTES = 16 << 20
RECORDS_LIMIT = 100_000
_ROOM = 1 << 30  # address space for applying a staged batch in a copy of the store


class ExportedToken(msgspec.Struct, array_like=True, frozen=True):
    """A publisher's access key as the registry stores it; JSON Web Tokens have no such entry."""

    publisher_id: int
    digest: bytes
    issued_at_s: int
    expires_at: int


class Exported(msgspec.Struct, array_like=True, frozen=True):
    """The records of a project.

    Without `with_tokens` each publisher's token is cut to its prefix (`w3b_`) or empty.
    """

    project: Project
    configs: list[Config]
    applets: list[Applet]
    resources: list[Resource]
    strategies: list[Strategy]
    publishers: list[Publisher]
    cron_jobs: list[CronJob]
    monitors: list[Monitor]
    traffic_limits: list[TrafficLimit]
    with_tokens: bool
    tokens: list[ExportedToken]
    contract_abis: list[ContractAbi] = []  # files of older versions have none


class _Pair(msgspec.Struct, array_like=True, frozen=True):
    owner: int
    key: bytes
    value: bytes


class _Row(msgspec.Struct, array_like=True, frozen=True):
    table: str
    columns: list[str]
    values: list[Any]


def collect(registry: RegistrySnapshot, project: Project, *, with_tokens: bool) -> Exported:
    """Collect the records of a project from one snapshot of the registry."""
    project_id = project.project_id
    applets = registry.applets(project_id)
    found = {applet.resource_id: registry.resource(applet.resource_id) for applet in applets}
    publishers = registry.publishers(project_id)
    tokens = []
    if with_tokens:
        for publisher in publishers:
            tokens += [
                ExportedToken(publisher.publisher_id, key.digest, key.issued_at_s, key.expires_at)
                for key in registry.access_keys_of(publisher.publisher_id)
            ]
    else:
        publishers = [msgspec.structs.replace(p, token=_kind(p.token)) for p in publishers]
    return Exported(
        project,
        registry.configs(project_id),
        applets,
        [resource for resource in found.values() if resource is not None],
        registry.strategies(project_id),
        publishers,
        registry.cron_jobs(project_id),
        registry.monitors(project_id),
        registry.traffic_limits(project_id),
        with_tokens,
        tokens,
        registry.contract_abis(project_id),
    )


def _kind(token: str) -> str:
    """Return the prefix of a token, which names its kind."""
    return token[: len("w3b_")] if token.startswith("w3b_") else ""


def export(
    exported: Exported, modules: Path, copy_store: Callable[[Path], None] | None, target: Path
) -> Manifest:
    """Write the export file of a project.

    Args:
        exported: the records of the project.
        modules: the folder of modules.
        copy_store: copies the project's store to a folder; with None the data is left out.
        target: the file to create; a temporary folder beside it is used meanwhile.

    Raises:
        StoreError: a module is missing, the store cannot be read, or the file cannot be
            written.
    """
    folder = target.with_name(target.name + ".parts")
    try:
        folder.mkdir(mode=0o700)
        (folder / MODULES).mkdir(mode=0o700)
        (folder / RECORDS).write_bytes(encode_record(exported))
        for resource in exported.resources:
            name = f"{resource.sha256}.wasm"
            shutil.copyfile(modules / name, folder / MODULES / name)
        if copy_store is not None:
            copy_store(folder / "store")
            _export_data(folder)
        shutil.rmtree(folder / "store", ignore_errors=True)
        about: dict[str, str | int | bool] = {
            "project": exported.project.name,
            "tokens": exported.with_tokens,
        }
        return pack(folder, target, KIND, about)
    except OSError as error:
        # The client sees the reason, and must not learn the path of the data folder.
        name = Path(error.filename or target).name
        raise StoreError(reason=f"{name}: {error.strerror}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _export_data(folder: Path) -> None:
    """Export pairs and rows from a copy of the store; opening it settles a staged batch."""
    copy = folder / "store"
    opened = ProjectStore(copy, (copy / "data.mdb").stat().st_size + _ROOM)
    try:
        with (folder / _PAIRS).open("wb") as file:
            for stored, value in opened.pairs():
                owner = int.from_bytes(stored[:8], "big")
                file.write(_framed(_Pair(owner, stored[8:], value)))
    finally:
        opened.close()
    if (copy / sql.FILE).exists():
        with (folder / _ROWS).open("wb") as file:
            for table, columns, values in export_rows(copy / sql.FILE):
                file.write(_framed(_Row(table, columns, values)))


class ReadLimits(NamedTuple):
    """Limits for a project's file from an untrusted source, in bytes.

    They are the size of all its files together, the size of each module, and the space on the
    disk that must stay free.
    """

    unpacked_bytes: int
    module_bytes: int
    reserve_bytes: int = 0


def read(archive: Path, folder: Path, limits: ReadLimits) -> Exported:
    """Unpack a project's file below a folder, and return its records.

    Raises:
        StoreError: the file is absent, not an exported project, truncated or damaged, it
            exceeds a limit, or its records are inconsistent.
        UploadFileDiskLimitError: the disk has no room for the unpacked files.
    """
    manifest = unpack(
        archive,
        folder,
        KIND,
        limits.unpacked_bytes,
        manifest_limit_bytes=MANIFEST_LIMIT_BYTES,
        reserve_bytes=limits.reserve_bytes,
        is_expected=_is_own,
    )
    try:
        exported = read_records(folder)
    except OSError as error:
        # The client sees the reason, and must not learn the path of the data folder.
        name = Path(error.filename or folder).name
        raise StoreError(reason=f"{archive}: {name}: {error.strerror}") from error
    if reason := _excess(exported) or _mismatch(exported, manifest, limits.module_bytes):
        raise StoreError(reason=f"{archive}: {reason}")
    return exported


def _is_own(name: str) -> bool:
    """Return whether an exported project can contain a file of this name."""
    folder, _, file = name.rpartition("/")
    if folder:
        return folder == MODULES and file.endswith(".wasm")
    return file in (RECORDS, _PAIRS, _ROWS)


def read_records(folder: Path) -> Exported:
    """Read the records of an unpacked project's file.

    Raises:
        StoreError: the records exceed the limit or cannot be decoded.
        OSError: the file cannot be read.
    """
    path = folder / RECORDS
    size = path.stat().st_size
    if size > RECORDS_LIMIT_BYTES:
        raise StoreError(reason=f"{RECORDS} has {size} bytes, the limit is {RECORDS_LIMIT_BYTES}")
    return decode_record(path.read_bytes(), Exported)


def _excess(exported: Exported) -> str:
    """Return why there are too many records, or "".

    Items of lists within the records count, too, because each takes as much memory.
    """
    lists = [value for value in msgspec.structs.astuple(exported) if isinstance(value, list)]
    count = 0
    for records in lists:
        count += len(records)
        for record in records:
            values = msgspec.structs.astuple(record)
            count += sum(len(value) for value in values if isinstance(value, list))
    return f"{count} records, the limit is {RECORDS_LIMIT}" if count > RECORDS_LIMIT else ""


def _mismatch(exported: Exported, manifest: Manifest, module_bytes: int) -> str:
    """Return the first inconsistency between records and files, or ""."""
    files = {f"{MODULES}/{r.sha256}.wasm": r.sha256 for r in exported.resources}
    for name, sha256 in files.items():
        if name not in manifest.files:
            return f"module {sha256} is missing"
        if manifest.files[name].sha256 != sha256:
            return f"module {sha256} has another content"
        if manifest.files[name].size > module_bytes:
            return f"module {sha256} has more than {module_bytes} bytes"
    if more := set(manifest.files) - set(files) - {RECORDS, _PAIRS, _ROWS}:
        return f"{min(more)[:100]!r} is not a file of an exported project"
    known = {resource.resource_id for resource in exported.resources}
    applets = {applet.applet_id for applet in exported.applets}
    whole = (
        len(known) == len(exported.resources)
        and len(applets) == len(exported.applets)
        and {applet.resource_id for applet in exported.applets} == known
        and all(strategy.applet_id in applets for strategy in exported.strategies)
    )
    return "" if whole else "its records are inconsistent"


def build_store(
    exported: Exported, folder: Path, target: Path, applet_ids: Mapping[int, int], map_size: int
) -> bool:
    """Create the store of an imported project, before the project is added to the registry.

    Args:
        exported: the records of the project.
        folder: the folder with the unpacked file.
        target: the folder to create; it is removed after a failure.
        applet_ids: the new id of each applet, by its exported id.
        map_size: the size limit of the store in bytes.

    Returns:
        False when the file has no data.

    Raises:
        StoreError: the data does not fit into the store, or cannot be read or written.
    """
    pairs, rows = folder / _PAIRS, folder / _ROWS
    if not pairs.exists():
        return False
    try:
        store = ProjectStore(target, map_size)
        try:
            _import_pairs(store, pairs, applet_ids)
        finally:
            store.close()
        config = next((c.value for c in exported.configs if c.kind == PROJECT_DATABASE), None)
        if rows.exists() and config is not None:
            decoded = msgspec.json.decode(config)
            read_rows = ((row.table, row.columns, row.values) for row in _read(rows, _Row))
            import_rows(target / sql.FILE, decoded, read_rows)
    except (OSError, OverflowError, ValueError, RecursionError) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise StoreError(reason=f"the project's data cannot be imported: {error}") from error
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return True


def _import_pairs(store: ProjectStore, path: Path, applet_ids: Mapping[int, int]) -> None:
    size = 0
    for pair in _read(path, _Pair):
        owner = pair.owner if kv.is_shared(pair.owner) else applet_ids.get(pair.owner)
        if owner is None or not kv.is_stored(pair.key):
            continue  # a key of a removed applet, or not a handler's key
        store.overlay[kv.scope(owner) + pair.key] = pair.value
        size += len(pair.value) + len(pair.key)
        if size > _BATCH_BYTES:
            store.commit()
            size = 0
    store.commit()


def _framed(record: msgspec.Struct) -> bytes:
    data = msgspec.msgpack.encode(record)
    return _LENGTH.pack(len(data)) + data


def _read(path: Path, kind: type[Any]) -> Iterator[Any]:
    decode = msgspec.msgpack.Decoder(kind).decode
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        while head := file.read(_LENGTH.size):
            left -= len(head)
            size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else left + 1
            if size > left:
                raise StoreError(reason=f"{path.name} is truncated")
            left -= size
            yield decode(file.read(size))
