"""Environment variables: those of the project, never those of the node's process."""

from __future__ import annotations

from fieldbrook.wasm.host.guest import Functions, Guest
from fieldbrook.wasm.module import abi

# No variable has a longer name. Decoding 64 MiB of bytes that are not UTF-8 takes seconds and holds
# the interpreter's lock, for which all projects of the process would wait.
_NAME_BYTES = 64 << 10


def functions(guest: Guest) -> Functions:
    """Return `ws_get_env`."""

    def ws_get_env(key_at: int, key_size: int, pointer_at: int, size_at: int) -> int:
        if key_size > _NAME_BYTES:
            guest.check_range(key_at, key_size)
            return abi.ENV_KEY_NOT_FOUND
        # Keys are valid UTF-8, so a name with escaped bytes never matches one.
        key = guest.read(key_at, key_size).decode("utf-8", "surrogateescape")
        value = guest.run.env.get(key)
        if value is None:
            return abi.ENV_KEY_NOT_FOUND
        guest.copy_to_guest(value.encode(), pointer_at, size_at)
        return abi.OK

    return {abi.WS_GET_ENV: ws_get_env}
