"""Damaged and inflated input for everything that reads bytes from outside.

    python -m tests.parsers --seeds 0-999 [--only NAME]

Each case is a valid input with some of its bytes changed, removed, doubled, moved or repeated up
to 64 KiB. A parser must return or raise the errors that its callers expect, within a second of
CPU time, and the run must not grow. A case that breaks this is printed with its seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from requests.structures import CaseInsensitiveDict

from fieldbrook.actors.wire import FrameReader, frame, pack, unpack
from fieldbrook.chain.blocks import logs, ranges
from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc import answers
from fieldbrook.chain.rpc.retry_after import retry_after_s
from fieldbrook.core.bounded_json import from_json
from fieldbrook.core.durations import parse_duration
from fieldbrook.core.errors import NodeError, StatementError
from fieldbrook.core.host_port import read_host_port
from fieldbrook.gateway.events import data_push, message, protobuf, request
from fieldbrook.gateway.http.request_head import read_head
from fieldbrook.gateway.management.routes.chain.contract_events import EventError, parse_signature
from fieldbrook.gateway.management.sign_in.wallet import parse_message
from fieldbrook.gateway.mqtt.event_topics import read_topic
from fieldbrook.gateway.mqtt.protocol.decoding.decoder import decode_client_packet
from fieldbrook.gateway.mqtt.protocol.errors import ProtocolError
from fieldbrook.gateway.mqtt.protocol.framing import next_frame
from fieldbrook.gateway.request_target import clean_path, split_absolute
from fieldbrook.gateway.schedule.cron import parse_schedule
from fieldbrook.security import access_keys, tokens
from fieldbrook.storage.backup import archive
from fieldbrook.storage.backup.transfer import Exported
from fieldbrook.storage.lmdb.codec import decode_record
from fieldbrook.storage.sql.postgres import statements as postgres
from fieldbrook.storage.sql.sqlite import statements as sqlite
from tests import bombs
from tests.support.protobuf import Event
from tests.unit.gateway.mqtt.protocol.packets_made import CLIENT, EXAMPLES
from tests.unit.repository.pattern_table import _SIGN_IN as SIGN_IN

CASES_PER_SEED = 400
LIMIT_BYTES = 64 << 10
CPU_LIMIT_S = 1.0
GROWTH_LIMIT_BYTES = 192 << 20
_WORDS = (b"\0", b"\xff", b"\r\n", b"{", b"[", b'"', b"9" * 5_000, b"-", b"1e999", b"\\ud800", b" ")
_KEY = bytes(32)


class Parser(NamedTuple):
    """A reader of bytes from outside, valid inputs, and the errors that its callers handle."""

    read: Callable[[bytes], object]
    samples: list[bytes]
    errors: tuple[type[Exception], ...] = (NodeError,)


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def _packets(version: int, data: bytes) -> None:
    at = 0
    while (found := next_frame(data, at, LIMIT_BYTES, version == 5)) is not None:
        first, body, at = found
        decode_client_packet(0 if first == 0x10 else version, first, data[body:at])


def _batch(body: bytes) -> None:
    found = message.split_batch(body)
    for each in [body] if found is None else found:
        message.decode_message(each)


def _frames(data: bytes) -> None:
    for each in FrameReader().feed(data):
        unpack(each)


def _unpacked(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder, "a"), Path(folder, "t")
        path.write_bytes(data)
        target.mkdir()
        archive.unpack(path, target, "project")


def _answers(data: bytes) -> None:
    value = from_json(data)
    for read in (logs.read_logs, answers.read_header, logs.read_receipts):
        try:
            read(value)
        except MalformedAnswerError:
            continue


def _tokens(text: str) -> None:
    for read in (access_keys.parse, partial(tokens.read_any_token, _KEY)):
        try:
            read(text)
        except NodeError:
            continue


def _sql(text: str) -> None:
    for translate in (
        sqlite.translate,
        partial(postgres.translate, forbidden=postgres.Forbidden()),
    ):
        try:
            translate(text, frozenset({"s"}))
        except StatementError:
            continue


def _query(text: str) -> None:
    request.check_meta(request.read_meta(text, text, text))


def _retry_after(text: str) -> float:
    headers = CaseInsensitiveDict({"Retry-After": text, "Date": text})
    return retry_after_s(headers, datetime.now(UTC))


_EVENT = {
    "header": {
        "pub_id": "d",
        "token": "t",
        "event_type": "DEFAULT",
        "pub_time": 17,
        "event_id": "i",
    },
    "payload": "aGVsbG8=",
}
_LOG = {
    "address": "0x" + "a" * 40, "topics": ["0x" + "1" * 64], "data": "0x00", "blockNumber": "0x10",
    "blockHash": "0x" + "2" * 64, "transactionHash": "0x" + "3" * 64, "transactionIndex": "0x0",
    "logIndex": "0x0", "removed": False,
}  # fmt: skip
_PUSH = [{"deviceID": "d", "eventType": "T", "payload": "aGk=", "timestamp": 1}]
_PROJECT = bombs.project(bombs._KNOWN)
_TOKEN = tokens.issue_publisher_token(_KEY, 7).encode()
_HEAD = (
    b"POST /srv-applet-mgr/v0/event/p?eventType=A&eventID=x&timestamp=1 HTTP/1.1\r\nHost: a:1\r\n"
    b"Authorization: Bearer t\r\nIdempotency-Key: k\r\nContent-Length: 12\r\n\r\n"
)

PARSERS: dict[str, Parser] = {
    **{
        f"MQTT {version}": Parser(
            partial(_packets, version),
            [data for side, made_for, data in EXAMPLES if (side, made_for) == (CLIENT, version)],
            (ProtocolError,),
        )
        for version in (4, 5)
    },
    "topic": Parser(_text(read_topic), [b"aid_1_p/push/t/A/ts=1&id=2", b"p"]),
    "message": Parser(message.decode_message, [json.dumps(_EVENT).encode()]),
    "batch": Parser(_batch, [json.dumps({"events": [_EVENT] * 3}).encode()]),
    "token of a message": Parser(message.message_token, [json.dumps(_EVENT).encode()]),
    "data push": Parser(data_push.read_items, [json.dumps(_PUSH).encode()]),
    "protobuf": Parser(
        protobuf.decode_event,
        [
            Event(
                header={"event_type": "A", "token": "t", "pub_time": 1}, payload=b"p"
            ).SerializeToString()
        ],
    ),
    "request head": Parser(read_head, [_HEAD]),
    "query": Parser(_text(_query), [b"eventType=A&eventID=x&timestamp=1&authorization=Bearer%20t"]),
    "target": Parser(
        _text(lambda text: (split_absolute(text), clean_path(text))), [b"http://a:1//b/../c?d"]
    ),
    "host": Parser(_text(read_host_port), [b"a.example:80", b"[::1]:80", b"1.2.3.4"]),
    "tokens": Parser(_text(_tokens), [_TOKEN, access_keys.issue(1).text.encode()]),
    "sign-in": Parser(_text(parse_message), [SIGN_IN.encode()]),
    "JSON": Parser(from_json, [json.dumps([_EVENT, 1.5, None]).encode()], (ValueError,)),
    "frames": Parser(
        _frames, [frame(pack([(1, [("T", 1, "id", b"x", 0, 0, "")])]))], (ValueError, TypeError)
    ),
    "archive": Parser(_unpacked, [_PROJECT]),
    "tar": Parser(
        lambda data: _unpacked(gzip.compress(data, 1)), [gzip.decompress(_PROJECT)]
    ),
    "records": Parser(partial(decode_record, kind=Exported), [bombs._KNOWN["project.bin"]]),
    "chain": Parser(
        _answers, [json.dumps([_LOG]).encode(), json.dumps(_LOG).encode()], (ValueError,)
    ),
    "refusal of a chain": Parser(
        _text(lambda text: ranges.named_size(text, 5_000)),
        [b"range is too large, max is 1k blocks: [0x1, 0x3e8]"],
    ),
    "Retry-After": Parser(_text(_retry_after), [b"120", b"Mon, 23 Nov 2026 01:00:00 GMT"]),
    "declaration": Parser(
        _text(parse_signature),
        [b"event E(address indexed a, (uint256[2],bytes)[] b)"],
        (EventError,),
    ),
    "SQL": Parser(
        _text(_sql),
        [b"SELECT 'a''b', \"c\", $1 FROM s.t WHERE a = $2 /* x */ -- y", b"VALUES (?)"],
    ),
    "cron": Parser(
        _text(parse_schedule), [b"CRON_TZ=Asia/Tokyo */5 1-3 * 2 mon", b"@every 1h30m", b"@daily"]
    ),
    "duration": Parser(_text(parse_duration), [b"1h30m", b"1.5ms"], (ValueError,)),
}  # fmt: skip


def damaged(sample: bytes, chance: random.Random) -> bytes:
    """Return the sample after one to four changes, at most `LIMIT_BYTES` long."""
    data = bytearray(sample)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        end = min(len(data), at + chance.choice((1, 2, 8, 64)))
        match chance.randrange(6):
            case 0:
                data[at:end] = chance.randbytes(end - at)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end]
            case 3:
                data[at:at] = chance.choice(_WORDS)
            case 4:  # a repetition, up to the limit of length
                data[at:at] = bytes(data[at:end]) * ((LIMIT_BYTES - len(data)) // max(1, end - at))
            case _:
                data[at:end] = bytes(reversed(data[at:end]))
        del data[LIMIT_BYTES:]
    return bytes(data)


def run(seed: int, only: str = "", cases: int = CASES_PER_SEED) -> tuple[int, list[str]]:
    """Try about this number of cases; return their number and the failures."""
    chance, count = random.Random(seed), 0
    wrong: list[str] = []
    names = [name for name in PARSERS if only in ("", name)]
    for _ in range(max(1, cases // len(names))):
        for name in names:
            parser = PARSERS[name]
            data = damaged(chance.choice(parser.samples), chance)
            count += 1
            began = time.process_time()
            try:
                parser.read(data)
            except parser.errors:
                pass
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                wrong.append(f"{name}, seed {seed}: {error!r:.200} for {data[:200]!r}")
            if (seconds := time.process_time() - began) > CPU_LIMIT_S:
                wrong.append(f"{name}, seed {seed}: {seconds:.1f} s for {data[:200]!r}")
    return count, wrong


def main() -> int:
    """Run the seeds; return 1 if a parser fails or is slow, or the process grows."""
    given = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    given.add_argument("--seeds", default="0-99")
    given.add_argument("--only", default="")
    options = given.parse_args()
    first, _, last = options.seeds.partition("-")
    began, total = time.monotonic(), 0
    before = 0
    for seed in range(int(first), int(last or first) + 1):
        count, wrong = run(seed, options.only)
        total += count
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        before = before or grown
        if grown - before > GROWTH_LIMIT_BYTES:
            wrong.append(f"seed {seed}: the process has grown by {(grown - before) >> 20} MiB")
        if wrong:
            sys.stdout.write("\n".join([*wrong, ""]))
            return 1
    seconds = time.monotonic() - began
    sys.stdout.write(f"{total} inputs of {len(PARSERS)} parsers in {seconds:.0f} s: no harm\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
