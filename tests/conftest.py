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

# A slow machine must not fail a test; pytest's time limit catches tests that hang.
settings.register_profile("fieldbrook", deadline=None, print_blob=True)
settings.load_profile("fieldbrook")


# A shell starts background processes with SIGINT ignored, and their children inherit that: but
# programs that tests start have to end on Ctrl-C wherever the tests run.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest, the longest first. Processes run whole files: with a long file at the
# end, the other processes would have no work. The documentation site is built for the first of its
# files, long before the others need it.
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
    """Collect tests without the garbage collector, which would examine all modules and tests again
    and again, and take a third of the time. The objects stay, so they are not examined later
    either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out thorough tests, unless they are asked for, and put the longest files first.

    The other files of unit tests, which compute, are distributed among those that start nodes and
    wait, so that some of several processes always use the processor.
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
    """Return for each file the share of the unit tests, or of the other tests, that comes before
    it."""
    unit = [file for file in files if file.startswith("tests/unit/")]
    others = [file for file in files if not file.startswith("tests/unit/")]
    return {file: n / len(kind) for kind in (unit, others) for n, file in enumerate(kind)}


def _is_thorough(item: pytest.Item) -> bool:
    """Return whether a test is marked `thorough`, with all parameters or with those that the mark
    names.

    `@pytest.mark.thorough("mqtt")` marks tests with `mqtt` in the id of their parameters.
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
    """Shows a failure when it happens, and the running tests when a run is aborted from outside."""

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
    """A PostgreSQL server for all tests of the session; a test that stops it must start it
    again."""
    from tests.support.postgres import PostgresServer  # libpq, for those who ask

    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Starts nodes for only one test."""
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
    """Fail a test on a log line at WARNING or above, unless it uses `caplog`."""
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
