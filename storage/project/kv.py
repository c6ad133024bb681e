"""Keys of the handlers' key-value store.

One table per project holds the keys of all its applets: 8 bytes of their owner, then the
applet's own key. The owner is the applet's id, or what applets that share a store have in
common. LMDB takes keys of 1 to 511 bytes, so an empty or long key is stored
under its hash; a marker byte keeps the two kinds apart.
"""

from __future__ import annotations

import hashlib

from fieldbrook.core.model import Applet

_PLAIN, _HASHED = b"k", b"h"
_PLAIN_LIMIT = 511 - 8 - 1
_SHARED = 1 << 63  # no id has this bit


def owner(applet: Applet) -> int:
    """Whose keys an applet has: its own, or those all applets with its cache prefix share."""
    if not applet.cache_prefix:
        return applet.applet_id
    digest = hashlib.sha256(applet.cache_prefix.encode(errors="surrogatepass")).digest()
    return _SHARED | int.from_bytes(digest[:8], "big")


def scope(owner_: int) -> bytes:
    """The prefix of all keys of an owner."""
    return owner_.to_bytes(8, "big")


def stored_key(scope_: bytes, key: bytes) -> bytes:
    """Where the store keeps an applet's key of any length."""
    if 0 < len(key) <= _PLAIN_LIMIT:
        return scope_ + _PLAIN + key
    return scope_ + _HASHED + hashlib.sha256(key).digest()


def empty_key(scope_: bytes) -> bytes:
    """Where the store keeps the empty key: the one hashed key whose own key is known."""
    return stored_key(scope_, b"")


def plain_prefix(scope_: bytes, prefix: bytes) -> bytes:
    """The start of every stored key whose own key starts with `prefix`; hashed ones have none."""
    return scope_ + _PLAIN + prefix


def is_shared(owner_: int) -> bool:
    """Whether an owner is what applets share, not one of them."""
    return bool(owner_ & _SHARED)


def is_stored(key: bytes) -> bool:
    """Whether this is what follows the owner in a stored key."""
    return key[:1] in (_PLAIN, _HASHED) and len(key) <= 1 + _PLAIN_LIMIT


def own_key(stored: bytes) -> bytes:
    """The applet's key of a stored key that is not hashed."""
    return stored[9:]
