"""A node under load while faults are injected; at the end the ledger is compared with the store."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fieldbrook.observability import fault_points
from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import store_path
from tests.faults.applet import counter
from tests.faults.ledger import Ledger, Verdict
from tests.faults.loads import HttpBatches, HttpSingles, Load, MqttMessages, MqttSessions, Target
from tests.support.crash_at import CrashAt
from tests.support.nodes import RunningNode, alive, part_of, parts, until

PROJECT = "faults"
IDLE_S = 1
HEAL_S = 60.0
# More than the 10 s of silence after which the supervisor kills a child.
_FROZEN_S = 15.0
_FULL_S = 3.0
_FILLED_BYTES = 4096
_SMALL_DISK_BYTES = 1 << 30
_EVERYTHING = 10_000_000
PROJECT_PART = "project"
KILLED = (
    PROJECT_PART,
    "fb-http:0",
    "fb-mqtt:0",
    "fb-registry",
    "fb-scheduler",
    "fb-core",
    "fb-root",
    "fb-admin",
    "fb-actor",
    "fb-node",
)
FROZEN = ("project", "fb-http:0", "fb-mqtt:0")
CUTS = (
    *fault_points.CUTS,
    *("project.before_commit", "project.committed", "project.events_answered"),
)
_RETIRING = "worker.project_closed"
_MQTT_PARTS = ("fb-mqtt:0",)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: a verb, and a process if the verb needs one."""

    verb: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.part}".strip()


@dataclass(slots=True)
class Held:
    """The resources of one process when it was first seen, and at the end."""

    part: str
    files: tuple[int, int]
    memory_kib: tuple[int, int]


@dataclass(slots=True)
class Report:
    """The results of a run."""

    verdict: Verdict = field(default_factory=Verdict)
    faults: Counter[str] = field(default_factory=Counter)
    gaps_s: dict[str, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return self.verdict.sound and not self.problems

    def gaps_of_kills(self, *, project: bool) -> list[float]:
        """Return the gaps after kills of a project's worker, or of any other process, in ascending
        order."""
        of_project = str(Fault("kill", PROJECT_PART))
        return sorted(
            gap
            for fault, gaps in self.gaps_s.items()
            for gap in gaps
            if fault.startswith(("kill ", "cut "))
            and (fault == of_project or fault.startswith("cut ")) == project
        )

    @property
    def kills(self) -> int:
        """The number of processes that were killed, at a random moment or at a fault point."""
        return sum(n for fault, n in self.faults.items() if fault.startswith(("kill ", "cut ")))


def faults(seed: int, count: int, kinds: Sequence[Fault]) -> Iterator[tuple[Fault, float]]:
    """Yield faults with the seconds to wait before each; a seed always gives the same faults.

    All `kinds` come in a random order, then in another random order, and so on.
    """
    chance = random.Random(seed)
    pack: list[Fault] = []
    for _ in range(count):
        if not pack:
            pack = list(kinds)
            chance.shuffle(pack)
        yield pack.pop(), chance.uniform(0.0, 0.4)


def every_kind(folder: Path, only: str = "") -> list[Fault]:
    """Return the faults of the long form: mostly kills, of workers also at each point of a commit.
    A disk is filled only if `folder` has a small disk of its own. `only`: a regular expression for
    the names of faults."""
    kills = [Fault("kill", part) for part in KILLED]
    cuts = [Fault("cut", point) for point in CUTS]
    rest = [Fault("kill", "everything"), Fault("deploy"), Fault("revoke"), Fault("idle")]
    slow = [Fault("copy"), *(Fault("freeze", part) for part in FROZEN)]
    if shutil.disk_usage(folder).total < _SMALL_DISK_BYTES:
        slow += [Fault("fill")] * 2
    kinds = [*kills * 4, *cuts * 2, *rest * 2, *slow]
    return [kind for kind in kinds if re.search(only, str(kind))]


def no_progress(_: str) -> None:
    """Ignore the progress."""


class Harness:
    """One node, one project, and its devices. `folder` must have a short path, because the node's
    sockets are below it."""

    def __init__(
        self,
        folder: Path,
        tell: Callable[[str], None] = no_progress,
        *,
        steady_s: float = 0.0,
    ) -> None:
        """`steady_s`: let the node be for so long before each fault. What lived for
        `restarts.STEADY_S` is started again at once when it dies; without, pauses grow."""
        self._folder = folder
        self._tell = tell
        self._steady_s = steady_s
        self.report = Report()
        self.ledger = Ledger()
        self._crash_at = CrashAt(folder / "crash-at")
        self.node = self._crash_at.node(folder / "n", "--project-idle-s", str(IDLE_S))
        self._versions = 1
        self._copies = 0
        self._seen: dict[int, Held] = {}
        try:
            self._set_up()
        except BaseException:
            self.node.stop()
            raise

    def _set_up(self) -> None:
        self.node.log_in()
        self.project_id = int(self.node.create_project(PROJECT)["projectID"])
        self.applet_id = int(self.node.deploy(PROJECT, counter(1))["appletID"])
        http = [
            Target(self.node.http_port, PROJECT, self.node.add_publisher(PROJECT, f"http{n}"))
            for n in range(2)
        ]
        mqtt = Target(self.node.mqtt_port, PROJECT, self.node.add_publisher(PROJECT, "mqtt"))
        self._revocable = http[0]
        self.loads: list[Load] = [
            *(HttpSingles(self.ledger, http[n % 2], n, 0.005) for n in range(4)),
            *(HttpBatches(self.ledger, http[n % 2], n, 0.05) for n in range(2)),
            *(MqttMessages(self.ledger, mqtt, n, 0.01) for n in range(2)),
            *(MqttSessions(self.ledger, mqtt, n, 0.01) for n in range(2)),
        ]

    def run(self, plan: Iterator[tuple[Fault, float]]) -> Report:
        """Cause the faults of the plan under load; then compare the ledger with the store."""
        for load in self.loads:
            load.start()
        try:
            self._wait_healed(time.monotonic())
            for number, (fault, wait_s) in enumerate(plan, 1):
                time.sleep(self._steady_s + wait_s)
                self._one(fault, number)
            self._settle()
        finally:
            self.node.stop()
        return self.report

    def _one(self, fault: Fault, number: int) -> None:
        self.report.faults[str(fault)] += 1
        since = time.monotonic()
        gap = None
        try:
            since = self._break(fault)
            gap = self._wait_healed(since, mqtt=fault.part in _MQTT_PARTS)
        except (AssertionError, OSError) as error:
            self._problem(f"{number}, {fault}: {error!r}")
        if gap is None:
            self._problem(f"{number}, {fault}: not served again within {HEAL_S:.0f} s")
            return
        self.report.gaps_s.setdefault(str(fault), []).append(gap)
        self._look_at_processes()
        self._tell(f"{number:5} {fault}: {gap * 1000:.0f} ms, {self.ledger.count} acknowledged")

    def _problem(self, text: str) -> None:
        self.report.problems.append(text)
        self._tell(f"PROBLEM {text}")

    def _wait_healed(self, since: float, *, mqtt: bool = False) -> float | None:
        """Wait until every load is served; returns the longest time since `since` without an
        acknowledged event over HTTP, or with `mqtt` the time until events are acknowledged over
        MQTT again."""
        broken_until = time.monotonic()
        for load in ("mqtt", "mqtt session"):
            if not self.ledger.wait_for_attempt(load, broken_until, HEAL_S):
                return None
        healed = time.monotonic()
        for load in ("single", "batch"):
            if not self.ledger.wait_for_attempt(load, broken_until, HEAL_S):
                return None
        return healed - since if mqtt else self.ledger.silence(since)

    def _break(self, fault: Fault) -> float:
        """Cause a fault; return when it has happened, or when its last effect was removed."""
        match fault.verb:
            case "kill" if fault.part == "everything":
                began = time.monotonic()
                self.node.kill()
                self.node.start()
                return began
            case "kill":
                return self._kill(fault.part)
            case "cut":
                return self._cut(fault.part)
            case "freeze":
                return self._freeze(self._pid(fault.part))
            case "deploy":
                self._until_answered(self._deploy)
            case "revoke":
                self._until_answered(self._revoke)
            case "idle":
                self._be_idle()
            case "copy":
                self._copy()
            case "fill":
                self._fill()
        return time.monotonic()

    def _pid(self, part: str) -> int:
        """Return the pid of a running process; wait if it is just starting."""
        return int(until(lambda: parts(self.node).get(part), f"{part} runs", HEAL_S))

    def _kill(self, part: str) -> float:
        pid, began = self._pid(part), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        until(lambda: self._pid(part) != pid, f"another {part}", HEAL_S)
        return began

    def _cut(self, point: str) -> float:
        """Make the next process that reaches the point die; return when the first one has died."""
        self._crash_at.arm(point)
        killed = None
        if point.startswith("recovery."):  # only a start reaches it
            killed = self._kill(PROJECT_PART)
        try:
            if point == _RETIRING:
                self._rest()
            until(self._crash_at.reached, f"a worker at {point}", HEAL_S)
        finally:
            died = time.monotonic()
            self._go_on()
        return killed or died

    def _freeze(self, pid: int) -> float:
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        until(lambda: not alive(pid) or time.monotonic() > began + _FROZEN_S, "a thaw", HEAL_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        return began

    def _until_answered(self, action: Callable[[], bool]) -> None:
        def answered() -> bool:
            with contextlib.suppress(OSError):
                return action()
            return False

        until(answered, action.__name__, HEAL_S)

    def _deploy(self) -> bool:
        self._versions += 1
        mark = "----fieldbrook"
        head = f'--{mark}\r\nContent-Disposition: form-data; name="'
        info = head + f'info"\r\n\r\n{json.dumps({"appletName": "applet"})}\r\n'
        module = counter(self._versions % 5).decode()
        file = head + f'file"; filename="applet.wasm"\r\n\r\n{module}\r\n--{mark}--\r\n'
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        body = (info + file).encode()
        return self.node.call("PUT", f"/applet/{self.applet_id}", body, headers=kind).status == 200

    def _revoke(self) -> bool:
        publisher = self._revocable.publisher
        path = f"/publisher/data/{publisher['publisherID']}/token"
        answer = self.node.call("POST", path, {})
        if answer.status != 201:
            return False
        self._revocable.publisher = {**publisher, "token": answer.json["token"]}
        old = self.node.send(
            PROJECT,
            {
                **self.loads[0].event("revoked"),
                "header": {
                    "pub_id": publisher["key"],
                    "token": publisher["token"],
                    "event_type": "DEFAULT",
                    "pub_time": 1,
                },
            },
        )
        assert old.status == 401, f"a revoked token was answered {old}"
        return True

    def _be_idle(self) -> None:
        """Stop the load until the project retires."""
        try:
            self._rest()
            until(lambda: "project" not in parts(self.node), "the project retires", HEAL_S)
        finally:
            self._go_on()

    def _fill(self) -> None:
        """Fill the disk for some seconds."""
        filler = self._folder / "filler"
        try:
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(_FILLED_BYTES)) == _FILLED_BYTES:
                    pass
            time.sleep(_FULL_S)
        finally:
            filler.unlink()

    def _copy(self) -> None:
        """Copy the files, like a power cut at this moment if the system had written everything; a
        node that opens the copy must have all acknowledged events."""
        before = self.ledger.names_acknowledged()
        self._copies += 1
        copy = self._folder / f"c{self._copies}"
        pids = self.node.processes()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            _copy_files(self.node.data, copy)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        opened = RunningNode(copy, "--project-idle-s", str(IDLE_S))
        try:
            missing = self._missing_in(copy, before)
        finally:
            opened.stop()
        shutil.rmtree(copy)
        assert not missing, f"not in a copy that began afterwards: {sorted(missing)[:5]}"

    def _missing_in(self, data: Path, expected: set[str]) -> set[str]:
        missing = expected

        def complete() -> bool:
            nonlocal missing
            missing = expected - self._counts(data=data).keys() - self._parked(data)
            return not missing

        with contextlib.suppress(AssertionError):
            until(complete, "all are committed", HEAL_S)  # the broker's messages come late
        return missing

    def _rest(self) -> None:
        for load in self.loads:
            load.rest(0.0)
        for load in self.loads:
            assert load.rest(HEAL_S), f"{load.name} does not come to rest; {load.failure}"

    def _go_on(self) -> None:
        for load in self.loads:
            load.go_on()

    def _settle(self) -> None:
        try:
            self._rest()
        except AssertionError as error:
            self._problem(str(error))
        self._look_at_processes()
        self._missing_in(self.node.data, self.ledger.names_acknowledged())
        time.sleep(1.0)  # an extra one would come now
        counts, parked = self._counts(), self._parked(self.node.data)
        self.report.verdict = self.ledger.compare(counts, parked)
        self.report.refused = dict(self.ledger.refused)
        self.report.held = [held for pid, held in self._seen.items() if alive(pid)]
        for load in self.loads:
            load.end()
            if load.failure:
                self._problem(load.failure)

    def _look_at_processes(self) -> None:
        for pid in self.node.processes():
            with contextlib.suppress(OSError):
                files, memory = len(list(Path(f"/proc/{pid}/fd").iterdir())), _memory_kib(pid)
                held = self._seen.setdefault(
                    pid, Held(part_of(pid), (files, files), (memory, memory))
                )
                held.files = (held.files[0], files)
                held.memory_kib = (held.memory_kib[0], memory)

    def _counts(self, prefix: str = "", data: Path | None = None) -> dict[str, int]:
        return counts(data or self.node.data, self.project_id, self.applet_id, prefix)

    def _parked(self, data: Path) -> set[str]:
        return parked(data, self.project_id)


def counts(data: Path, project_id: int, applet_id: int, prefix: str = "") -> dict[str, int]:
    """Return how often the handler saw each event whose name has this prefix, from the committed
    data in a node's folder; the node may be running."""
    with _store(data, project_id) as reader:
        if reader is None:
            return {}
        keys = reader.kv_keys(applet_id, prefix.encode(), _EVERYTHING)
        values = ((key, reader.kv_get(applet_id, key)) for key in keys)
        return {key.decode(): int.from_bytes(v[:8], "little") for key, v in values if v}


def parked(data: Path, project_id: int) -> set[str]:
    """Return the names of the events in dead letters."""
    with _store(data, project_id) as reader:
        if reader is None:
            return set()
        letters, _ = reader.dead_letters(None, _EVERYTHING)
        return {one.letter.payload.decode() for one in letters}


@contextlib.contextmanager
def _store(data: Path, project_id: int) -> Iterator[ProjectStoreReader | None]:
    reader = ProjectStoreReader.open_if_exists(store_path(data / "projects", project_id))
    try:
        yield reader
    finally:
        if reader is not None:
            reader.close()


def _memory_kib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def _copy_files(source: Path, target: Path) -> None:
    # Sockets and process ids belong to the node whose folder was copied.
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("run", "*.pid", "*.ports"))
