"""Key-value store: a read looks at the run's own writes first."""

from __future__ import annotations

from fieldbrook.wasm.host.guest import Functions, Guest
from fieldbrook.wasm.module import abi


def functions(guest: Guest) -> Functions:
    """Return `ws_get_db` and `ws_set_db`."""
    read, copy_to_guest = guest.read, guest.copy_to_guest

    def ws_get_db(key_at: int, key_size: int, pointer_at: int, size_at: int) -> int:
        if key_size > guest.limits.kv_bytes:  # no run can write such a key, so do not copy it
            guest.check_range(key_at, key_size)
            return abi.RESOURCE_NOT_FOUND
        key = read(key_at, key_size)
        run = guest.run
        value = run.writes.get(key)
        if value is None:
            value = run.read(key)
            if value is None:
                return abi.RESOURCE_NOT_FOUND
        copy_to_guest(value, pointer_at, size_at)
        return abi.OK

    def ws_set_db(key_at: int, key_size: int, value_at: int, value_size: int) -> int:
        guest.check_range(value_at, value_size)
        key = read(key_at, key_size)
        writes = guest.run.writes
        old = writes.get(key)
        left = guest.kv_left - value_size + (-key_size if old is None else len(old))
        if left < 0:
            guest.end_budget("key-value", guest.limits.kv_bytes, "bytes")
        guest.kv_left = left
        writes[key] = read(value_at, value_size)
        return abi.OK

    return {abi.WS_GET_DB: ws_get_db, abi.WS_SET_DB: ws_set_db}
