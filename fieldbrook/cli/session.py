"""The saved login: a file that only its user can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fieldbrook.cli.errors import ClientError


class Session(NamedTuple):
    """A login to a server.

    `expires_at` is the RFC 3339 time that the node reported; "" if it is unknown.
    `authorities` is the PEM file of the certificate authorities that are trusted for this
    server, "" for those of the system.
    """

    server: str
    token: str
    username: str = ""
    role: str = ""
    expires_at: str = ""
    authorities: str = ""


def session_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the saved login: `$XDG_CONFIG_HOME/fieldbrook/session.json`."""
    base = environment.get("XDG_CONFIG_HOME") or ""
    folder = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return folder / "fieldbrook" / "session.json"


def load_session(path: Path) -> Session | None:
    """Return the saved login; None if there is none.

    Raises:
        ClientError: the file cannot be read, or was not written by `save_session`.
    """
    try:
        values = json.loads(path.read_bytes())
        return Session(**{name: str(value) for name, value in values.items()})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        hint = "remove it with `fieldbrook logout` and log in again"
        raise ClientError(f"{path} does not hold a saved login", hint) from None


def save_session(path: Path, session: Session) -> None:
    """Save a login in a file that only its user can read.

    Raises:
        ClientError: the file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(session._asdict(), file, indent=2)
            file.write("\n")
        draft.replace(path)
    except OSError as error:
        raise ClientError(f"cannot save the login in {path}: {error.strerror}") from None
