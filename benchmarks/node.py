"""The node under measurement."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.applets import APPLET
from benchmarks.context import Context
from benchmarks.measure import BenchmarkError, wait_for
from benchmarks.servers import PROJECT, Device, Server
from tests.support.nodes import RunningNode

BEFORE = "before"
HANDLERS = ("sum", "kv", "tally", "spin", "loop")


def python_of(checkout: Path) -> Path:
    """The interpreter that runs the node of a checkout."""
    return checkout / ".venv" / "bin" / "python"


def versions(context: Context) -> dict[str, Path | None]:
    """What to measure: "node" of this checkout, and with `--before` that of the other one."""
    found: dict[str, Path | None] = {"node": None}
    if context.before is not None:
        found[BEFORE] = context.before
    return found


@contextmanager
def running_node(
    folder: Path,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    checkout: Path | None = None,
) -> Iterator[RunningNode]:
    """A fresh node below `folder`, stopped at the end; of another checkout when one is given."""
    options = ("--log-level", "WARNING", *flags)
    kind = RunningNode if checkout is None else _of(checkout)
    node = kind(folder / "node", *options, ready=False, environment=environment)
    try:
        wait_until_live(node)
        yield node
    finally:
        end(node)


@contextmanager
def running_nodes(context: Context, folder: Path, *flags: str) -> Iterator[dict[str, RunningNode]]:
    """A node of each version at once; only this one's gets `flags`, the other may not know them."""
    with ExitStack() as stack:
        nodes = {}
        for name, checkout in versions(context).items():
            own = folder / name
            own.mkdir()
            some = () if checkout else flags
            nodes[name] = stack.enter_context(running_node(own, *some, checkout=checkout))
        yield nodes


def _of(checkout: Path) -> type[RunningNode]:
    """The node of another checkout."""

    class Other(RunningNode):
        program = (str(python_of(checkout)), "-m", "fieldbrook")
        folder = checkout

    return Other


def end(node: RunningNode) -> None:
    """Stop a node; one that does not stop in time is killed with all below it."""
    try:
        node.stop()
    except subprocess.TimeoutExpired:
        node.kill()


def wait_until_live(node: RunningNode) -> None:
    """Wait until a node answers."""

    def live() -> bool:
        if node.process.poll() is not None:
            raise BenchmarkError(f"the node ended: {node.log}")
        try:
            return node.call("GET", "/liveness").status == 200
        except OSError:
            return False

    wait_for(live, "the node answers")


def deploy(
    node: RunningNode, project: str = PROJECT, devices: int = 1, isolation: str = "EVENT"
) -> tuple[str, list[Device]]:
    """A project with the applet; returns the applet's id and that many publishers.

    `isolation` "BATCH" lets events that arrive together share an instance.
    """
    if not node.token:
        node.log_in()
    node.create_project(project)
    strategies = [{"eventType": name.upper(), "handler": name} for name in HANDLERS]
    applet = node.deploy(project, APPLET, strategies=strategies, isolation=isolation)["appletID"]
    # Baselines know no projects, so no two publishers may have the same key.
    keys = [f"{project}-{number}" for number in range(devices)]
    publishers = [node.add_publisher(project, key) for key in keys]
    return applet, [Device(project, p["key"], p["token"]) for p in publishers]


def node_server(node: RunningNode, name: str = "node") -> Server:
    """A running node as something to measure."""
    return Server(name, node.http_port, (node.process.pid,))
