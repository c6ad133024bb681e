"""A process that writes to a store until it is killed: `python writing.py FOLDER FIRST`.

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


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
