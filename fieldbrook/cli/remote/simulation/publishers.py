"""The publishers of a fleet: from a file of tokens, or made for this run."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fieldbrook.cli.client import Client
from fieldbrook.cli.errors import ClientError, UnreachableError, WrongUsageError
from fieldbrook.cli.input import read_file
from fieldbrook.cli.output import note
from fieldbrook.cli.text import counted
from fieldbrook.device.transport import Sender

PREFIX = "simulated"
_ATTEMPTS, _PAUSE_S = 5, 1.0  # for the removal, because the node may just be restarting
_IDS_AT_ONCE = 200  # the most ids in the address of one request


def read_tokens(path: Path, project: str, count: int | None) -> list[Sender]:
    """Read publishers from a file: each line has a key and its token, separated by a blank.

    Args:
        path: the file; empty lines and those that begin with `#` are left out.
        project: the project of the publishers.
        count: the number of publishers to use; None for all.

    Raises:
        WrongUsageError: a line has another form, or there are too few.
        ClientError: the file cannot be read.
    """
    senders = []
    for number, line in enumerate(read_file(path).decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise WrongUsageError(
                f"{path}, line {number}: expected a publisher's key and its token"
            )
        senders.append(Sender(project=project, publisher=words[0], token=words[1]))
    if len(senders) < (count or 1):
        raise WrongUsageError(f"{path} has {counted(len(senders), 'publisher')}")
    return senders[:count]


@contextmanager
def made_publishers(
    client: Client, project: str, count: int, interrupted: threading.Event, *, keep: bool
) -> Iterator[list[Sender]]:
    """Make publishers, and remove them at the end unless they are to be kept.

    They are also removed if only some of them could be made.

    Raises:
        KeyboardInterrupt: `interrupted` was set while they were made.
    """
    run = f"{PREFIX}-{secrets.token_hex(3)}"
    senders: list[Sender] = []
    ids: list[str] = []
    try:
        for number in range(1, count + 1):
            if interrupted.is_set():
                raise KeyboardInterrupt
            key = f"{run}-{number:04}"
            made = client.call("POST", ["publisher", project], body={"name": key, "key": key})
            ids.append(str(made["publisherID"]))
            senders.append(Sender(project=project, publisher=key, token=str(made["token"])))
        yield senders
    finally:
        if not keep:
            _remove(client, project, run, ids)


def _remove(client: Client, project: str, run: str, ids: list[str]) -> None:
    client.close()  # the node may have ended the connection meanwhile
    for begin in range(0, len(ids), _IDS_AT_ONCE):
        try:
            _remove_some(client, project, ids[begin : begin + _IDS_AT_ONCE])
        except ClientError as error:
            note(f"the publishers {run}-... were not removed: {error}")
            note(f"  remove each with `fieldbrook publisher delete {project} KEY`")
            return


def _remove_some(client: Client, project: str, ids: list[str]) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            client.call("DELETE", ["publisher", project], query={"publisherID": ids})
            return
        except UnreachableError:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_PAUSE_S)
