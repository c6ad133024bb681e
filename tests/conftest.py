"""Rules and fixtures for all tests."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.tools import require_tool

if TYPE_CHECKING:
    from tests.support.nodes import StartNode
    from tests.support.postgres import PostgresServer

__all__ = ["require_tool"]

# A slow machine is no fault of the code; pytest's time limit catches what hangs.
settings.register_profile("fieldbrook", deadline=None, print_blob=True)
settings.load_profile("fieldbrook")


# A shell starts what runs in its background with SIGINT ignored, and whoever that starts inherits
# it: the tests' own programs are to end with Ctrl-C wherever the tests run.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files that take longest, the longest first. Several processes take whole files: one that is
# taken late would leave the other processes without work at the end. The site of the documentation
# is built for the first of its files, long before the others need it.
LONGEST_FIRST = (
    "tests/chain/test_providers.py",
    "tests/mqtt/test_clients_in_other_languages.py",
    "tests/compat/test_applets.py",
    "tests/sdk/test_sdk_matrix.py",
    "tests/integration/test_accounts.py",
    "tests/mqtt/test_hostile.py",
    "tests/integration/test_install.py",
    "tests/integration/test_examples_build.py",
    "tests/docs/test_browser.py",
    "tests/integration/test_cli_node.py",
    "tests/integration/test_chain_endpoints.py",
    "tests/monitoring/test_dashboards.py",
    "tests/simulation/test_simulation.py",
    "tests/chain/test_doctor.py",
    "tests/cluster/test_three_hosts.py",
    "tests/integration/test_transfer.py",
    "tests/faults/test_health.py",
    "tests/chain/test_sending_faults_outcome.py",
    "tests/mqtt/test_rights.py",
    "tests/integration/test_applet_dev.py",
    "tests/integration/test_device_library.py",
    "tests/compat/test_dead_strategies.py",
    "tests/integration/test_fairness.py",
    "tests/integration/test_tls.py",
    "tests/integration/test_look_ahead.py",
    "tests/integration/test_deploy.py",
    "tests/contract/sql/test_commit.py",
    "tests/monitoring/test_alert_rules.py",
    "tests/compat/test_mqtt.py",
    "tests/mqtt/test_clients.py",
    "tests/integration/test_actor_runtime.py",
    "tests/dashboard/test_accessibility.py",
    "tests/compat/test_strategies.py",
    "tests/integration/test_device_examples.py",
    "tests/integration/test_systemd.py",
    "tests/chain/test_sending_faults.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        help="run the tests that are marked thorough, too",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which would look at all modules and tests again and
    again: a third of the time. What is collected stays, so it never looks at that later either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out thorough tests, unless they are asked for, and put the longest files first.

    The other files of unit tests, which compute, are among those that start nodes and wait: in
    several processes, some always have work for the processor.
    """
    by_name = any("::" in argument for argument in config.args)
    if not by_name and not config.getoption("thorough"):
        thorough = [item for item in items if _is_thorough(item)]
        items[:] = [item for item in items if not _is_thorough(item)]
        config.hook.pytest_deselected(items=thorough)
    place = {file: number for number, file in enumerate(LONGEST_FIRST)}
    share = shares([*dict.fromkeys(_file(item) for item in items)])
    items.sort(key=lambda item: (place.get(_file(item), len(place)), share[_file(item)]))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def shares(files: Sequence[str]) -> dict[str, float]:
    """For each file, the share of the unit tests, or of the others, that comes before it."""
    unit = [file for file in files if file.startswith("tests/unit/")]
    others = [file for file in files if not file.startswith("tests/unit/")]
    return {file: n / len(kind) for kind in (unit, others) for n, file in enumerate(kind)}


def _is_thorough(item: pytest.Item) -> bool:
    """Whether a test is marked `thorough`: with all its parameters, or with those that it names.

    `@pytest.mark.thorough("mqtt")` marks what has `mqtt` in the id of its parameters.
    """
    parameters = item.nodeid.partition("[")[2]
    return any(
        not mark.args or any(part in parameters for part in mark.args)
        for mark in item.iter_markers("thorough")
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


class _Progress:
    """Shows a failure when it happens, and what was under way when a run is ended from outside."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._running: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.discard(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(f"{report.nodeid} failed in its {report.when}", report.longreprtext[-4_000:])

    def pytest_keyboard_interrupt(self) -> None:
        self._say("under way", "\n".join(sorted(self._running)))

    def _say(self, head: str, text: str) -> None:
        self._reporter.ensure_newline()
        self._reporter.write_sep("_", head)
        self._reporter.write_line(text)


@pytest.hookimpl(trylast=True)  # pytest makes its reporter in the same hook
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and "CI" in os.environ:
        config.pluginmanager.register(_Progress(reporter))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of the session; who stops it starts it again."""
    from tests.support.postgres import PostgresServer  # libpq, for those who ask

    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Starts nodes that one test has for itself."""
    from tests.support.nodes import node_starter  # Thespian, only for tests of nodes

    with node_starter(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def start_module_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartNode]:
    """Starts nodes that the tests of a module share."""
    from tests.support.nodes import node_starter

    with node_starter(tmp_path_factory.mktemp("nodes")) as start:
        yield start


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def no_unexpected_log_line(request: pytest.FixtureRequest) -> Iterator[None]:
    """A line at WARNING or above fails a test that does not take `caplog` to look at it."""
    expects_lines = "caplog" in inspect.signature(request.function).parameters
    collector = _Collector()
    root = logging.getLogger()
    root.addHandler(collector)
    yield
    root.removeHandler(collector)
    if collector.lines and not expects_lines:
        pytest.fail(
            "logged, and no test expected it:\n" + "\n".join(collector.lines), pytrace=False
        )
