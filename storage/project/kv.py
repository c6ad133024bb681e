"""Keys of the handlers' key-value store.

One table per project holds the keys of all its applets. A stored key is 8 bytes of its owner, a
marker byte, and the applet's own key. The owner is the applet's id, or a number derived from the
cache prefix that several applets share. LMDB takes keys of 1 to 511 bytes, so an empty or long
key is stored under its hash; the marker byte tells plain and hashed keys apart.
"""

from __future__ import annotations

import hashlib

from fieldbrook.core.model import Applet

DATABASE = b"kv"
_PLAIN, _HASHED = b"k", b"h"
_PLAIN_LIMIT = 511 - 8 - 1
_SHARED = 1 << 63  # no id has this bit


def owner(applet: Applet) -> int:
    """Return the owner of an applet's keys: the applet, or all applets with its cache prefix."""
    if not applet.cache_prefix:
        return applet.applet_id
    digest = hashlib.sha256(applet.cache_prefix.encode(errors="surrogatepass")).digest()
    return _SHARED | int.from_bytes(digest[:8], "big")


def scope(owner_: int) -> bytes:
    """Return the prefix of all stored keys of an owner."""
    return owner_.to_bytes(8, "big")


def stored_key(scope_: bytes, key: bytes) -> bytes:
    """Return the stored key for an applet's key of any length."""
    if 0 < len(key) <= _PLAIN_LIMIT:
        return scope_ + _PLAIN + key
    return scope_ + _HASHED + hashlib.sha256(key).digest()


def empty_key(scope_: bytes) -> bytes:
    """Return the stored key for the empty key. It is the only hashed key whose own key can be
    told."""
    return stored_key(scope_, b"")


def plain_prefix(scope_: bytes, prefix: bytes) -> bytes:
    """Return the prefix of the plain stored keys whose own key starts with `prefix`.

    It does not match hashed keys.
    """
    return scope_ + _PLAIN + prefix


def is_shared(owner_: int) -> bool:
    """Return whether an owner is a shared cache prefix instead of an applet."""
    return bool(owner_ & _SHARED)


def is_stored(key: bytes) -> bool:
    """Return whether `key` has the form of a stored key without its owner."""
    return key[:1] in (_PLAIN, _HASHED) and len(key) <= 1 + _PLAIN_LIMIT


def own_key(stored: bytes) -> bytes:
    """Return the applet's own key of a stored key that is not hashed."""
    return stored[9:]
