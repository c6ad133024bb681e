"""The files of streams are changed so that a single replication engine can read them."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from fieldbrook.cluster.engine_files import _checksum, last_records, make_single
from fieldbrook.core.errors import JournalDamagedError

KEY = bytes(range(32))
# The first test values of the authors' program, for the messages 0, 1, 2, ... of increasing length.
EXPECTED = {
    0: 0x907A56DE22C26E53,
    1: 0x7EAB43AAC7CDDD78,
    2: 0xB8D0569AB0B53D62,
    3: 0x5C6BEFAB8A463D80,
}
# A configuration and its checksum, as nats-server 2.15.1 has written them.
WRITTEN = (
    b'{"Created":"2026-11-27T17:21:50.593023027Z","name":"J0","subjects":["fb.j.0.*"],'
    b'"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,'
    b'"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"new","storage":"file",'
    b'"num_replicas":3,"duplicate_window":120000000000,"compression":"none",'
    b'"allow_direct":true,"mirror_direct":false,"sealed":false,"deny_delete":true,'
    b'"deny_purge":false,"allow_rollup_hdrs":false,"consumer_limits":{},'
    b'"allow_msg_ttl":false,"metadata":{"_nats.req.level":"0"}}'
)
CHECKSUM = "62c680ddadbf7b16"


@pytest.mark.parametrize("length", EXPECTED)
def test_the_checksum_is_that_of_the_authors(length: int) -> None:
    found = bytes.fromhex(_checksum(KEY, bytes(range(length))))
    assert int.from_bytes(found, "little") == EXPECTED[length]


def stream(folder: Path, body: bytes = WRITTEN, checksum: str = CHECKSUM) -> Path:
    made = folder / "jetstream" / "NODE" / "streams" / "J0"
    made.mkdir(parents=True)
    (made / "meta.inf").write_bytes(body)
    (made / "meta.sum").write_text(checksum)
    return made


def test_a_stream_gets_one_replica_and_nothing_else_changes(tmp_path: Path) -> None:
    made = stream(tmp_path)
    assert make_single(tmp_path) == 1
    body = (made / "meta.inf").read_bytes()
    assert json.loads(body) == {**json.loads(WRITTEN), "num_replicas": 1}
    key = hashlib.sha256(b"J0").digest()
    assert (made / "meta.sum").read_text() == _checksum(key, body) != CHECKSUM
    assert make_single(tmp_path) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [(WRITTEN + b" ", "does not match its checksum"), (b"[1]", "has an unknown form")],
)
def test_a_configuration_of_another_form_is_refused(
    tmp_path: Path, body: bytes, reason: str
) -> None:
    right = _checksum(hashlib.sha256(b"J0").digest(), b"[1]")
    made = stream(tmp_path, body, right if body == b"[1]" else CHECKSUM)
    with pytest.raises(JournalDamagedError, match=f"meta.inf {reason}"):
        make_single(tmp_path)
    assert (made / "meta.inf").read_bytes() == body


def record(number: int, body: bytes) -> bytes:
    """Return a record in the engine's format: length, number, time, subject, body, checksum."""
    rest = struct.pack("<QQH", number, 0, 1) + b"a" + body + bytes(8)
    return struct.pack("<I", len(rest) + 4) + rest


def test_the_last_record_of_a_stream_is_found_also_behind_removed_ones(tmp_path: Path) -> None:
    folder = tmp_path / "msgs"
    folder.mkdir()
    assert last_records(tmp_path) == {}
    removed = record(9 | 1 << 63, b"") + record(10 | 1 << 62, b"")
    (folder / "1.blk").write_bytes(record(1, b"x") + record(2, b"") + removed)
    (folder / "2.blk").write_bytes(record(3, b"y" * 100))
    assert last_records(tmp_path) == {b"a": 3}


@pytest.mark.parametrize(
    "damaged",
    [
        record(1, b"x")[:-1],
        record(1, b"x") + b"\0",
        record(1, b"x") + bytes(30),
        record(1, b"")[:12],
    ],
)
def test_a_file_that_ends_within_a_record_is_damaged(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "msgs").mkdir()
    (tmp_path / "msgs" / "1.blk").write_bytes(damaged)
    with pytest.raises(JournalDamagedError, match=r"1\.blk is damaged at"):
        last_records(tmp_path)
