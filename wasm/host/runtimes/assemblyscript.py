"""Imports of AssemblyScript's runtime: `abort`, `trace`, `seed`.

A string is a pointer to UTF-16LE text. The 4 bytes before the text hold its length in bytes,
as a u32 (ABI document, 2).
"""

from __future__ import annotations

import random
import time

from fieldbrook.wasm.host.guest import Functions, Guest, GuestError
from fieldbrook.wasm.module import abi

_LENGTH_BYTES = 4
_TRACE_VALUES = 5
_REASON_LIMIT = 256  # characters of an exception's text in the reason of a trap


def _string(guest: Guest, pointer: int) -> str:
    """Read the string at a pointer, cut to the length of a log record; null means empty."""
    if pointer == 0:
        return ""
    if pointer < _LENGTH_BYTES:
        raise GuestError(f"no string at address {pointer}")
    size = int.from_bytes(guest.read(pointer - _LENGTH_BYTES, _LENGTH_BYTES), "little")
    return guest.read_head(pointer, size, 2 * abi.MESSAGE_LIMIT).decode("utf-16-le", "replace")


def functions(guest: Guest) -> Functions:
    """Return `abort`, `trace` and `seed`."""

    def abort(message: int, file: int, line: int, column: int) -> None:
        # No trap is needed here: the compiler puts `unreachable` after the call.
        text = f"abort: {_string(guest, message)} at {_string(guest, file)}:{line}:{column}"
        guest.aborted = text[:_REASON_LIMIT]
        guest.log(abi.LOG_ERROR, abi.SOURCE_HOST, text)

    def trace(message: int, count: int, *values: float) -> None:
        shown = ", ".join(f"{value:.15g}" for value in values[: min(count, _TRACE_VALUES)])
        text = f"trace: {_string(guest, message)} {shown}".rstrip()
        guest.log(abi.LOG_INFO, abi.SOURCE_HOST, text)

    def seed() -> float:
        seeded = guest.run.capabilities.seeded
        if seeded is not None:
            return seeded.number()
        return random.random() * time.time_ns()  # noqa: S311 - what the runtime expects

    return {abi.ABORT: abort, abi.TRACE: trace, abi.SEED: seed}
