"""Secrets of this node: created at the first start, readable only by the node's user."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from fieldbrook.core.errors import StoreError
from fieldbrook.system.fsync import make_folder, sync_folder
from fieldbrook.system.regular_file import read_regular_file

KEY_BYTES = 32
SETUP_CODE = "setup-code"
_LIMIT_BYTES = 1 << 20


def load_or_create_key(folder: Path, name: str) -> bytes:
    """Read the key in `folder/name`; if there is none, create it from 32 random bytes.

    Raises:
        StoreError: the file does not have 32 bytes, or cannot be read or written.
    """
    key = load_or_create(folder / name, secrets.token_bytes(KEY_BYTES))
    if len(key) != KEY_BYTES:
        raise StoreError(reason=f"{folder / name} has {len(key)} bytes; a key has {KEY_BYTES}")
    return key


def setup_code(folder: Path) -> str:
    """Return the code that is required to register the first administrator; create it if it is
    missing."""
    code = load_or_create(folder / SETUP_CODE, secrets.token_urlsafe(12).encode() + b"\n")
    return code.decode("ascii", "replace").strip()


def load_or_create(path: Path, fresh: bytes) -> bytes:
    """Read a secret's file; if there is none, create it with the content `fresh`.

    Raises:
        StoreError: the file cannot be read or written.
    """
    try:
        if not path.exists():
            _create(path, fresh)
        return read_regular_file(path, _LIMIT_BYTES)
    except OSError as error:
        raise StoreError(reason=f"{path}: {error.strerror}") from error


def problems_in(folder: Path) -> list[str]:
    """Return problems of the secrets in a folder that would make the next start fail.

    Returns:
        One line for each file that is missing, cannot be read, or is not a key.
    """
    problems = []
    try:
        names = sorted(path.name for path in folder.iterdir())
        if "token.key" not in names:
            problems.append("token.key is missing")
        for name in names:
            if name.endswith(".key"):
                size = len(read_regular_file(folder / name, _LIMIT_BYTES))
                if size != KEY_BYTES:
                    problems.append(f"{name} has {size} bytes; a key has {KEY_BYTES}")
    except OSError as error:
        problems.append(f"{Path(error.filename or folder).name}: {error.strerror}")
    return problems


def _create(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    # The secret is written to a temporary file and linked. So a crash never leaves a partial
    # secret, and if two processes create it at the same time, the secret of the first one stays.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.close(descriptor)
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)
