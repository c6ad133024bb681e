"""`python -m tests.faults.powercut --cuts 200 --seed 1`: what a power cut may leave of a node.

A node runs under load while all its writes are recorded (`writelog.c`). For cuts at random places
of the record, a folder is made in a state in which a disk may be then (`disk.py`). The folder must
have everything that was acknowledged before the cut, nothing may be damaged or doubled, and a node
must start on it.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import mmap
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from fieldbrook.core.errors import NodeError
from fieldbrook.storage.backup.verify import verify
from fieldbrook.storage.journal.recovery import JOURNALS, Stores, recover_abandoned
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import ProjectStore, store_path
from fieldbrook.storage.project.stored import stored_number
from fieldbrook.storage.registry.reader import RegistryReader
from tests.faults.applet import counter
from tests.faults.disk import Cut, Disk, Record, any_cut, read
from tests.faults.harness import counts
from tests.faults.ledger import Ledger
from tests.faults.loads import HttpBatches, HttpSingles, Load, Target
from tests.support.nodes import MODULES, RunningNode, message, named, parts
from tests.support.tools import require_tool

KEPT, SQL = "kept", "rows"
_PASSWORD = "correct horse"
_TABLE = "t_events"
_SCHEMA = {"name": _TABLE, "cols": [{"name": "f_name", "constrains": {"datatype": "TEXT"}}]}
_INSERT = f"INSERT INTO {_TABLE} (f_name) VALUES (?)"
_STORE_BYTES = 1 << 30
_STRANGERS_S, _PUBLISHERS_S, _DEPLOYS_S = 0.05, 0.1, 0.7
_SENT_AGAIN = 40  # events per load that are sent again to a node on a rebuilt folder


class ClockedLedger(Ledger):
    """Stores for each acknowledgement how many records existed when it arrived."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock
        self.at: dict[str, int] = {}

    def acknowledged(self, load: str, name: str, began: float) -> None:
        self.at[name] = self._clock()
        super().acknowledged(load, name, began)


class Promise(NamedTuple):
    """A change of the registry that was acknowledged at a place in the record."""

    at: int
    kind: str
    name: str


@dataclass(slots=True)
class Recording:
    """A run: the written data, and the acknowledgements with their places in the record."""

    data: Path
    records: list[Record]
    promises: list[Promise]
    events: dict[str, dict[str, int]]  # by project: name and place of the acknowledgement
    sent: dict[str, set[str]]
    projects: dict[str, int] = field(default_factory=dict)
    applets: dict[str, int] = field(default_factory=dict)
    publishers: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The number after that of the last record."""
        return self.records[-1].number + 1


class SqlSingles(HttpSingles):
    """Each event writes a row to SQL and counts it in the key-value store: one batch in two
    stores."""

    kind = "sql"

    def event(self, name: str) -> dict[str, Any]:
        statement = {"statement": _INSERT, "params": [{"string": name}]}
        made = message(self.target.publisher, json.dumps(statement).encode())
        if self.named:
            named(made, name)
        return made


def build_recorder(folder: Path) -> Path:
    """Compile the library that is loaded into the node's processes."""
    library = folder / "writelog.so"
    source = Path(__file__).with_name("writelog.c")
    options = ["-O2", "-shared", "-fPIC", "-ldl", "-o", str(library)]
    command = [require_tool("clang"), *options, str(source)]
    subprocess.run(command, check=True, timeout=60)
    return library


class _RecordedNode(RunningNode):
    def __init__(self, data: Path, out: Path, library: Path) -> None:
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "WRITELOG_ROOT": str(data),
            "WRITELOG_OUT": str(out),
        }
        super().__init__(data)

    def require_followed(self) -> None:
        """Check that the writes of every process are recorded."""
        for part, pid in parts(self).items():
            maps = Path(f"/proc/{pid}/maps").read_text()
            assert "writelog.so" in maps, f"{part} is not followed"


class Recorder:
    """Runs a node under load for some seconds, from its very first start."""

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        out = folder / "writes"
        out.mkdir()
        (out / "clock").write_bytes(bytes(8))
        with (out / "clock").open("rb") as file:
            self._clock = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
        self._out = out
        self._promises: list[Promise] = []
        self._ended = threading.Event()
        self._failure = ""
        self.node = _RecordedNode(folder / "n", out, build_recorder(folder))

    def now(self) -> int:
        """The number of the next record."""
        return int.from_bytes(self._clock[:8], "little")

    def run(self, seconds: float) -> Recording:
        """Run the node under load, and stop it at the end."""
        try:
            return self._run(seconds)
        finally:
            self._ended.set()
            self.node.stop()

    def _run(self, seconds: float) -> Recording:
        node = self.node
        ledgers: dict[str, ClockedLedger] = {}
        loads: list[Load] = []
        node.log_in(password=_PASSWORD)
        self._promise("account", "admin")
        recording = Recording(node.data, [], self._promises, {}, {})
        for project, kinds in {KEPT: (HttpSingles, HttpBatches), SQL: (SqlSingles,)}.items():
            ledgers[project] = ClockedLedger(self.now)
            target = self._set_up(recording, project)
            for kind in kinds:
                loads += [kind(ledgers[project], target, n, 0.002) for n in range(2)]
        node.require_followed()
        others = [
            threading.Thread(target=self._manage, args=(recording, pause, action))
            for pause, action in (
                (_PUBLISHERS_S, self._add_publisher),
                (_DEPLOYS_S, self._deploy),
                (_STRANGERS_S, self._be_refused),
            )
        ]
        for thread in (*loads, *others):
            thread.start()
        time.sleep(seconds)
        self._ended.set()
        for thread in others:
            thread.join()
        _end(loads)
        assert not self._failure, self._failure
        node.stop()
        recording.records = read(self._out)
        recording.events = {project: ledger.at for project, ledger in ledgers.items()}
        recording.sent = {project: ledger.names_sent() for project, ledger in ledgers.items()}
        return recording

    def _promise(self, kind: str, name: str) -> None:
        self._promises.append(Promise(self.now(), kind, name))

    def _set_up(self, recording: Recording, project: str) -> Target:
        node = self.node
        recording.projects[project] = int(node.create_project(project)["projectID"])
        self._promise("project", project)
        if project == SQL:
            config = {"schemas": [{"schema": "public", "tables": [_SCHEMA]}]}
            path = f"/project_config/x/{project}/PROJECT_DATABASE"
            assert node.call("POST", path, config).status == 201
        module = (MODULES / "ledger.wat").read_bytes() if project == SQL else counter(0)
        recording.applets[project] = int(node.deploy(project, module)["appletID"])
        self._promise("module", _digest(node, recording.applets[project]))
        recording.publishers[project] = node.add_publisher(project, "device")
        self._promise(f"publisher of {project}", "device")
        return Target(node.http_port, project, recording.publishers[project])

    def _manage(
        self, recording: Recording, pause_s: float, action: Callable[[Recording, int], None]
    ) -> None:
        number = 0
        try:
            while not self._ended.wait(pause_s):
                number += 1
                with suppress(OSError):  # on a busy machine nothing was acknowledged
                    action(recording, number)
        except Exception as error:  # noqa: BLE001 - told by the one who joins the thread
            self._failure = f"{action.__name__}: {error!r}"

    def _add_publisher(self, _: Recording, number: int) -> None:
        self.node.add_publisher(KEPT, f"p{number}")
        self._promise(f"publisher of {KEPT}", f"p{number}")

    def _deploy(self, recording: Recording, number: int) -> None:
        applet = recording.applets[KEPT]
        answer = self.node.redeploy(str(applet), counter(number))
        assert answer.status == 200, answer
        self._promise("module", _digest(self.node, applet))

    def _be_refused(self, _: Recording, number: int) -> None:
        """Send refused events; refusals are stored without a sync."""
        stranger = {"key": f"stranger{number % 7}", "token": "t"}
        for project in (KEPT, f"nowhere{number % 5}"):
            answer = self.node.send(project, message(stranger, bytes(200)))
            assert answer.status in (401, 404), answer


def _end(loads: Sequence[Load]) -> None:
    for load in loads:
        load.rest(0.0)
    for load in loads:
        assert load.rest(60.0), f"{load.name} does not come to rest; {load.failure}"
    for load in loads:
        load.end()
        assert not load.failure, load.failure


def _digest(node: RunningNode, applet_id: int) -> str:
    """Return the digest of the module that an applet runs."""
    reader = RegistryReader(node.data / "registry")
    try:
        applet = reader.applet(applet_id)
        assert applet is not None
        return applet.sha256
    finally:
        reader.close()


# ---------------------------------------------------------------- looking at a folder


@dataclass(slots=True)
class Look:
    """The defects of a folder after a cut, and the number of checked items."""

    problems: list[str] = field(default_factory=list)
    expected: int = 0


def look_apart(recording: Recording, data: Path, at: int) -> Look:
    """Run `look_at` in a process of its own: a file that is too short after the cut ends the
    process that maps it with SIGBUS, which is a finding, too."""
    context = multiprocessing.get_context("fork")  # a recording is too large to be sent
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_look_and_tell, args=(recording, data, at, sender))
    with warnings.catch_warnings():
        # Python 3.12 warns of this; other threads of this process hold no lock that the child uses.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    sender.close()
    with receiver:
        try:
            look = receiver.recv()
        except EOFError:
            look = Look(["reading it ended the process"])
    process.join()
    if process.exitcode:
        look.problems.append(f"reading it ended with {process.exitcode}")
    assert isinstance(look, Look)
    return look


def _look_and_tell(recording: Recording, data: Path, at: int, sender: Connection) -> None:
    faulthandler.disable()  # the waiting parent reports the death
    with sender:
        sender.send(look_at(recording, data, at))


def look_at(recording: Recording, data: Path, at: int) -> Look:
    """Open the stores of a rebuilt folder and compare them with what was acknowledged before
    the record of number `at`."""
    look = Look()
    promised = [promise for promise in recording.promises if promise.at <= at]
    look.expected += len(promised)
    try:
        _look_at_registry(recording, data, promised, look)
        if promised:
            look.problems += _recover(data)
        for project, project_id in recording.projects.items():
            names = {name for name, when in recording.events[project].items() if when <= at}
            look.expected += len(names)
            if not any(promise == (promise.at, "project", project) for promise in promised):
                continue
            if not (store_path(data / "projects", project_id) / "data.mdb").exists():
                if names:
                    look.problems.append(f"{project}: no store, and {len(names)} events in it")
                continue
            found = _events(recording, data, project, look)
            lost = sorted(names - found.keys())
            if lost:
                look.problems.append(f"{project}: {len(lost)} events lost, {lost[:3]}")
            twice = [name for name, count in found.items() if count > 1]
            if twice:
                look.problems.append(f"{project}: doubled: {twice[:3]}")
            strange = sorted(found.keys() - recording.sent[project])
            if strange:
                look.problems.append(f"{project}: nobody sent {strange[:3]}")
        if promised:
            look.problems += verify(data).defects
    except (NodeError, sqlite3.Error) as error:
        look.problems.append(repr(error))
    return look


def _recover(data: Path) -> list[str]:
    """Do what workers do at their start: write batches that are only in the journals into the
    stores."""
    projects = data / "projects"
    with closing(RegistryReader(data / "registry")) as registry:
        stores = Stores(
            projects,
            lambda project_id: registry.project(project_id) is not None,
            lambda project_id: stored_number(store_path(projects, project_id)),
            lambda project_id: ProjectStore(store_path(projects, project_id), _STORE_BYTES),
        )
        if not (data / JOURNALS).is_dir():
            return []
        found = recover_abandoned(data / JOURNALS, (), stores).values()
    aside = [
        f"project {n} lacks batches: {why}" for done in found for n, why in done.unapplied.items()
    ]
    return aside + [str(damage) for done in found for damage in done.damaged]


def _look_at_registry(
    recording: Recording, data: Path, promised: list[Promise], look: Look
) -> None:
    if not promised:
        return
    key = "secrets/token.key"
    if (
        not (data / key).exists()
        or (data / key).read_bytes() != (recording.data / key).read_bytes()
    ):
        look.problems.append(f"{key} is not the one with which tokens were signed")
    if not (data / "registry" / "data.mdb").exists():
        look.problems.append(f"no registry, and {len(promised)} promises in it")
        return
    modules = [promise.name for promise in promised if promise.kind == "module"]
    reader = RegistryReader(data / "registry")
    try:
        for _, kind, name in promised:
            if not _is_there(recording, reader, kind, name):
                look.problems.append(f"{kind} {name} is not there")
        applet = reader.applet(recording.applets[KEPT])
        mine = [name for name in modules if name in _counters()]
        if mine and (applet is None or applet.sha256 not in _since(recording, mine[-1])):
            look.problems.append(f"the applet is not {mine[-1]} nor a later one")
    finally:
        reader.close()


def _since(recording: Recording, module: str) -> set[str]:
    """Return this module and those that were deployed after it, acknowledged or not."""
    numbers = list(_counters())
    return set(numbers[numbers.index(module) :]) if module in numbers else {module}


def _counters(limit: int = 1_000) -> dict[str, int]:
    if not _DIGESTS:
        from fieldbrook.wasm.module.inspection import to_binary

        for number in range(limit):
            _DIGESTS[hashlib.sha256(to_binary(counter(number))).hexdigest()] = number
    return _DIGESTS


_DIGESTS: dict[str, int] = {}


def _is_there(recording: Recording, reader: RegistryReader, kind: str, name: str) -> bool:
    if kind == "account":
        return reader.account_named(name) is not None
    if kind == "project":
        return reader.project(recording.projects[name]) is not None
    if kind.startswith("publisher of "):
        project_id = recording.projects[kind.removeprefix("publisher of ")]
        return reader.publisher_with_key(project_id, name) is not None
    return True


def _events(recording: Recording, data: Path, project: str, look: Look) -> dict[str, int]:
    """Return how often each event was handled, according to a project's data."""
    project_id, applet_id = recording.projects[project], recording.applets.get(project, 0)
    path = store_path(data / "projects", project_id)
    ProjectStore(path, _STORE_BYTES).close()  # finishes what it was at
    if project != SQL:
        return counts(data, project_id, applet_id)
    reader = ProjectStoreReader.open_if_exists(path)
    assert reader is not None
    try:
        counted = int.from_bytes(reader.kv_get(applet_id, b"count") or b"", "little")
    finally:
        reader.close()
    rows = _rows(path / "sql.db")
    if rows.total() != counted:
        look.problems.append(f"{rows.total()} rows, and {counted} are counted")
    return dict(rows)


def _rows(path: Path) -> Counter[str]:
    if not path.exists():
        return Counter()
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name = ?", (_TABLE,))
        if tables.fetchone() is None:
            return Counter()
        return Counter(name for (name,) in connection.execute(f"SELECT f_name FROM {_TABLE}"))


def run_on(recording: Recording, data: Path, at: int) -> list[str]:
    """Start a node on a rebuilt folder and send the last events before the cut again, acknowledged
    or not: afterwards the node must have each of them once."""
    if not any(promise.at <= at for promise in recording.promises):
        return []
    node = RunningNode(data)
    look = Look()
    try:
        node.log_in(password=_PASSWORD)
        for project in recording.projects:
            if node.call("GET", f"/project/x/{project}/data").status == 404:
                continue
            _send_again(recording, node, project, at, look)
        answer = node.call("GET", "/refused_event")
        if answer.status != 200:
            look.problems.append(f"what was refused: {answer}")
    except (AssertionError, OSError) as error:
        look.problems.append(f"a node on it: {error!r}"[:2_000])
    finally:
        node.stop()
    problems = [line for line in node.log.splitlines() if _is_problem(line)]
    after = look_apart(recording, data, at)
    return [*look.problems, *after.problems, *problems]


def _is_problem(line: str) -> bool:
    """Return whether a log line is a problem; a slow stop is none, because it does not concern the
    data on the disk."""
    return (" ERROR " in line or " CRITICAL " in line) and "did not stop within" not in line


def _send_again(recording: Recording, node: RunningNode, project: str, at: int, look: Look) -> None:
    publisher = recording.publishers[project]
    if ("publisher of " + project, "device") not in {
        (promise.kind, promise.name) for promise in recording.promises if promise.at <= at
    }:
        return
    target = Target(node.http_port, project, publisher)
    made = (SqlSingles if project == SQL else HttpSingles)(Ledger(), target, 0, 0.0)
    ordered = sorted(recording.events[project].items(), key=lambda item: item[1])
    around = [name for name, when in ordered if when <= at][-_SENT_AGAIN:]
    around += [name for name, when in ordered if when > at][:_SENT_AGAIN]
    for name in around:
        if _is_named(name):
            answer = node.send(project, made.event(name))
            if answer.status != 201 or any(one["code"] for one in answer.json["results"]):
                look.problems.append(f"{name}, sent again: {answer}")


def _is_named(name: str) -> bool:
    """Return whether the load gave its events ids: loads with an even number do."""
    return int(name.partition("-")[0][-1]) % 2 == 0


# ---------------------------------------------------------------- cuts


@dataclass(slots=True)
class Report:
    """The results. `failed`: each cut with defects, and the defects."""

    records: int = 0
    cuts: int = 0
    nodes: int = 0
    looked_for: int = 0
    failed: list[tuple[int, Cut, list[str]]] = field(default_factory=list)


def places(recording: Recording, count: int, chance: random.Random) -> list[int]:
    """Return the places of cuts in ascending order: a quarter anywhere, the others while events
    were acknowledged."""
    first = min(when for ats in recording.events.values() for when in ats.values())
    return sorted(
        chance.randrange(first if number % 4 else 1, recording.last + 1) for number in range(count)
    )


def try_cuts(
    recording: Recording,
    folder: Path,
    count: int,
    seed: int,
    nodes: int = 0,
    *,
    ignore_syncs: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Cut at `count` places; start a node on `nodes` of the folders."""
    chance = random.Random(seed)
    report = Report(records=len(recording.records))
    disk = Disk(recording.data, recording.records, ignore_syncs=ignore_syncs)
    with_node = set(_spread(count, nodes))
    for number, at in enumerate(places(recording, count, chance)):
        disk.advance(at)
        cut, data = any_cut(chance), folder / f"c{number}"
        disk.write_to(data, chance, cut)
        _let_the_machine_start(data)
        for_node = folder / f"n{number}"  # a check changes the folder, like a node does
        if number in with_node:
            shutil.copytree(data, for_node)
        look = look_apart(recording, data, at)
        if number in with_node and not look.problems:
            report.nodes += 1
            look.problems += run_on(recording, for_node, at)
        report.cuts += 1
        report.looked_for += look.expected
        if look.problems:
            report.failed.append((at, cut, look.problems))
            tell(f"cut at {at} of {recording.last}, {cut}: {look.problems[:3]}")
        else:
            shutil.rmtree(data)
            shutil.rmtree(for_node, ignore_errors=True)
    return report


def _spread(count: int, some: int) -> Iterator[int]:
    return (count * number // some for number in range(some))


def _let_the_machine_start(data: Path) -> None:
    """Make the boot mark that of an earlier boot, as after a restart of the system."""
    mark = data / "refused" / ".boot"
    if mark.exists():
        mark.write_text("the one before")


def table(report: Report) -> str:
    """The report as Markdown."""
    heads = {
        "writes and names recorded": report.records,
        "cuts": report.cuts,
        "looked for": report.looked_for,
        "nodes started": report.nodes,
        "cuts with a loss or damage": len(report.failed),
    }
    lines = [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        f"| {' | '.join(map(str, heads.values()))} |",
    ]
    for at, cut, problems in report.failed[:20]:
        lines += ["", f"PROBLEM at {at}, {cut}", *problems[:10]]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Return 0 if nothing is lost, doubled or damaged."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=10, help="start a node on so many of them")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load")
    parser.add_argument("--seed", type=int, default=1, help="of the places and what the disk keeps")
    parser.add_argument("--lying-disk", action="store_true", help="a control: syncs do nothing")
    parser.add_argument("--folder", type=Path, help="where to work; what failed is kept there")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="fb") as made:
        folder = given.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        recording = Recorder(folder).run(given.seconds)
        report = try_cuts(
            *(recording, folder, given.cuts, given.seed, given.nodes),
            ignore_syncs=given.lying_disk,
            tell=lambda line: print(line, flush=True),
        )
    print(table(report))
    return 1 if report.failed else 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # so that all processes are stopped
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
