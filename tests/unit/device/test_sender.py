"""When events are sent, and sent again: with a scripted transport."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fieldbrook.device import DeviceError
from fieldbrook.device import sender as sending
from fieldbrook.device.address import read_address
from fieldbrook.device.disk_queue import DiskQueue
from fieldbrook.device.event import Accepted, Event, Later, Outcome, Refused, make_event
from fieldbrook.device.sender import FIRST_PAUSE_S, LONGEST_PAUSE_S, EventSender, pause_s
from tests.support.tools import LIMIT_S

Answer = Callable[[Event], Outcome]


class Script:
    """A transport with the answers of a test, which stores the events."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.sent: list[list[str]] = []
        self.closed = False

    def send(self, events: Sequence[Event]) -> list[Outcome]:
        self.sent.append([event.payload.decode() for event in events])
        return [self.answer(event) for event in events]

    def abort(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Trial:
    def __init__(self, folder: Path) -> None:
        self.queue = DiskQueue(folder, 100, 1 << 20, sync=False)
        self.accepted: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.sender: EventSender | None = None

    def start(self, transport: Script, batch: int = 10) -> EventSender:
        self.sender = EventSender(
            self.queue,
            transport,
            batch,
            1 << 20,
            lambda event, _: self.accepted.append(event.payload.decode()),
            lambda event, refused: self.refused.append((event.payload.decode(), refused.key)),
        )
        return self.sender

    def add(self, *payloads: str) -> None:
        for payload in payloads:
            self.queue.add(make_event("HEAT", payload))
            if self.sender:
                self.sender.wake()


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    monkeypatch.setattr(sending, "pause_s", lambda *_: 0.0)
    made = Trial(tmp_path / "queue")
    yield made
    if made.sender:
        made.sender.close()
    made.queue.close()


def test_what_waits_is_sent_in_order_and_together(trial: Trial) -> None:
    trial.add("1", "2", "3")
    transport = Script(lambda _: Accepted())
    assert trial.start(transport, 2).wait_until_sent(LIMIT_S)
    assert transport.sent == [["1", "2"], ["3"]]
    assert trial.accepted == ["1", "2", "3"]


def test_an_event_that_has_to_wait_is_sent_again_with_the_same_id_and_time(trial: Trial) -> None:
    seen: list[Event] = []

    def answer(event: Event) -> Outcome:
        seen.append(event)
        return Accepted() if len(seen) > 3 else Later("503")

    trial.add("1")
    assert trial.start(Script(answer)).wait_until_sent(LIMIT_S)
    assert len(seen) == 4
    assert set(seen) == {seen[0]}


def test_a_refused_event_does_not_hold_up_those_behind_it(trial: Trial) -> None:
    trial.add("good", "bad", "good too")
    answers: Answer = lambda event: (  # noqa: E731
        Refused(404, "Nobody") if event.payload == b"bad" else Accepted()
    )
    assert trial.start(Script(answers)).wait_until_sent(LIMIT_S)
    assert trial.accepted == ["good", "good too"]
    assert trial.refused == [("bad", "Nobody")]
    assert [each.event.payload for each in trial.queue.refused()] == [b"bad"]


def test_an_exception_of_a_callback_is_logged_and_stops_nothing(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the application's mistake")

    trial.sender = EventSender(trial.queue, Script(lambda _: Accepted()), 1, 1, fail, None)
    trial.add("1", "2")
    assert trial.sender.wait_until_sent(LIMIT_S)
    assert "the application's mistake" in caplog.text


def test_a_refusal_that_nobody_asked_for_is_logged(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Script(lambda _: Refused(401, "InvalidEventToken"))
    trial.sender = EventSender(trial.queue, transport, 1, 1, None, None)
    trial.add("1")
    assert trial.sender.wait_until_sent(LIMIT_S)
    assert "401 InvalidEventToken" in caplog.text


def test_an_unexpected_error_of_a_transport_does_not_end_the_thread(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[Event] = []

    def answer(event: Event) -> Outcome:
        attempts.append(event)
        if len(attempts) == 1:
            raise KeyError("broken")
        return Accepted()

    trial.add("1")
    assert trial.start(Script(answer)).wait_until_sent(LIMIT_S)
    assert "broken" in caplog.text


def test_closing_ends_a_pause_and_leaves_the_events_in_the_queue(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "pause_s", lambda *_: 3_600.0)
    tried = threading.Event()

    def answer(_: Event) -> Outcome:
        tried.set()
        return Later("no answer")

    trial.add("1")
    transport = Script(answer)
    sender = trial.start(transport)
    assert tried.wait(LIMIT_S)
    assert not sender.wait_until_sent(0)
    sender.close()
    assert transport.closed
    assert trial.queue.waiting == 1


def test_a_flush_waits_for_the_callbacks_and_not_for_itself(trial: Trial) -> None:
    goes_on, flushed = threading.Event(), []

    def wait(*_: object) -> None:
        assert trial.sender is not None
        flushed.append(trial.sender.wait_until_sent(LIMIT_S))
        assert goes_on.wait(LIMIT_S)

    trial.sender = EventSender(trial.queue, Script(lambda _: Accepted()), 1, 1, wait, None)
    trial.add("1")
    assert not trial.sender.wait_until_sent(0.01)
    goes_on.set()
    assert trial.sender.wait_until_sent(LIMIT_S)
    assert flushed == [False]


def test_a_callback_may_close_the_device(trial: Trial) -> None:
    closed = threading.Event()

    def close(*_: object) -> None:
        assert trial.sender is not None
        trial.sender.close()
        closed.set()

    trial.sender = EventSender(trial.queue, Script(lambda _: Accepted()), 1, 1, close, None)
    trial.add("1")
    assert closed.wait(LIMIT_S)


def test_pauses_grow_up_to_a_minute_and_are_never_shorter_than_the_node_asks() -> None:
    assert [pause_s(n) for n in (1, 2, 3)] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pause_s(8) == pause_s(10**9) == LONGEST_PAUSE_S
    assert pause_s(1, chance=1.0) == FIRST_PAUSE_S / 2
    assert pause_s(1, 90.0, 0.7) == 90.0


@pytest.mark.parametrize(
    "url",
    [
        *("", "node", "ftp://node", "http://", "http://me@node", "http://node:x", "http://node/?a"),
        *("mqtt://node/path", "http://node:99999", "//node"),
    ],
)
def test_an_address_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(DeviceError, match="address"):
        read_address(url)


def test_an_address_has_the_port_of_its_protocol_unless_it_names_one() -> None:
    shown = ("http://n", "https://n/below/", "mqtt://n", "mqtts://n", "https://[::1]:7")
    assert [read_address(url).port for url in shown] == [80, 443, 1883, 8883, 7]
    assert read_address("http://n/below/").path == "/below"
    assert str(read_address("mqtts://n")) == "mqtts://n:8883"
    with pytest.raises(DeviceError, match="certificates"):
        read_address("https://n", ca="/nowhere/ca.pem")


def test_a_device_needs_nothing_but_the_standard_library() -> None:
    """The complete library is used, over HTTP, without a listening server."""
    script = """
import sys, tempfile
from fieldbrook.device import Device
with tempfile.TemporaryDirectory() as folder:
    device = Device("http://127.0.0.1:9", project="p", publisher="k", token="t", queue=folder)
    device.send("HEAT", {"n": 1})
    device.close(flush_s=0)
names = {name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(sorted(names - {"__main__", "sitecustomize", "usercustomize"}))
print(sorted(n for n in sys.modules if n.startswith("fieldbrook.") and ".device" not in n))
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['fieldbrook']", "[]"]
