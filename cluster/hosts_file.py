"""The file with a host's copy of the list of hosts, in its data folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.errors import SettingsError
from fieldbrook.system.fsync import make_folder, sync_folder
from fieldbrook.system.regular_file import read_regular_file

FOLDER = "cluster"
_FILE = "hosts.json"
_LIMIT_BYTES = 1 << 20  # a hundred times as much as 1,000 pins take


def load(data: Path) -> Membership | None:
    """Read the membership of a data folder; None if its node belongs to no cluster.

    Raises:
        SettingsError: the file cannot be read, or this host is not in its list.
    """
    path = data / FOLDER / _FILE
    try:
        known = msgspec.json.decode(read_regular_file(path, _LIMIT_BYTES), type=Membership)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(reason=f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no text, no JSON, or JSON of another form
        raise SettingsError(reason=f"{path} cannot be read: {error}") from error
    if not known.hosts or known.me not in (*(host.name for host in known.hosts), *known.gone):
        raise SettingsError(reason=f"{path} cannot be read: its hosts lack {known.me[:64]!r}")
    return known


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


def require_formed(data: Path) -> Membership:
    """Read the membership of a host whose cluster has enough hosts.

    Raises:
        SettingsError: the data folder is not that of such a host.
    """
    known = load(data)
    if known is None or not known.formed:
        raise SettingsError(reason=f"the data folder {data} is not that of a host of a cluster")
    return known


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
