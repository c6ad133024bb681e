"""The file with a host's copy of the list of hosts, in its data folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.errors import SettingsError
from fieldbrook.system.fsync import make_folder, sync_folder

FOLDER = "cluster"
_FILE = "hosts.json"


def load(data: Path) -> Membership | None:
    """Read the membership of a data folder; None if its node belongs to no cluster.

    Raises:
        SettingsError: the file cannot be read.
    """
    path = data / FOLDER / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Membership)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(reason=f"{path} cannot be read: {error}") from error


def save(data: Path, membership: Membership) -> None:
    """Write the membership of a data folder, and sync it to disk.

    Raises:
        SettingsError: the file cannot be written.
    """
    folder = data / FOLDER
    new = folder / f".new-{_FILE}"
    try:
        make_folder(folder)
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(membership), indent=1))
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / _FILE)
        sync_folder(folder)
    except OSError as error:
        raise SettingsError(
            reason=f"{folder / _FILE} cannot be written: {error.strerror}"
        ) from error


def is_formed(data: Path) -> bool:
    """Return whether the data folder belongs to a cluster that has enough hosts."""
    known = load(data)
    return known is not None and known.formed


def require_member(data: Path) -> None:
    """Refuse a data folder whose host was removed from its cluster.

    Raises:
        SettingsError: the host was removed.
    """
    known = load(data)
    if known is not None and known.me in known.gone:
        raise SettingsError(
            reason=f"host {known.me!r} was removed from its cluster and cannot return. Start a new "
            "host with another name and an empty data folder"
        )


def new_cluster_id() -> str:
    """Return a new id for a cluster, made of the time and random bytes."""
    return f"{int(time.time()):x}-{os.urandom(4).hex()}"
