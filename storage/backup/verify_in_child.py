"""Verification of a data folder in a child process, which a damaged store may kill.

LMDB trusts the content of its pages. A truncated store ends the process that reads it with
SIGBUS, a damaged or malicious one with SIGSEGV. The parent reports this as a defect of the
store and starts a new child, which checks everything else.

`python -m fieldbrook.storage.backup.verify_in_child DATA [PLACE...]` checks everything except the
stores at those places. It prints lines of JSON: the place of each store before it is opened, and
at the end the fields of `Verified`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup.verify import Verified, verify
from fieldbrook.system.kernel import die_with_parent
from fieldbrook.system.process import FATAL_SIGNALS, module_command

_FATAL_LIMIT = 20  # number of fatal stores; each of them restarts the verification
_SHOWN = 300


def verify_in_child(data: Path) -> Verified:
    """Do the same as `verify`, and report a store that kills its reader as a defect. Blocks.

    Raises:
        StoreError: the child process could not be started, or failed for another reason.
    """
    fatal: dict[str, int] = {}
    while len(fatal) < _FATAL_LIMIT:
        # Removing the folder also removes temporary files of a child that died.
        with tempfile.TemporaryDirectory(prefix="fieldbrook-") as scratch:
            status, lines, complaint = _run_child(data, fatal, Path(scratch))
        if status == 0:
            found = json.loads(lines[-1])
            defects = [*map(_line, fatal, fatal.values()), *found["defects"]]
            return Verified(**{**found, "defects": defects})
        if -status not in FATAL_SIGNALS or not lines:
            last = " ".join(complaint.split())[-_SHOWN:]
            raise StoreError(reason=f"the verification process ended with status {status}: {last}")
        fatal[json.loads(lines[-1])] = -status
    defects = [
        *map(_line, fatal, fatal.values()),
        "too many stores are damaged: the others were not checked",
    ]
    return Verified(defects, 0, 0)


def _line(place: str, number: int) -> str:
    name = signal.Signals(number).name
    return f"{place}: the store is truncated or damaged: reading it ended the process with {name}"


def _run_child(data: Path, fatal: Iterable[str], scratch: Path) -> tuple[int, list[str], str]:
    """Run a child; return its exit status, its lines of output and its error output."""
    command = module_command("fieldbrook.storage.backup.verify_in_child", str(data), *fatal)
    environment = {**os.environ, "TMPDIR": str(scratch)}
    try:
        with tempfile.TemporaryFile(dir=scratch) as complaints:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
                check=False,
            )
            complaints.seek(0)
            said = complaints.read(1 << 16).decode("utf-8", "replace")
    except OSError as error:
        raise StoreError(reason=f"{data}: {error.strerror}") from error
    return done.returncode, done.stdout.decode().splitlines(), said


def main(arguments: Sequence[str]) -> int:
    """Run the verification in the child process."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data, *fatal = arguments
    found = verify(Path(data), fatal, _print)
    _print(found._asdict())
    return 0


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
