"""Messages of a broker: the messages of each publisher keep their order, and delay neither those of
other publishers nor of other projects."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fieldbrook.gateway.mqtt import backlog as module
from fieldbrook.gateway.mqtt.backlog import Backlog, Pending
from fieldbrook.gateway.mqtt.sources import Delivery


class Gateway:
    """The handler of messages: the messages in progress, and a clock of its own."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.working: list[tuple[str, int, Pending]] = []
        self.finished: dict[str, list[int]] = {}
        self.refusing: set[str] = set()
        self.too_large: set[int] = set()
        self.backlog = Backlog(self._process, self._publisher_of, self._later)
        self.stale: set[int] = set()
        self.asked_if_stale = 0

    def _publisher_of(self, delivery: Delivery) -> str:
        """Messages name the publisher as `PUBLISHER:`; most tests have only one."""
        return delivery.payload.partition(b":")[0].decode()

    def _later(self, delay_s: float, call: Callable[[], None], /) -> None:
        self.timers.append((self.time + delay_s, call))

    def _process(self, pending: Pending) -> None:
        project, number = pending.delivery.topic, int(pending.delivery.sequence)
        if project in self.refusing:
            self.backlog.defer(pending)
        else:
            self.working.append((project, number, pending))

    def _is_stale(self, number: int) -> bool:
        self.asked_if_stale += 1
        return number in self.stale

    def deliver(self, project: str, number: int, publisher: str = "d") -> None:
        delivery = Delivery(
            project,
            publisher.encode() + b":",
            1,
            str(number),
            lambda: None,
            may_repeat=False,
            stale=lambda: self._is_stale(number),
        )
        self.backlog.receive(project, delivery)

    def finish(self, at: int = 0) -> None:
        project, number, pending = self.working.pop(at)
        self.finished.setdefault(project, []).append(number)
        self.backlog.complete(pending)

    def refuse_all_at_once(self, project: str = "p") -> None:
        """Refuse all messages in progress."""
        refused = [pending for name, _, pending in self.working if name == project]
        self.working = [each for each in self.working if each[0] != project]
        for pending in refused:
            self.backlog.defer(pending)

    def answer(self) -> None:
        """Let the project store all messages in progress at once, or none if one is too large."""
        if self.too_large.isdisjoint(number for _, number, _ in self.working):
            working, self.working = self.working, []
            for project, number, pending in working:
                self.finished.setdefault(project, []).append(number)
                self.backlog.complete(pending)
        else:
            self.refuse_all_at_once()

    def finish_all(self) -> None:
        while self.working:
            self.finish()

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        due = [timer for timer in self.timers if timer[0] <= self.time]
        self.timers = [timer for timer in self.timers if timer[0] > self.time]
        for _, call in due:
            call()


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def test_a_project_that_takes_nothing_leaves_room_for_another(gateway: Gateway) -> None:
    for number in range(5_000):
        gateway.deliver("slow", number)
    assert len(gateway.working) == module.IN_PROGRESS_LIMIT // 2
    gateway.deliver("quick", 5_000)
    assert gateway.working[-1][0] == "quick"


def test_what_was_put_off_comes_before_what_came_later(gateway: Gateway) -> None:
    gateway.refusing.add("p")
    for number in range(5):
        gateway.deliver("p", number)
    gateway.pass_time(module.RETRY_S)
    assert gateway.working == []
    gateway.refusing.clear()
    for number in range(5, 9):
        gateway.deliver("p", number)
    gateway.pass_time(module.RETRY_S)
    gateway.finish_all()
    assert gateway.finished["p"] == list(range(9))


def test_nothing_is_taken_while_what_was_put_off_waits(gateway: Gateway) -> None:
    for number in range(3):
        gateway.deliver("p", number)
    _, _, second = gateway.working.pop(1)
    gateway.backlog.defer(second)
    gateway.deliver("p", 3)
    gateway.finish_all()
    assert gateway.finished["p"] == [0, 2]  # they were in progress when it was postponed
    gateway.pass_time(module.RETRY_S)
    gateway.finish_all()
    assert gateway.finished["p"] == [0, 2, 1, 3]


def test_a_message_that_cannot_even_be_looked_at_stops_no_other(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "IN_PROGRESS_LIMIT", 2)
    take = gateway.backlog._process

    def stumble(pending: Pending) -> None:
        if pending.delivery.sequence in ("0", "2"):
            raise RuntimeError("nobody foresaw this")
        take(pending)

    monkeypatch.setattr(gateway.backlog, "_process", stumble)
    for number in range(5):
        gateway.deliver("p", number)
    gateway.finish_all()
    assert gateway.finished["p"] == [1, 3, 4]
    assert gateway.backlog._in_progress == 0
    assert caplog.text.count("it stays at the broker") == 2


def test_what_a_lost_connection_brings_again_is_forgotten_when_there_is_no_room(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_PROGRESS_LIMIT", 2)
    monkeypatch.setattr(module, "WAITING_LIMIT", 4)
    for number in range(3):
        gateway.deliver("p", number)
    gateway.stale = {1, 2}
    for number in range(11, 14):
        gateway.deliver("p", number)
    gateway.finish_all()
    assert gateway.finished["p"] == [0, 11, 12, 13]


@pytest.mark.parametrize("seed", range(8))
def test_each_project_gets_all_of_its_messages_once_and_in_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_PROGRESS_LIMIT", 9)
    monkeypatch.setattr(module, "WAITING_LIMIT", 20)
    chance, gateway = random.Random(seed), Gateway()
    projects = ["a", "b", "c"]
    expected: dict[str, list[int]] = {}
    for number in range(300):
        project = chance.choices(projects, (6, 2, 1))[0]
        expected.setdefault(project, []).append(number)
        gateway.deliver(project, number)
        if chance.random() < 0.3 and gateway.working:
            gateway.finish()  # a project answers in order
        if chance.random() < 0.05:
            gateway.refusing = set(chance.sample(projects, chance.randrange(3)))
        if chance.random() < 0.1:
            gateway.pass_time(module.RETRY_S)
    gateway.refusing.clear()
    for _ in range(600):
        gateway.pass_time(module.RETRY_S)
        gateway.finish_all()
        if gateway.finished == expected:
            break
    assert gateway.finished == expected
    assert not gateway.backlog._projects
    assert (
        gateway.backlog._in_progress
        == gateway.backlog._waiting
        == gateway.backlog._waiting_bytes
        == 0
    )


def test_a_burst_of_more_than_can_wait_is_not_looked_through_for_each_message(
    gateway: Gateway,
) -> None:
    burst = module.IN_PROGRESS_LIMIT + module.WAITING_LIMIT
    for number in range(burst):
        gateway.deliver("p", number)
    assert gateway.asked_if_stale < 20 * burst
    while gateway.working:
        gateway.finish_all()
    assert gateway.finished["p"] == list(range(burst))


def test_a_noisy_publisher_leaves_a_quiet_one_of_its_project_its_turn(gateway: Gateway) -> None:
    for number in range(5_000):
        gateway.deliver("p", number, "noisy")
    gateway.deliver("p", 5_000, "quiet")
    assert len(gateway.working) == module.IN_PROGRESS_LIMIT // 2
    gateway.finish()
    gateway.finish()
    assert gateway.working[-1][1] == 5_000


def test_publishers_that_wait_take_turns_and_each_keeps_its_order(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_PROGRESS_LIMIT", 2)
    for number in range(9):
        gateway.deliver("p", number, "abc"[number // 3])
    gateway.finish_all()
    assert gateway.finished["p"] == [0, 1, 3, 6, 2, 4, 7, 5, 8]


def test_what_was_put_off_holds_up_its_own_publisher_alone(gateway: Gateway) -> None:
    gateway.deliver("p", 0, "a")
    gateway.refuse_all_at_once()
    gateway.deliver("p", 1, "a")
    gateway.deliver("p", 2, "b")
    gateway.finish_all()
    assert gateway.finished["p"] == [2]
    gateway.pass_time(module.RETRY_S)
    gateway.finish_all()
    assert gateway.finished["p"] == [2, 0, 1]


def test_what_was_put_off_waits_for_what_is_still_under_way(gateway: Gateway) -> None:
    for number in range(8):
        gateway.deliver("p", number)
    _, _, first = gateway.working.pop(0)
    gateway.backlog.defer(first)
    gateway.pass_time(module.RETRY_S)
    for left in range(7, 0, -1):
        assert len(gateway.working) == left
        gateway.finish()
    assert [number for _, number, _ in gateway.working] == [0]


def test_one_message_that_does_not_fit_is_tried_alone_and_all_others_go_on(
    gateway: Gateway,
) -> None:
    gateway.too_large = {7}
    for number in range(200):
        gateway.deliver("p", number, f"d{number % 20}")
    for _ in range(6):
        for _ in range(30):
            gateway.answer()
        gateway.pass_time(module.RETRY_S)
    expected = [number for number in range(200) if number % 20 != 7]
    assert sorted(gateway.finished["p"]) == expected
    gateway.too_large.clear()
    for _ in range(30):
        gateway.answer()
    behind = [number for number in gateway.finished["p"] if number % 20 == 7]
    assert behind == list(range(7, 200, 20))


@pytest.mark.parametrize("seed", range(8))
def test_each_publisher_gets_all_of_its_messages_once_and_in_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_PROGRESS_LIMIT", 9)
    monkeypatch.setattr(module, "WAITING_LIMIT", 30)
    chance, gateway = random.Random(seed), Gateway()
    senders = [("a", "x"), ("a", "y"), ("a", "z"), ("b", "x")]
    of: dict[int, tuple[str, str]] = {}

    def of_sender(sender: tuple[str, str]) -> list[int]:
        return [n for n in gateway.finished.get(sender[0], ()) if of[n] == sender]

    for number in range(400):
        sender = of[number] = chance.choices(senders, (8, 2, 1, 2))[0]
        gateway.deliver(sender[0], number, sender[1])
        chosen = chance.random()
        if chosen < 0.3 and gateway.working:
            gateway.finish()
        elif chosen < 0.35:
            gateway.refuse_all_at_once(chance.choice("ab"))
        if chance.random() < 0.1:
            gateway.pass_time(module.RETRY_S)
    for _ in range(800):
        gateway.pass_time(module.RETRY_S)
        gateway.finish_all()
        if sum(map(len, gateway.finished.values())) == len(of):
            break
    for sender in senders:
        assert of_sender(sender) == [n for n in of if of[n] == sender]
    assert not gateway.backlog._projects
    assert (
        gateway.backlog._in_progress
        == gateway.backlog._waiting
        == gateway.backlog._waiting_bytes
        == 0
    )
