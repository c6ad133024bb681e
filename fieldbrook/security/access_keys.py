"""Access keys: tokens with rights of their own.

A key's text is `w3b_` + unpadded base64url of `<version>_<Unix seconds>_<random>`, where
the random part has 12 visible characters other than `_`. The node stores only the SHA-256 of
the random part and the second of creation, so a key can be shown only once.

A key has permissions on groups of operations, and no access to groups that are not listed.

Source: interface document, 4.4.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import re
import secrets
import string
from collections.abc import Iterable
from typing import NamedTuple

from fieldbrook.core.errors import (
    AccessKeyExpiredError,
    AccessKeyNotFoundError,
    AccessKeyPermissionDeniedError,
    InvalidAccessKeyError,
)
from fieldbrook.core.model import AccessKey

PREFIX = "w3b_"
VERSION = 1
RANDOM_LENGTH = 12
TEXT_LIMIT = 128  # characters of a key's text; keys of this node have 38

_RANDOM = "".join(sorted(set(string.ascii_letters + string.digits + string.punctuation) - {"_"}))
_CONTENT = re.compile(r"([0-9]{1,4})_([0-9]{1,15})_([!-^`-~]{12})", re.ASCII)
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class Permission(enum.IntEnum):
    """A key's permission on a group of operations; each value includes the ones before it."""

    NO_ACCESS = 0
    READONLY = 1
    READ_WRITE = 2


class Group(enum.StrEnum):
    """The groups of operations, with their names in keys."""

    ACCOUNT = "Account"
    ACCOUNT_REGISTER = "Account Register"
    ACCOUNT_ACCESS_KEY = "Account Access Key"
    APPLET = "Applet"
    CONFIGURATION = "Configuration"
    CRONJOB = "Cronjob"
    DEPLOY = "Deploy"
    EVENT = "Event"
    LOGIN = "Login"
    MONITOR = "Monitor"
    OPERATOR = "Operator"
    PROJECT = "Project"
    PROJECT_CONFIG = "Project Config"
    PROJECT_OPERATOR = "Project Operator"
    PUBLISHER = "Publisher"
    RESOURCE = "Resource"
    STRATEGY = "Strategy"
    TRAFFIC_LIMIT = "Traffic Limit"
    WASM_LOG = "Wasm Log"


DESCRIPTIONS: dict[str, str] = {
    Group.ACCOUNT: "Accounts and the audit log",
    Group.ACCOUNT_REGISTER: "Registering accounts",
    Group.ACCOUNT_ACCESS_KEY: "Access keys of the account",
    Group.APPLET: "Applets",
    Group.CONFIGURATION: "The node's configuration",
    Group.CRONJOB: "Cron jobs",
    Group.DEPLOY: "Instances of applets",
    Group.EVENT: "Sending events",
    Group.LOGIN: "Logging in",
    Group.MONITOR: "Monitors of blockchains",
    Group.OPERATOR: "Operators: keys that sign transactions",
    Group.PROJECT: "Projects",
    Group.PROJECT_CONFIG: "Configurations of projects",
    Group.PROJECT_OPERATOR: "Which operator a project uses",
    Group.PUBLISHER: "Publishers",
    Group.RESOURCE: "Uploaded modules",
    Group.STRATEGY: "Strategies",
    Group.TRAFFIC_LIMIT: "Traffic limits",
    Group.WASM_LOG: "Logs and stored values of applets",
}
PUBLISHER_PRIVILEGES = {Group.EVENT.value: Permission.READ_WRITE.name}


class ParsedKey(NamedTuple):
    """The parsed text of a key: the time of creation, and the digest that finds its record."""

    issued_at_s: int
    digest: bytes


class NewKey(NamedTuple):
    """A new key: the text for its owner, and the values that the node stores."""

    text: str
    parsed: ParsedKey


def publisher_key_name(publisher_id: int) -> str:
    """Return the name of a publisher's key among the keys of the project's account."""
    return f"pub_{publisher_id}"


def is_access_key(token: str) -> bool:
    """Return whether a token has the prefix of access keys; the token may still be malformed."""
    return token.startswith(PREFIX)


def issue(now_ms: int) -> NewKey:
    """Make a new key with the creation time `now_ms` (Unix milliseconds)."""
    issued_at_s = now_ms // 1000
    random = "".join(secrets.choice(_RANDOM) for _ in range(RANDOM_LENGTH))
    content = f"{VERSION}_{issued_at_s}_{random}".encode()
    text = PREFIX + base64.urlsafe_b64encode(content).rstrip(b"=").decode()
    return NewKey(text, ParsedKey(issued_at_s, _digest(random)))


def parse(text: str) -> ParsedKey:
    """Parse the text of a key; the node may have no record of the key.

    Raises:
        InvalidAccessKeyError: the text is malformed. The description never contains the text.
    """
    if not text.startswith(PREFIX):
        raise InvalidAccessKeyError(reason=f"it does not start with {PREFIX}")
    encoded = text[len(PREFIX) :]
    if len(text) > TEXT_LIMIT or not _BASE64URL.fullmatch(encoded):
        raise InvalidAccessKeyError(reason="the text after the prefix is not base64url")
    try:
        content = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidAccessKeyError(reason="the text after the prefix is not base64url") from None
    found = _CONTENT.fullmatch(content)
    if found is None:
        raise InvalidAccessKeyError(
            reason="it does not consist of a version, a time and a random part"
        )
    version, issued_at, random = found.groups()
    if int(version) != VERSION:
        raise InvalidAccessKeyError(reason=f"version {int(version)} is not supported")
    return ParsedKey(int(issued_at), _digest(random))


def require_valid(key: AccessKey | None, parsed: ParsedKey, now_ms: int) -> AccessKey:
    """Check that the record with the digest of a parsed key matches the key and has not expired.

    Returns:
        The record `key`.

    Raises:
        AccessKeyNotFoundError: `key` is None: the node has no such record.
        InvalidAccessKeyError: the time in the key is not the record's time of creation.
        AccessKeyExpiredError: the key has expired.
    """
    if key is None:
        raise AccessKeyNotFoundError(what="access key")
    if key.issued_at_s != parsed.issued_at_s:
        raise InvalidAccessKeyError(reason="its time is not the time at which the key was created")
    if key.expires_at and key.expires_at <= now_ms:
        raise AccessKeyExpiredError(name=key.name)
    return key


def require_permission(key: AccessKey, group: str, needed: Permission, operation: str) -> None:
    """Check that a key has the needed permission on a group.

    Raises:
        AccessKeyPermissionDeniedError: the key has a lower permission.
    """
    granted = permission_on(key, group)
    if granted < needed:
        raise AccessKeyPermissionDeniedError(
            operation=operation, group=group, needed=needed.name, granted=granted.name
        )


def permission_on(key: AccessKey, group: str) -> Permission:
    """Return the permission of a key on a group; `NO_ACCESS` if the group is not listed."""
    try:
        return Permission[key.privileges.get(group, "NO_ACCESS")]
    except KeyError:
        return Permission.NO_ACCESS


def known_privileges(asked: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return privileges in the stored form: unknown groups are dropped, and the last entry of a
    group is used."""
    known = {group.value for group in Group}
    return {
        name: Permission[permission.upper()].name for name, permission in asked if name in known
    }


def _digest(random: str) -> bytes:
    return hashlib.sha256(random.encode()).digest()
