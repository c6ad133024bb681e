"""A process that writes to a store until it is killed: `python writing.py FOLDER FIRST`.

`python writing.py FOLDER check TOLD` fails unless the store has all writes up to a number that is
at least TOLD.

Write number n adds `ROWS` rows to the queue of one session, removes those of write n - `KEPT`,
and stores n in a retained message. The process prints the number of each write that is done.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.mqtt import (
    Dequeue,
    Enqueue,
    MqttStore,
    Operation,
    PutRetained,
    PutSession,
    StoredMessage,
    StoredSession,
    StoreWriter,
)

FOLDER = "mqtt"
LIMIT = 64 << 20
UID, TOPIC = 7, "number"
ROWS, KEPT = 3, 50
_AHEAD = 20


def message(number: int) -> StoredMessage:
    return StoredMessage(TOPIC, b"%d " % number * (1 + number * 997 % 2_000), 1, False, b"", 0)


def operations(number: int) -> list[Operation]:
    added = [Enqueue(UID, number * ROWS + row, message(number)) for row in range(ROWS)]
    old = (number - KEPT) * ROWS
    removed = [Dequeue(UID, old + row) for row in range(ROWS)] if old > 0 else []
    return [*added, *removed, PutRetained(TOPIC, message(number))]


async def main(folder: Path, first: int) -> None:
    store = MqttStore(folder, LIMIT)
    writer = StoreWriter(store, asyncio.get_running_loop())
    writer.write([PutSession(StoredSession("d", UID, b""))])
    places = asyncio.Semaphore(_AHEAD)
    number = first
    while True:
        await places.acquire()

        def done(error: StoreError | None, number: int = number) -> None:
            assert error is None
            os.write(sys.stdout.fileno(), b"%d\n" % number)
            places.release()

        writer.write(operations(number), done)
        number += 1


def check(folder: Path, told: int) -> int:
    """Check that the store has each write as a whole and nothing else; return the last one."""
    store = MqttStore(folder, LIMIT)
    retained = list(store.retained())
    last = int(retained[0][1].payload.split()[0]) if retained else 0
    assert last >= told, (last, told)
    expected = [
        (number * ROWS + row, message(number))
        for number in range(max(last - KEPT + 1, 1), last + 1)
        for row in range(ROWS)
    ]
    assert store.queue(UID, -1, 1 << 20) == expected
    store.close()
    return last


if __name__ == "__main__":
    path, *arguments = sys.argv[1:]
    if arguments[0] == "check":
        check(Path(path), int(arguments[1]))
    else:
        asyncio.run(main(Path(path), int(arguments[0])))
