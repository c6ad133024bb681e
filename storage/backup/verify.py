"""Verification of a data folder: finds unreadable stores, damaged records, broken references.

It reads everything and changes nothing. In the folder of a running node it checks each store as
of one moment, but different stores as of different moments.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import lmdb
import msgspec

from fieldbrook.core.errors import NodeError, StoreError
from fieldbrook.core.model import Record
from fieldbrook.security.operator_keys import Vault
from fieldbrook.storage.backup.backup import MODULES, PROJECTS, REGISTRY, open_registry_copy
from fieldbrook.storage.backup.copies import copy_store
from fieldbrook.storage.backup.journals import check_journals
from fieldbrook.storage.backup.project_rows import TABLES as PROJECT_TABLES
from fieldbrook.storage.backup.references import broken_references
from fieldbrook.storage.journal.recovery import JOURNALS
from fieldbrook.storage.lmdb.codec import decode_record
from fieldbrook.storage.lmdb.environment import open_environment, store_errors
from fieldbrook.storage.lmdb.ids import from_key, to_key
from fieldbrook.storage.lmdb.table import OpenTable
from fieldbrook.storage.mqtt.records import CHECKS as MQTT_CHECKS
from fieldbrook.storage.mqtt.store import FOLDER as MQTT
from fieldbrook.storage.project.commit.batch import STAGE, Batch
from fieldbrook.storage.project.refused import FOLDER as REFUSED
from fieldbrook.storage.project.stored import batch_number
from fieldbrook.storage.registry.audit import AuditRow
from fieldbrook.storage.registry.reader import RegistryReader
from fieldbrook.storage.registry.tables import LAST_ID_CELL
from fieldbrook.storage.sql.sqlite import files as sql
from fieldbrook.system.fsync import is_of_this_boot

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

_SECRETS = {"token.key": 32, "operator.key": 32}
_DEFECTS_LIMIT = 1_000
_SOCKETS = "run"  # folder with the sockets of a running node
_DIGEST = re.compile(r"[0-9a-f]{64}")
POSTGRES = "postgres"  # file of a project whose batch number is on a PostgreSQL server


_T = TypeVar("_T")


class Verified(NamedTuple):
    """The result of a verification.

    It has one line for each defect, the numbers of checked projects and records, and the number of
    batches in the journals that are not in their stores yet.
    """

    defects: list[str]
    projects: int
    records: int
    waiting: int = 0


def verify(
    data: Path, fatal: Collection[str] = (), at: Callable[[str], None] = lambda _place: None
) -> Verified:
    """Check a data folder; the line of a defect begins with the file or folder that has it.

    Reading a truncated or malicious store may end the process with a signal.
    `storage.backup.verify_in_child` therefore checks in a process of its own.

    Args:
        data: the data folder.
        fatal: stores that are not opened, as paths relative to `data`.
        at: called with the relative path of each store before it is opened.
    """
    verifier = _Verifier(data, fatal, at)
    verifier.run()
    defects = verifier.defects[:_DEFECTS_LIMIT]
    return Verified(defects, verifier.projects, verifier.records, verifier.waiting)


class _Verifier:
    def __init__(self, data: Path, fatal: Collection[str], at: Callable[[str], None]) -> None:
        self._data = data
        self._fatal, self._at = fatal, at
        self._unreadable: set[Path] = set()  # folders with pipes, sockets or devices in them
        self.defects: list[str] = []
        self.projects = 0
        self.records = 0
        self.waiting = 0
        self._numbers: dict[int, int] = {}  # the last batch in the store of each project

    def run(self) -> None:
        self._check_file_types()
        if self._data / REGISTRY in self._unreadable:
            return
        known = self._check_store(REGISTRY, self._check_registry)
        without_store = set(known or ())
        self._check_secrets()
        folder = self._data / PROJECTS
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            place = f"{PROJECTS}/{path.name}"
            if not path.name.isdecimal() or not (path / "data.mdb").exists():
                continue
            without_store.discard(int(path.name))
            if path in self._unreadable:
                continue
            if known is not None and int(path.name) not in known:
                self._report(place, "the registry has no such project")
            self._check_store(place, partial(self._check_project, path, place))
        self._numbers |= dict.fromkeys(without_store, 0)
        self._check_store(JOURNALS, self._check_journals)
        self._check_other_stores()

    def _check_journals(self) -> None:
        defects, self.waiting = check_journals(self._data, self._numbers)
        self.defects += defects

    def _check_file_types(self) -> None:
        """Report pipes, sockets and devices in place of files, including targets of links.

        None of them is opened: reading a pipe may block forever, and some devices never end.
        """
        for folder, folders, names in os.walk(self._data):
            if Path(folder) == self._data and _SOCKETS in folders:
                folders.remove(_SOCKETS)
            for name in names:
                path = Path(folder, name)
                mode = _mode(path)
                if mode and not stat.S_ISREG(mode):
                    self._report(
                        path.relative_to(self._data).as_posix(), "it is not a regular file"
                    )
                    self._unreadable.add(path.parent)

    def _report(self, place: str, defect: str) -> None:
        self.defects.append(f"{place}: {defect}")

    def _check_store(self, place: str, check: Callable[[], _T]) -> _T | None:
        """Return the result of checking a store; if it is unreadable, report a defect and return
        None."""
        if place in self._fatal:
            return None
        self._at(place)
        try:
            with store_errors():
                return check()
        except NodeError as error:
            self._report(place, str(error))
            return None

    # ------------------------------------------------------------ the registry

    def _check_registry(self) -> set[int] | None:
        """Check the registry, and return the ids of its projects."""
        with tempfile.TemporaryDirectory(prefix="fieldbrook-") as folder:
            copy = Path(folder) / REGISTRY
            copy_store(self._data / REGISTRY, copy)
            with open_registry_copy(copy) as reader:
                rows, last = self._read_registry(reader)
        newest = max((n for table in rows.values() for n in table), default=0)
        if newest > last:
            self._report(REGISTRY, f"id {newest} exists, but the last id given is {last}")
        for defect in broken_references(rows):
            self._report(REGISTRY, defect)
        self._check_modules(rows["resources"])
        self._check_operators(rows["operators"])
        return set(rows["projects"])

    def _read_registry(self, reader: RegistryReader) -> tuple[dict[str, dict[int, Any]], int]:
        """Return the records of each table by their ids, and the last id that was given."""
        with reader.transaction() as (tables, txn):
            rows = {
                table.table.name: self._rows(txn, table)
                for table in vars(tables).values()
                if isinstance(table, OpenTable)
            }
            self._check_audit_log(txn, tables.audit)
            return rows, from_key(txn.get(LAST_ID_CELL, b"", db=tables.meta))

    def _rows(self, txn: Transaction, table: OpenTable[Any]) -> dict[int, Record]:
        """Return the readable records of a table; report defects of records and indexes."""
        name, found = table.table.name, {}
        for key, data in table.raw(txn):
            self.records += 1
            try:
                record = decode_record(data, table.table.kind)
            except StoreError as error:
                self._report(REGISTRY, f"{name} {from_key(key)}: {error}")
                continue
            if to_key(table.table.id_of(record)) != key:
                self._report(REGISTRY, f"{name} {from_key(key)}: the record has another id")
            found[from_key(key)] = record
        for index, key_of in table.table.indexes.items():
            entries = table.index_entries(txn, index)
            expected = {key_of(record): number for number, record in found.items()}
            wrong = len(entries.items() ^ expected.items())
            if wrong:
                self._report(REGISTRY, f"{name}: index {index} and the records differ in {wrong}")
        return found

    def _check_audit_log(self, txn: Transaction, audit: lmdb._Database) -> None:
        for key, data in txn.cursor(db=audit):
            self.records += 1
            try:
                decode_record(data, AuditRow)
            except StoreError as error:
                self._report(REGISTRY, f"audit {from_key(key)}: {error}")

    def _check_modules(self, resources: dict[int, Any]) -> None:
        if self._data / MODULES in self._unreadable:
            return
        for sha256 in sorted({resource.sha256 for resource in resources.values()}):
            place = f"{MODULES}/{sha256}.wasm"
            if not _DIGEST.fullmatch(sha256):
                self._report(REGISTRY, f"{sha256[:80]!r} is not the SHA-256 of a module")
                continue
            try:
                with (self._data / place).open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                self._report(place, error.strerror or str(error))
                continue
            if digest != sha256:
                self._report(place, "its content has another SHA-256 than its name")

    def _check_operators(self, operators: dict[int, Any]) -> None:
        if not operators or self._data / "secrets" in self._unreadable:
            return
        try:
            vault = Vault((self._data / "secrets" / "operator.key").read_bytes())
        except OSError as error:
            self._report("secrets/operator.key", error.strerror or str(error))
            return
        for operator in operators.values():
            for sealed in filter(None, (operator.sealed_key, operator.sealed_paymaster)):
                try:
                    vault.open(sealed, operator.address)
                except (StoreError, ValueError) as error:
                    self._report(REGISTRY, f"operator {operator.operator_id}: {error}")

    def _check_secrets(self) -> None:
        for name, size in _SECRETS.items():
            place = f"secrets/{name}"
            try:
                found = (self._data / place).stat()
            except FileNotFoundError:
                if name == "token.key":
                    self._report(
                        place, "it is missing, so no login and no publisher token is valid"
                    )
                continue
            if found.st_size != size:
                self._report(place, f"{found.st_size} bytes; a key has {size}")
            if found.st_mode & 0o077:
                self._report(place, "other users can read it; set its mode to 0600")

    # ------------------------------------------------------------ projects

    def _check_project(self, path: Path, place: str) -> None:
        self.projects += 1
        environment = open_environment(path, map_size=0, readonly=True)
        try:
            before = sql.committed_number(path / sql.FILE)
            with environment.begin() as txn:
                names = {bytes(name) for name, _ in txn.cursor()}
                for name, decode in PROJECT_TABLES.items():
                    if name in names:
                        self._check_table(environment, txn, f"{place}: {name.decode()}", decode)
                stage = _stage(environment, txn) if STAGE in names else None
                self._numbers[int(path.name)] = batch_number(environment, txn)
                after = sql.committed_number(path / sql.FILE)
        finally:
            environment.close()
        # A staged batch is settled before the next commit, so other numbers are inconsistent.
        elsewhere = (path / POSTGRES).exists()
        if stage is not None and not elsewhere and not before <= stage <= after + 1:
            self._report(place, f"batch {stage} is staged, but SQL has committed {after}")
        if (path / sql.FILE).exists():
            for defect in sql.check(path / sql.FILE):
                self._report(f"{place}/{sql.FILE}", defect)

    def _check_table(
        self,
        environment: lmdb.Environment,
        txn: Transaction,
        place: str,
        decode: Callable[[bytes, bytes], object],
    ) -> None:
        database = environment.open_db(place.rpartition(" ")[2].encode(), txn=txn, create=False)
        for key, value in txn.cursor(db=database):
            self.records += 1
            try:
                decode(key, value)
            except (msgspec.MsgspecError, NodeError, ValueError) as error:
                self._report(place, f"{key[:16].hex()}: {error}")

    def _check_other_stores(self) -> None:
        """Check that all other stores can be opened and read to the end.

        In the store of the MQTT listener, each row is also decoded.
        """
        for path in sorted(self._data.glob("*/**/data.mdb")):
            place = path.parent.relative_to(self._data)
            if place.parts[0] in (REGISTRY, PROJECTS, "run", "rollback"):
                continue
            if path.parent in self._unreadable:
                continue
            if place.parts[0] == REFUSED and not is_of_this_boot(self._data / REFUSED):
                continue  # never synced, and removed at the next start
            self._check_store(place.as_posix(), partial(self._check_other_store, path.parent))

    def _check_other_store(self, folder: Path) -> None:
        environment = open_environment(folder, map_size=0, readonly=True)
        try:
            checks = MQTT_CHECKS if folder == self._data / MQTT else {}
            with environment.begin() as txn:
                for name, _ in txn.cursor():
                    check = checks.get(bytes(name))
                    if check is None:
                        self.records += _count(environment, txn, bytes(name))
                    else:
                        place = f"{MQTT}: {name.decode()}"
                        self._check_table(environment, txn, place, check)
        finally:
            environment.close()


def _mode(path: Path) -> int:
    """Return the mode of a path's target; 0 if the target does not exist (any more)."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _count(environment: lmdb.Environment, txn: Transaction, name: bytes) -> int:
    """Read and count all pairs of a named database; return 1 if `name` is a plain pair instead."""
    try:
        database = environment.open_db(name, txn=txn, create=False)
    except (lmdb.IncompatibleError, lmdb.BadValsizeError):
        return 1
    return sum(1 for _ in txn.cursor(db=database))


def _stage(environment: lmdb.Environment, txn: Transaction) -> int | None:
    database = environment.open_db(STAGE, txn=txn, create=False)
    data = txn.get(STAGE, db=database)
    try:
        return None if data is None else decode_record(data, Batch).number
    except StoreError:
        return None  # reported with the other records
