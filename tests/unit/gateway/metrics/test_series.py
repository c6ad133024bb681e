"""The series: stored samples of the metrics table."""

from __future__ import annotations

import math
import os
import time

import pytest

from fieldbrook.gateway.metrics.processes import GATEWAYS, PROJECTS, Processes
from fieldbrook.gateway.metrics.readings import NAMES, quantile
from fieldbrook.gateway.metrics.rings import Rings
from fieldbrook.gateway.metrics.series import ACCOUNTS_LIMIT, PROJECTS_LIMIT, STEPS, Series
from fieldbrook.observability import metrics
from fieldbrook.observability.metrics_table import Table

EVENT = next(f for f in metrics.FAMILIES if f.name == "fieldbrook_event_duration_seconds")


class Node:
    """A table with two gateways and some projects, and a clock. An account has ten projects."""

    def __init__(self, projects: int = 2) -> None:
        self.table = Table(8 + projects)
        self.now = 1_000.0
        self.parts = ["http:0", "mqtt:0", "projects:99", *(f"project:{n}" for n in range(projects))]
        for slot, part in enumerate(self.parts):
            self.table.name(slot, part)
        self.series = Series(
            lambda: self.table,
            account_of=lambda project_id: project_id // 10,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )
        self.series.sample()

    def row(self, part: str) -> memoryview[float]:
        return self.table.row(self.parts.index(part))

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.series.sample()

    def column(self, name: str, step: int = 1) -> list[float]:
        return self.series.step(step).of_node([name], 0, math.inf)[1]

    def project(self, project_id: int, step: int = 1) -> list[float]:
        samples = self.series.step(step)
        return samples.of_project(project_id, ["events"], 0, math.inf)[1]

    def account(self, account_id: int, step: int = 1) -> list[float]:
        samples = self.series.step(step)
        return samples.of_account(account_id, ["events"], 0, math.inf)[1]


def test_counters_become_rates_and_gauges_stay_levels() -> None:
    node = Node()
    node.row("mqtt:0")[metrics.EVENTS_RECEIVED] += 8
    node.row("http:0")[metrics.EVENTS_RECEIVED] += 4
    node.row("http:0")[metrics.HTTP_CONNECTIONS] = 3
    node.row("project:0")[metrics.RUN_FAILURES["trap"]] += 1
    node.row("projects:99")[metrics.RUN_FAILURES["deadline"]] += 1
    node.pass_s(2)
    assert node.column("received") == [12, 0]
    assert node.column("mqttMessages") == [8, 0]
    assert node.column("failed") == [2, 0]
    assert node.column("connections") == [3, 3]


def test_a_longer_step_has_mean_rates_highest_levels_and_quantiles_of_all_its_events() -> None:
    node = Node()
    node.row("project:1")[metrics.PROJECT_EVENTS] += 50
    node.row("project:1")[metrics.OUTBOX_PENDING] = 7
    node.row("http:0")[EVENT.first] += 99  # up to 1 ms
    node.pass_s(1)
    node.row("project:1")[metrics.OUTBOX_PENDING] = 0
    node.row("http:0")[EVENT.first + 4] += 1  # 10 to 25 ms
    node.pass_s(9)
    assert node.column("events", 10) == [5]
    assert node.column("outbox", 10) == [7]
    assert node.column("eventP50Ms", 10) == pytest.approx([50 / 99])
    assert node.column("eventP99Ms")[0] == pytest.approx(0.99)
    assert 10 < node.column("eventP99Ms")[1] <= 25
    assert math.isnan(node.column("eventP99Ms")[2])
    assert node.project(1, step=10) == [5]


def test_projects_have_rates_whether_their_row_is_their_own_or_not() -> None:
    node = Node()
    node.row("project:0")[metrics.PROJECT_EVENTS] += 10
    node.row("project:1")[metrics.PROJECT_EVENTS] += 20
    shared = node.parts.index("projects:99")
    node.table.row(shared)[metrics.PROJECT_EVENTS] += 5
    node.pass_s(1)
    assert node.column("events") == [35]
    assert [node.project(n) for n in (0, 1, 99, 98)] == [[10], [20], [5], [0]]
    node.table.name(shared, "projects:98")  # another project takes the row over
    node.table.row(shared)[metrics.PROJECT_EVENTS] += 7
    node.pass_s(1)
    assert (node.project(99), node.project(98)) == ([5, 0], [0, 7])
    assert node.series.rates() == {0: (0, 0), 1: (0, 0), 98: (7, 0)}
    node.pass_s(8)
    assert node.project(99, step=10) == [0.5]
    assert node.project(98, step=10) == pytest.approx([0.7], abs=0.01)


def test_the_sums_of_an_account_count_all_its_projects_however_many_there_are() -> None:
    node = Node(PROJECTS_LIMIT + 50)
    for part in node.parts[3:]:
        node.row(part)[metrics.PROJECT_EVENTS] += 1
    node.pass_s(1)
    assert [node.account(n) for n in (0, 24, 25)] == [[10], [10], [0]]


def test_an_account_with_events_of_one_project_shares_its_series_until_there_are_several() -> None:
    node = Node(20)
    for part, events in (("project:3", 1), ("project:3", 2), ("project:4", 4), ("project:3", 8)):
        node.row(part)[metrics.PROJECT_EVENTS] += events
        node.pass_s(1)
        assert len(node.series.step(1).accounts.rings) == (events >= 4)
    assert node.account(0) == [1, 2, 4, 8]
    node.pass_s(6)
    assert node.account(0, step=10) == [1.5]
    assert node.account(1) == [0] * 10


def test_accounts_beyond_the_limit_have_nothing_rather_than_a_part() -> None:
    node = Node(10 * ACCOUNTS_LIMIT + 10)
    for part in node.parts[3:]:
        node.row(part)[metrics.PROJECT_EVENTS] += 1
    node.pass_s(1)
    assert [node.account(n) for n in (0, ACCOUNTS_LIMIT - 1, ACCOUNTS_LIMIT)] == [[10], [10], [0]]


def test_an_owner_without_events_for_the_whole_time_makes_room_for_another() -> None:
    rings = Rings(rows=3, limit=1)
    rings.put(0, {1: (5, 1)})
    rings.put(1, {2: (6, 0)})
    assert (rings.column(1, 0, [0, 1]), rings.column(1, 1, [0])) == ([5, 0], [1])
    assert rings.column(2, 0, [1]) == [0]
    rings.put(2, {})
    rings.put(3, {2: (7, 0)})
    assert (rings.column(1, 0, [0]), rings.column(2, 0, [0, 1, 2])) == ([0], [7, 0, 0])


def test_a_rate_beyond_half_precision_is_kept_as_the_largest_number() -> None:
    node = Node()
    node.row("project:0")[metrics.PROJECT_EVENTS] += 1_000_000
    node.pass_s(1)
    assert node.project(0) == [65_504]
    assert node.column("events") == [1_000_000]


def test_the_rings_have_a_day_and_take_less_than_four_mebibytes_whatever_happens() -> None:
    node = Node(PROJECTS_LIMIT + 5)
    for part in node.parts[3:]:
        node.row(part)[metrics.PROJECT_EVENTS] += 1
    node.pass_s(STEPS[1] + 10)
    times = node.series.step(1).of_node([], 0, math.inf)[0]
    assert (times[0], times[-1], len(times)) == (1_011, 1_910, STEPS[1])
    assert node.series.step(1).oldest == 1_011
    assert len(node.series.step(10).of_node([], 0, math.inf)[0]) == 91
    owners = PROJECTS_LIMIT + ACCOUNTS_LIMIT
    assert sum(rows * (8 + 4 * len(NAMES) + 4 * owners) for rows in STEPS.values()) < 3.75 * 2**20
    assert len(node.series.step(1).projects.rings) == PROJECTS_LIMIT


def test_only_samples_of_the_span_are_given() -> None:
    node = Node()
    node.pass_s(20)
    assert node.series.step(1).of_node([], 1_005, 1_007)[0] == [1_005, 1_006, 1_007]


def test_the_finest_step_that_reaches_back_is_chosen() -> None:
    node = Node()
    assert [node.series.fitting(0, age) for age in (900, 901, 10_800, 10_801, 9e9)] == [
        *(1, 10, 10, 60, 60)
    ]


def test_a_clock_that_is_set_back_gives_no_negative_or_infinite_rate() -> None:
    node = Node()
    node.pass_s(2)
    node.now -= 500
    node.row("http:0")[metrics.EVENTS_RECEIVED] += 4
    node.pass_s(3)
    assert all(0 <= rate < math.inf for rate in node.column("received"))


def test_a_quantile_of_nothing_is_no_number_and_of_the_largest_bucket_its_lower_bound() -> None:
    assert math.isnan(quantile((1.0, 2.0), [0, 0, 0], 0.5))
    assert quantile((1.0, 2.0), [0, 0, 4], 0.99) == 2.0
    assert quantile((1.0, 2.0), [0, 4, 0], 0.5) == 1.5


def test_memory_and_cpu_come_from_the_processes_by_their_kind() -> None:
    processes = Processes()
    mine, now = os.getpid(), 10.0
    found = processes.read([("http:0", mine), ("worker:1", os.getppid())], now)
    assert found.memory[GATEWAYS] > 1 << 20
    assert found.memory[PROJECTS] > 0
    assert found.cpu == 0.0  # one sample has no difference
    spent = time.process_time() + 0.1
    while time.process_time() < spent:
        sum(range(100_000))
    # The kernel counts whole ticks of 10 ms, separately for user and system time.
    assert processes.read([("http:0", mine)], now + 1).cpu > 0.07


def test_a_process_that_has_ended_counts_no_more() -> None:
    processes = Processes()
    gone = 2**22 + 1  # above the largest pid
    assert processes.read([("http:0", gone)], 1.0).memory[GATEWAYS] == 0


def test_many_processes_are_read_in_turns() -> None:
    processes = Processes()
    running = [("http:0", 2**22 + n) for n in range(100)] + [("http:0", os.getpid())]
    found = [processes.read(running, at).memory[GATEWAYS] for at in (1.0, 2.0, 3.0, 4.0)]
    assert found[0] == 0
    assert found[-1] > 0
