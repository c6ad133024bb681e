"""The interface of a guest for host functions: its memory, its run, and its remaining budgets."""

from __future__ import annotations

import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NoReturn

from fieldbrook.core.errors import NodeError
from fieldbrook.wasm.limits import DEADLINE, Limits
from fieldbrook.wasm.module.abi import (
    COPY_TO_GUEST_FAILED,
    FAILED,
    LOG_ERROR,
    MESSAGE_LIMIT,
    SOURCE_HOST,
    Signature,
)
from fieldbrook.wasm.run import Effect, EffectRefusedError, NotInBatchError, Run

log = logging.getLogger(__name__)

Functions = Mapping[Signature, Callable[..., "int | float | None"]]


LOG_RECORD_BYTES = 32  # charged per record in addition to its text
MESSAGE_BYTES = 4 * MESSAGE_LIMIT  # UTF-8 bytes of the longest text of a record
_UNREACHABLE = "wasm `unreachable` instruction executed"
"""The reason of the trap that a compiler puts after a call of `abort`."""
LARGE_BYTES = 1 << 10  # for more bytes, the work takes longer than a check of the deadline


class GuestError(Exception):
    """The guest passed arguments that cannot be used.

    The text becomes a log record, and the guest gets `code`, or the signature's `failure` if
    `code` is None.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class RunEndedError(Exception):
    """The run has ended, and the guest must be trapped. The text is the reason."""


class Guest(ABC):
    """The state of the current run. A host makes one guest and uses it for every run.

    The `*_left` attributes are the remaining budgets. `ended` is the reason why the run ends; it is
    set while guest code is still on the stack. `pending` is an exception of the node itself that
    `Host.run` must raise.
    """

    __slots__ = (
        "aborted",
        "calls_left",
        "data_left",
        "effect_bytes_left",
        "effects_left",
        "ended",
        "ends_at",
        "kv_left",
        "limits",
        "log_left",
        "pending",
        "resources",
        "rid",
        "run",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.run = Run(b"")
        self.rid = 0
        self.resources: dict[int, bytes] = {}
        self.ended = ""
        self.aborted = ""
        self.pending: BaseException | None = None
        self.calls_left = 0
        self.log_left = 0
        self.kv_left = 0
        self.data_left = 0
        self.effects_left = 0
        self.effect_bytes_left = 0
        self.ends_at = 0.0

    @abstractmethod
    def read(self, pointer: int, size: int) -> bytes:
        """Copy a range of guest memory. Raises GuestError if the range exceeds the memory."""

    @abstractmethod
    def write(self, pointer: int, data: bytes) -> None:
        """Overwrite guest memory. Raises GuestError if the range exceeds the memory."""

    @abstractmethod
    def check_range(self, pointer: int, size: int) -> None:
        """Raise GuestError unless this range lies within guest memory."""

    @abstractmethod
    def copy_to_guest(self, data: bytes, pointer_at: int, size_at: int) -> None:
        """Copy a buffer into the guest's memory.

        The guest's `alloc` is called once with the exact size. Then the buffer's address is
        written to `pointer_at` and its size to `size_at` (ABI document, 2).

        Raises:
            GuestError: with `COPY_TO_GUEST_FAILED`: the guest exports no `alloc`, `alloc` is
                running already or trapped, or an address lies outside the memory.
        """

    def begin(self, run: Run) -> int:
        """Start a run with full budgets; return the resource id of its payload."""
        limits = self.limits
        self.run = run
        seeded = run.capabilities.seeded
        self.rid = rid = random.getrandbits(31) if seeded is None else seeded.rid
        self.resources = {rid: run.payload}
        self.ended = ""
        self.aborted = ""
        self.pending = None
        self.log_left = limits.log_bytes
        self.kv_left = limits.kv_bytes
        self.data_left = limits.data_bytes
        self.effects_left = limits.effects
        self.effect_bytes_left = limits.effect_bytes
        self.ends_at = run.ends_at = time.monotonic() + limits.deadline_ms / 1000
        return rid

    def read_head(self, pointer: int, size: int, limit: int) -> bytes:
        """Copy the first `limit` bytes of a range; the whole range must lie within memory."""
        if size > limit:
            self.check_range(pointer, size)
            size = limit
        return self.read(pointer, size)

    def log(self, level: int, source: str, text: str) -> None:
        """Add a log record, cut to the limit. Raises RunEndedError when the log budget ends."""
        text = text[:MESSAGE_LIMIT]
        self.charge_log(len(text.encode("utf-8", "replace")))
        self.run.logs.append((level, source, text))

    def reason_of(self, trap: str) -> str:
        """Return the reason of a trap; after a call of `abort`, it contains the text of the
        exception."""
        return trap.replace(_UNREACHABLE, self.aborted, 1) if self.aborted else trap

    def charge_log(self, size: int) -> None:
        """Charge one record of `size` bytes to the log budget."""
        left = self.log_left - size - LOG_RECORD_BYTES
        if left < 0:
            self.end_budget("log", self.limits.log_bytes, "bytes")
        self.log_left = left

    def add_effect(self, effect: Effect, size: int) -> None:
        """Add an effect of `size` bytes and charge the budgets; the effect takes place after the
        commit."""
        self.effects_left -= 1
        self.effect_bytes_left -= size
        if self.effects_left < 0:
            self.end_budget("effects", self.limits.effects, "per event")
        if self.effect_bytes_left < 0:
            self.end_budget("effects", self.limits.effect_bytes, "bytes")
        self.run.effects.append(effect)

    def end_budget(self, budget: str, value: int, unit: str) -> NoReturn:
        """End the run because a budget is used up."""
        self.end(f"{budget} budget of {value} {unit} exceeded")

    def end(self, reason: str) -> NoReturn:
        """End the run. If it has ended already, the first reason stays."""
        self.ended = self.ended or reason
        raise RunEndedError(self.ended)

    def check_deadline(self) -> None:
        """End the run if its deadline has passed.

        Host functions that take long must call this: the ticker interrupts only guest code,
        and its thread needs the interpreter's lock.
        """
        if time.monotonic() > self.ends_at:
            self.end_deadline()

    def end_deadline(self) -> NoReturn:
        """End the run because its deadline has passed."""
        self.end(self.deadline_text)

    def end_calls(self) -> NoReturn:
        """End the run because it called the host too often."""
        self.end_budget("host call", self.limits.host_calls, "calls")

    def alloc_missing(self, exported: bool) -> GuestError:
        """Make the error for an `alloc` that is not exported or is running already."""
        text = "called from within alloc" if exported else "the module exports no alloc"
        return GuestError(text, COPY_TO_GUEST_FAILED)

    def alloc_failed(self, reason: str) -> GuestError:
        """Make the error for a trap in `alloc`.

        Raises:
            RunEndedError: the trap ended the run, e.g. at the deadline.
        """
        if self.ended:
            raise RunEndedError(self.ended)
        return GuestError(f"alloc: {reason}", COPY_TO_GUEST_FAILED)

    @property
    def deadline_text(self) -> str:
        """The reason of a run that exceeded its deadline."""
        return f"{DEADLINE} {self.limits.deadline_ms} ms exceeded"

    def out_of_memory(self, end: int, size: int, code: int | None) -> GuestError:
        """Make the error for a range that exceeds the guest's memory."""
        return GuestError(f"address {end} is beyond the memory of {size} bytes", code)

    def handle_error(self, error: BaseException, signature: Signature) -> int | None:
        """Handle an exception of a host function.

        Returns:
            The code that the guest gets, or None if the guest must be trapped. Then `ended`
            has the reason.
        """
        if isinstance(error, EffectRefusedError):
            error = GuestError(str(error), FAILED)
        if isinstance(error, GuestError):
            try:
                self.log(LOG_ERROR, SOURCE_HOST, f"{signature.name}: {error}")
            except RunEndedError:
                return None
            return signature.failure if error.code is None else error.code
        if isinstance(error, RunEndedError):
            return None
        if isinstance(error, NotInBatchError):
            self.ended = self.ended or f"{signature.name} cannot wait in a batch"
            return None
        if isinstance(error, NodeError) or not isinstance(error, Exception):
            self.pending = self.pending or error
        else:
            log.error("host function %s failed", signature.label, exc_info=error)
        self.ended = self.ended or f"host function {signature.label} failed"
        return None

    def raise_pending(self) -> None:
        """Raise the pending exception, if any. Call it after the guest has ended."""
        pending, self.pending = self.pending, None
        if pending is not None:
            raise pending


def exit_text(status: int) -> str:
    """Return the reason of a run whose guest called `proc_exit`."""
    return f"exit status {status}"
