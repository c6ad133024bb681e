"""The first administrator of the nodes that tests start.

Registering one computes a hash of the password, and logging in another one. Together these take as
much processor time as half of a node's start. In each test process, the first node with default
settings registers an administrator. The nodes that tests start later begin with a copy of its
registry and secrets.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fieldbrook.security import tokens
from fieldbrook.storage.lmdb.environment import open_environment

USERNAME, PASSWORD = "admin", "correct horse"
_LIFETIME_S = 3_600  # the default


@dataclass(frozen=True)
class _Kept:
    folder: TemporaryDirectory[str]
    """Removed when the process ends."""
    account_id: int


_kept: list[_Kept] = []


def issue_token(data: Path, account_id: int) -> str:
    """Make a token of a new login, with the key of the node that has this data folder."""
    now_s = int(time.time())
    login = tokens.new_login(now_s)
    return tokens.issue_account_token(_key(data), account_id, now_s + _LIFETIME_S, login)


def keep(data: Path, token: str) -> None:
    """Keep a copy of the registry and the secrets of a running node, whose only account has this
    token."""
    if _kept:
        return
    folder = TemporaryDirectory(prefix="first-administrator-")
    registry = Path(folder.name) / "registry"
    registry.mkdir(mode=0o700)
    with open_environment(data / "registry", map_size=0, readonly=True) as environment:
        environment.copy(str(registry), compact=True)
    shutil.copytree(data / "secrets", Path(folder.name) / "secrets")
    account = tokens.read_account_token(_key(data), token)
    _kept.append(_Kept(folder, account.account_id))


def put_into(data: Path) -> str:
    """Put the copy into a new data folder; return a token, which is empty without a copy."""
    if not _kept or data.exists():
        return ""
    shutil.copytree(_kept[0].folder.name, data)
    return issue_token(data, _kept[0].account_id)


def _key(data: Path) -> bytes:
    return (data / "secrets" / "token.key").read_bytes()
