"""One run: a seed determines a node, devices and faults; in the end the ledger is compared with the
stores."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fieldbrook.actors.shared_journal import SharedJournal
from fieldbrook.core.settings import load
from tests.simulation.faults import Faults
from tests.simulation.ledger import Ledger, LedgerError
from tests.simulation.plan import Plan, plan_of
from tests.simulation.senders import Device, HttpDevice, MqttDevice
from tests.simulation.world.disk import Disk
from tests.simulation.world.guests import KILL
from tests.simulation.world.machine import CrashError, Machine, line_of
from tests.simulation.world.node import Node
from tests.simulation.world.patches import installed, simulated_clock

BOOT_LIMIT_S = 60.0
SETTLE_LIMIT_S = 240.0
LAST_STEPS = 60

Bug = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass
class Outcome:
    """The result of a run; `error` is empty if every promise was kept."""

    seed: int
    error: str = ""
    steps: list[str] = field(default_factory=list)
    events: int = 0
    simulated_s: float = 0.0


def run_seed(
    seed: int, bug: Bug | None = None, on_trace: Callable[[str], None] | None = None
) -> Outcome:
    """Run one seed.

    Args:
        seed: decides everything.
        bug: a planted bug.
        on_trace: called with each line of the trace.
    """
    machine = Machine(seed)
    outcome = Outcome(seed)
    with _folder() as folder, simulated_clock(machine), _own_garbage():
        if on_trace is not None:
            machine.on_trace = lambda line: on_trace(line.replace(str(folder), ""))
        try:
            _run(machine, plan_of(seed), folder, outcome, bug)
        except (Exception, CrashError) as error:  # noqa: BLE001 - it is what this run found
            outcome.error = f"{type(error).__name__}: {error}"
            outcome.steps = [line_of(step).replace(str(folder), "") for step in machine.steps]
    return outcome


def run_seeds(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Run seeds in several processes; the outcomes come in their order."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        yield from pool.map(run_seed, seeds, chunksize=5)


def report_of(outcome: Outcome, steps: int = LAST_STEPS) -> str:
    """Describe a failed run: its last steps, the error, and how to repeat it."""
    lines = [f"the last steps of seed {outcome.seed}:", *outcome.steps[-steps:]] if steps else []
    again = f"python -m tests.simulation --seed {outcome.seed} --verbose"
    return "\n".join([*lines, f"seed {outcome.seed}: {outcome.error}", f"  again: {again}"])


def _run(machine: Machine, plan: Plan, folder: Path, outcome: Outcome, bug: Bug | None) -> None:
    settings = load(
        data=folder,
        workers=plan.workers,
        http_gateways=plan.http,
        project_idle_s=1,
        handler_threads=1,  # no look-ahead
        project_map_bytes=64 << 20,
    )
    for name in ("run", "projects"):
        (folder / name).mkdir()
    disk = Disk(machine, plan.segment_bytes, plan.segments)
    node = Node(machine, settings, disk, plan.projects)
    machine.worst_delay_s, node.post.worst_delay_s = plan.worst_delay_s, plan.worst_message_s
    node.dedicated = frozenset(node.projects[place] for place in plan.dedicated)
    ledger = Ledger(node.removed)
    node.delivered = ledger.on_delivery
    with installed(node), bug() if bug else contextlib.nullcontext():
        node.boot()
        if not machine.run(lambda: node.is_up, BOOT_LIMIT_S):
            raise LedgerError(f"the node is not up after {BOOT_LIMIT_S:.0f} s")
        faults = Faults(node)
        _schedule(machine, plan, node, ledger, faults)
        machine.run(lambda: False, plan.sending_s)
        outcome.events = len(ledger.events)
        machine.at(plan.sending_s * 0.3, None, faults.end)
        machine.run(lambda: False, plan.sending_s * 0.3 + 0.001)
        _settle(machine, node, ledger)
        node.start_projects()  # batches may wait next to a store for the next start
        machine.run(lambda: not node.quiet, 1.0)
        _settle(machine, node, ledger)
        outcome.simulated_s = machine.now
        _check_journals(node)
        node.shut_down()
    ledger.check(settings.data / "projects", node.projects)


def _schedule(machine: Machine, plan: Plan, node: Node, ledger: Ledger, faults: Faults) -> None:
    """Schedule all events and faults."""
    chance = machine.random
    devices: list[Device] = []
    for number, (kind, place) in enumerate(plan.devices, 1):
        may_kill = kind != "named"  # the event would be repeated forever

        def wishes(may_kill: bool = may_kill) -> tuple[str, ...]:
            return tuple(
                wish
                for wish, share in plan.wishes.items()
                if share and chance.random() < share and (may_kill or wish != KILL)
            )

        about = (node, ledger, number, node.projects[place], wishes)
        if kind in ("mqtt", "foreign"):
            devices.append(MqttDevice(*about, foreign=kind == "foreign"))
        else:
            part = f"http:{number % plan.http}"
            devices.append(HttpDevice(*about, names=kind == "named", part=part))
    for _ in range(plan.events):
        device = chance.choice(devices)
        machine.at(chance.random() * plan.sending_s, None, device.send_if_there)
    for when, kind in plan.faults:
        machine.at(when, None, partial(faults.inject, kind))


def _settle(machine: Machine, node: Node, ledger: Ledger) -> None:
    """Wait until every sender has its answers, and every project has retired.

    Raises:
        LedgerError: that takes too long.
    """

    def is_over() -> bool:
        return node.broker.empty and node.quiet and ledger.settled

    if not machine.run(is_over, SETTLE_LIMIT_S):
        raise LedgerError(_what_waits(node, ledger))


def _what_waits(node: Node, ledger: Ledger) -> str:
    waiting = [s.tag for s in ledger.events.values() if not s.settled]
    states = {part: child.state for part, child in node.supervisor.children.items()}
    some = ", ".join(waiting[:5])
    return f"nothing moves any more: {len(waiting)} events wait for answers ({some}...); {states}"


def _check_journals(node: Node) -> None:
    """Check that every store has all its batches, so that no journal has any."""
    for part, worker in node.workers.items():
        if worker.address.process.alive and worker.core is not None:
            assert isinstance(worker.core.journal, SharedJournal)
            kept = worker.core.journal._journal.oldest()
            if kept:
                raise LedgerError(f"{part}: its journal still waits for {dict(kept)}")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="sim-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _own_garbage() -> Iterator[None]:
    """Collect garbage at the end of a run, so that objects are freed at the same steps each
    time."""
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()
