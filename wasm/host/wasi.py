"""The one WASI function that cannot be left to the library.

`poll_oneoff` of the library sleeps for as long as the guest asks, out of reach of the
deadline. This one sleeps until the deadline at most. All others are the library's, with
no arguments, environment, files or standard streams.

Source: WASI preview1, `poll_oneoff`, `subscription`, `event`.
"""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

from fieldbrook.wasm import abi
from fieldbrook.wasm.host.guest import Functions, Guest

_SUCCESS, _EBADF, _EINVAL = 0, 8, 28
_CLOCK = 0  # kind of a subscription; the others wait for files, of which there are none
_REALTIME, _MONOTONIC = 0, 1
_ABSOLUTE = 1
_SUBSCRIPTIONS_LIMIT = 1_024

_SUBSCRIPTION = struct.Struct("<QB7xI4xQQH6x")  # userdata, kind, clock, timeout, precision, flags
_EVENT = struct.Struct("<QHB21x")  # userdata, error, kind
_COUNT = struct.Struct("<I")


class _Wait(NamedTuple):
    userdata: int
    kind: int
    error: int
    seconds: float


def _wait(raw: bytes, offset: int, elapsed_ns: int) -> _Wait:
    userdata, kind, clock, timeout_ns, _, flags = _SUBSCRIPTION.unpack_from(raw, offset)
    if kind != _CLOCK:
        return _Wait(userdata, kind, _EBADF, 0.0)
    if clock not in (_REALTIME, _MONOTONIC):
        return _Wait(userdata, kind, _EINVAL, 0.0)
    if flags & _ABSOLUTE:
        # The library's monotonic clock starts at zero with the instance.
        timeout_ns -= time.time_ns() if clock == _REALTIME else elapsed_ns
    return _Wait(userdata, kind, _SUCCESS, max(timeout_ns, 0) / 1e9)


def functions(guest: Guest) -> Functions:
    """`poll_oneoff`."""

    def poll_oneoff(subscriptions: int, events: int, count: int, count_at: int) -> int:
        if not 0 < count <= _SUBSCRIPTIONS_LIMIT:
            return _EINVAL
        guest.require(events, count * _EVENT.size)
        guest.require(count_at, _COUNT.size)
        raw = guest.read(subscriptions, count * _SUBSCRIPTION.size)
        left = guest.ends_at - time.monotonic()
        elapsed_ns = guest.limits.deadline_ms * 1_000_000 - int(left * 1e9)
        starts = range(0, len(raw), _SUBSCRIPTION.size)
        waits = [_wait(raw, start, elapsed_ns) for start in starts]
        shortest = min(wait.seconds for wait in waits)
        time.sleep(max(min(shortest, left), 0.0))
        if shortest > left:
            guest.end_deadline()
        done = [
            _EVENT.pack(wait.userdata, wait.error, wait.kind)
            for wait in waits
            if wait.seconds <= shortest
        ]
        guest.write(events, b"".join(done))
        guest.write(count_at, _COUNT.pack(len(done)))
        return abi.OK

    return {abi.POLL_ONEOFF: poll_oneoff}
