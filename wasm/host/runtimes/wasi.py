"""WASI functions that replace those of wasmtime.

wasmtime's `poll_oneoff` sleeps for as long as the guest asks, and the deadline cannot
interrupt it. The replacement sleeps until the deadline at most. Hosts with seeded runs also
replace the clock and the random numbers. All other functions are wasmtime's, without
arguments, environment, files or standard streams.

Source: WASI preview1, `poll_oneoff`, `subscription`, `event`, `clock_time_get`, `random_get`.
"""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

from fieldbrook.wasm.host.guest import Functions, Guest, GuestError
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.seeded import Seeded

_SUCCESS, _EBADF, _EINVAL = 0, 8, 28
_CLOCK = 0  # kind of a subscription; the other kinds wait for files, which applets do not have
_REALTIME, _MONOTONIC, _THREAD_TIME = 0, 1, 3  # _THREAD_TIME has the highest number
_ABSOLUTE = 1
_SUBSCRIPTIONS_LIMIT = 1_024

_SUBSCRIPTION = struct.Struct("<QB7xI4xQQH6x")  # userdata, kind, clock, timeout, precision, flags
_EVENT = struct.Struct("<QHB21x")  # userdata, error, kind
_COUNT = struct.Struct("<I")
_TIME = struct.Struct("<Q")
_U64 = (1 << 64) - 1


class _Wait(NamedTuple):
    userdata: int
    kind: int
    error: int
    seconds: float


def _wait(raw: bytes, offset: int, unix_ns: int, elapsed_ns: int) -> _Wait:
    userdata, kind, clock, timeout_ns, _, flags = _SUBSCRIPTION.unpack_from(raw, offset)
    if kind != _CLOCK:
        return _Wait(userdata, kind, _EBADF, 0.0)
    if clock not in (_REALTIME, _MONOTONIC):
        return _Wait(userdata, kind, _EINVAL, 0.0)
    if flags & _ABSOLUTE:
        # wasmtime's monotonic clock starts at zero with the instance.
        timeout_ns -= unix_ns if clock == _REALTIME else elapsed_ns
    return _Wait(userdata, kind, _SUCCESS, max(timeout_ns, 0) / 1e9)


def functions(guest: Guest) -> Functions:
    """Return `poll_oneoff`, and `clock_time_get` and `random_get` for seeded hosts."""

    def poll_oneoff(subscriptions: int, events: int, count: int, count_at: int) -> int:
        if not 0 < count <= _SUBSCRIPTIONS_LIMIT:
            return _EINVAL
        guest.check_range(events, count * _EVENT.size)
        guest.check_range(count_at, _COUNT.size)
        raw = guest.read(subscriptions, count * _SUBSCRIPTION.size)
        unix_ns, elapsed_ns, left = _times(guest)
        starts = range(0, len(raw), _SUBSCRIPTION.size)
        waits = [_wait(raw, start, unix_ns, elapsed_ns) for start in starts]
        shortest = min(wait.seconds for wait in waits)
        _sleep(guest, max(min(shortest, left), 0.0))
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

    def clock_time_get(clock: int, _precision: int, time_at: int) -> int:
        if clock > _THREAD_TIME:
            guest.end("Invalid enum value Clockid")
        if clock not in (_REALTIME, _MONOTONIC):
            return _EBADF
        _bound(guest, time_at, _TIME.size)
        if time_at % _TIME.size:
            guest.end(f"Pointer not aligned to {_TIME.size}: {_region(time_at, _TIME.size)}")
        seeded = _seeded(guest)
        seeded.move()
        shown = seeded.unix_ns if clock == _REALTIME else seeded.elapsed_ns
        guest.write(time_at, _TIME.pack(shown & _U64))
        return abi.OK

    def random_get(pointer: int, size: int) -> int:
        if size:
            _bound(guest, pointer, size)
            guest.write(pointer, _seeded(guest).bytes(size))
        return abi.OK

    return {
        abi.POLL_ONEOFF: poll_oneoff,
        abi.CLOCK_TIME_GET: clock_time_get,
        abi.RANDOM_GET: random_get,
    }


def _bound(guest: Guest, pointer: int, size: int) -> None:
    """End the run, as wasmtime does, if a range lies outside the guest's memory."""
    try:
        guest.check_range(pointer, size)
    except GuestError:
        guest.end(f"Pointer out of bounds: {_region(pointer, size)}")


def _region(start: int, size: int) -> str:
    return f"Region {{ start: {start}, len: {size} }}"


def _seeded(guest: Guest) -> Seeded:
    seeded = guest.run.capabilities.seeded
    if seeded is None:
        raise RuntimeError("a seeded host was given a run without a seed")
    return seeded


def _times(guest: Guest) -> tuple[int, int, float]:
    """Return Unix time and the instance's age in nanoseconds, and the seconds to the deadline."""
    deadline_ns = guest.limits.deadline_ms * 1_000_000
    seeded = guest.run.capabilities.seeded
    if seeded is not None:
        return seeded.unix_ns, seeded.elapsed_ns, (deadline_ns - seeded.elapsed_ns) / 1e9
    left = guest.ends_at - time.monotonic()
    return time.time_ns(), deadline_ns - int(left * 1e9), left


def _sleep(guest: Guest, seconds: float) -> None:
    seeded = guest.run.capabilities.seeded
    if seeded is None:
        time.sleep(seconds)
    else:
        seeded.move(round(seconds * 1e9))
