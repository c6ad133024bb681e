"""The stored records of refused events, and their limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    ProjectNotFoundError,
    PublisherNotFoundError,
)
from fieldbrook.gateway.events import refusals as module
from fieldbrook.gateway.events.refusals import Refusals
from fieldbrook.storage.project import refused
from fieldbrook.storage.project.refused import read_refused, ring_path

_ERROR = PublisherNotFoundError(pub_id="x")


def test_what_is_kept_of_a_moment_is_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    gathered = Refusals(tmp_path, "http:0", "http")
    for number in range(10_000):
        gathered.record(_ERROR, f"e{number}", f"project{number % 50}")
    gathered.close()
    kept, more = read_refused(tmp_path, 10_000)
    assert len(kept) == module.KEPT
    assert more == 10_000 - module.KEPT


def test_the_reason_names_the_fields_of_a_malformed_message(tmp_path: Path) -> None:
    gathered = Refusals(tmp_path, "mqtt:0", "mqtt")
    fields = [FieldError(f"f{number}", "missing required field", "body") for number in range(50)]
    gathered.record(BadRequestError(fields[0], fields[1]), "two", "house")
    gathered.record(BadRequestError(*fields), "many", "house")
    gathered.record(_ERROR, "other", "house")
    gathered.close()
    reasons = {one.event_id: one.reason for one in read_refused(tmp_path, 10)[0]}
    assert reasons["two"] == "f0: missing required field; f1: missing required field"
    assert len(reasons["many"]) == 256
    assert reasons["other"] == _ERROR.desc


def test_one_kind_takes_no_room_of_another(tmp_path: Path) -> None:
    gathered = Refusals(tmp_path, "http:0", "http")
    for number in range(1_000):
        gathered.record(_ERROR, f"e{number}", "noisy")
        gathered.record(ProjectNotFoundError(project="n"), f"n{number}", f"nobody{number}")
    gathered.record(_ERROR, "mine", "quiet")
    gathered.close()
    kept, _ = read_refused(tmp_path, 10, event_id="mine")
    assert [refusal.project for refusal in kept] == ["quiet"]
    assert len(read_refused(tmp_path, 10_000)[0]) == 2 * module.KEPT_OF_A_KIND + 1


def test_a_noisy_publisher_hides_no_quiet_one_of_its_project_and_all_are_counted(
    tmp_path: Path,
) -> None:
    gathered = Refusals(tmp_path, "mqtt:0", "mqtt")
    for number in range(1_000):
        gathered.record(_ERROR, f"e{number}", "p", publisher="noisy")
    gathered.record(_ERROR, "mine", "p", publisher="quiet")
    gathered.close()
    kept, more = read_refused(tmp_path, 1_000)
    assert [refusal.event_id for refusal in kept].count("mine") == 1
    assert len(kept) == module.KEPT_OF_A_PUBLISHER + 1
    assert len(kept) + more == 1_001


def test_a_ring_stays_small_however_much_is_refused(tmp_path: Path) -> None:
    gathered = Refusals(tmp_path, "http:0", "http")
    for round_ in range(200):
        for number in range(module.KEPT):
            channel = f"project{number % 20}"
            gathered.record(_ERROR, f"{round_}-{number}" * 20, channel, publisher="p" * 999)
        gathered.flush()
    gathered.close()
    size = (ring_path(tmp_path, "http:0") / "data.mdb").stat().st_size
    assert size < 3 * refused.RING_BYTES
    kept, _ = read_refused(tmp_path, 10_000)
    assert kept[0].event_id.startswith("199-")
    assert all(len(refusal.publisher) <= 128 for refusal in kept)


def test_a_ring_that_a_power_cut_left_broken_begins_anew(tmp_path: Path) -> None:
    path = ring_path(tmp_path, "mqtt:0")
    path.mkdir(parents=True)
    (path / "data.mdb").write_bytes(b"half a page" * 1_000)
    gathered = Refusals(tmp_path, "mqtt:0", "mqtt")
    gathered.record(_ERROR, "after", "p")
    gathered.close()
    assert [refusal.event_id for refusal in read_refused(tmp_path, 9)[0]] == ["after"]


def test_a_ring_that_cannot_be_written_costs_nobody_an_answer(tmp_path: Path) -> None:
    (tmp_path / "refused").write_text("a file in its place")
    gathered = Refusals(tmp_path, "http:0", "http")
    gathered.record(_ERROR, "e", "p")
    gathered.flush()
    gathered.close()


def test_a_ring_is_read_while_it_is_written(tmp_path: Path) -> None:
    """The threads must not wait forever for each other's transactions."""
    script = f"""
import threading, time
from pathlib import Path
from fieldbrook.storage.project.refused import Refusal, RefusedRing, Refusals, read_refused

folder, done = Path({str(tmp_path)!r}), threading.Event()
ring = RefusedRing(folder, "http:0")
one = Refusal(1, "e", "p", "", "t", "http", "K", "r", 1, "d")

def read():
    while not done.is_set():
        read_refused(folder, 100, event_id="e")

readers = [threading.Thread(target=read) for _ in range(2)]
for reader in readers:
    reader.start()
for number in range(3000):
    ring.write(Refusals([one], 0), known=bool(number % 2))
    time.sleep(0.0002)
done.set()
for reader in readers:
    reader.join()
assert len(read_refused(folder, 10_000)[0]) == 3000
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
