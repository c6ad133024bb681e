"""A process that writes a journal until it is killed: `python writer.py FOLDER FIRST`.

It prints the number of each batch that was synced.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from fieldbrook.storage.journal.file import FileJournal
from fieldbrook.storage.journal.records import BLOCK
from fieldbrook.storage.journal.segments import BEGIN

SIZE = BEGIN + 4 * BLOCK
KEPT = 9
"""How many of the last batches are not released."""


def main(folder: Path, first: int) -> None:
    journal = FileJournal(folder, SIZE)
    left = [record.number for record in journal.records()]
    assert first == 1 or left[-1] == first - 1
    journal.begin()
    for number in count(first):
        journal.add(1, number, b"x" * (number * 997 % 8_000))
        journal.sync()
        os.write(sys.stdout.fileno(), b"%d\n" % number)
        journal.release(1, number - KEPT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
