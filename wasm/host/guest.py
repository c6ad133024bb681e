"""The guest as host functions see it: its memory, its run, and what is left of its budgets."""

from __future__ import annotations

import logging
import random
import re
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
from fieldbrook.wasm.run import Effect, EffectRefusedError, Run

log = logging.getLogger(__name__)

Functions = Mapping[Signature, Callable[..., "int | float | None"]]

_NUMBER = re.compile(r"^\d+: ")

LOG_RECORD_BYTES = 32  # what a record costs besides its text
MESSAGE_BYTES = 4 * MESSAGE_LIMIT  # the longest UTF-8 of a record that is kept
LARGE_BYTES = 64 << 10  # a copy of more takes longer than a look at the clock


class GuestError(Exception):
    """The guest passed arguments that cannot be used: recorded, answered with a code.

    The code is the signature's `failure` unless one is given here.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class RunEndedError(Exception):
    """The run cannot go on: the guest is trapped, the text is the reason."""


class Guest(ABC):
    """State of the run that is under way; a host makes one and uses it for every run.

    The `*_left` numbers are what remains of the budgets. `ended` is the reason why the
    run cannot go on, even if the guest is still on its way out; `pending` is an exception
    of the node's own that must come out of `run`.
    """

    __slots__ = (
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
        """A copy of guest memory. Raises GuestError when it is not all there."""

    @abstractmethod
    def write(self, pointer: int, data: bytes) -> None:
        """Overwrite guest memory. Raises GuestError when it is not all there."""

    @abstractmethod
    def require(self, pointer: int, size: int) -> None:
        """Raise GuestError unless this range lies within guest memory."""

    @abstractmethod
    def give(self, data: bytes, pointer_at: int, size_at: int) -> None:
        """Hand a buffer to the guest.

        The guest's own `alloc` is called once with exactly the size, then address and
        size are written to the two cells (ABI document, 2).

        Raises:
            GuestError: with `COPY_TO_GUEST_FAILED`: there is no `alloc`, it trapped, or an
                address lies outside the memory.
        """

    def begin(self, run: Run) -> int:
        """Take up a run and return the number its payload is known by to the guest."""
        limits = self.limits
        self.run = run
        seeded = run.surroundings.seeded
        self.rid = rid = random.getrandbits(31) if seeded is None else seeded.rid
        self.resources = {rid: run.payload}
        self.ended = ""
        self.pending = None
        self.log_left = limits.log_bytes
        self.kv_left = limits.kv_bytes
        self.data_left = limits.data_bytes
        self.effects_left = limits.effects
        self.effect_bytes_left = limits.effect_bytes
        self.ends_at = time.monotonic() + limits.deadline_ms / 1000
        return rid

    def read_head(self, pointer: int, size: int, limit: int) -> bytes:
        """The first `limit` bytes of a range that must lie within memory as a whole."""
        if size > limit:
            self.require(pointer, size)
            size = limit
        return self.read(pointer, size)

    def log(self, level: int, source: str, text: str) -> None:
        """Add a record, cut to the limit. Raises RunEndedError when the log budget is used up."""
        text = text[:MESSAGE_LIMIT]
        self.charge_log(len(text.encode("utf-8", "replace")))
        self.run.logs.append((level, source, text))

    def charge_log(self, size: int) -> None:
        """Take one record of `size` bytes from the log budget."""
        left = self.log_left - size - LOG_RECORD_BYTES
        if left < 0:
            self.end_budget("log", self.limits.log_bytes, "bytes")
        self.log_left = left

    def leave(self, effect: Effect, size: int) -> None:
        """Add an effect of `size` bytes that leaves with the commit, within the budgets."""
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
        """End the run; the first reason stays."""
        self.ended = self.ended or reason
        raise RunEndedError(self.ended)

    def check_deadline(self) -> None:
        """End the run if its time is over. For what takes long between two calls of the guest:
        a guest is interrupted where it runs itself, and by a thread that needs the
        interpreter's lock."""
        if time.monotonic() > self.ends_at:
            self.end_deadline()

    def end_deadline(self) -> NoReturn:
        """End the run because its time is over."""
        self.end(self.deadline_text)

    def end_calls(self) -> NoReturn:
        """End the run because it called the host too often."""
        self.end_budget("host call", self.limits.host_calls, "calls")

    def alloc_missing(self, exported: bool) -> GuestError:
        """Why `alloc` cannot be called now."""
        text = "called from within alloc" if exported else "the module exports no alloc"
        return GuestError(text, COPY_TO_GUEST_FAILED)

    def alloc_failed(self, reason: str) -> GuestError:
        """What a trap in `alloc` means: the run's end if it was that, else a failed copy."""
        if self.ended:
            raise RunEndedError(self.ended)
        return GuestError(f"alloc: {reason}", COPY_TO_GUEST_FAILED)

    @property
    def deadline_text(self) -> str:
        """The reason given for a run that took too long."""
        return f"{DEADLINE} {self.limits.deadline_ms} ms exceeded"

    def out_of_memory(self, end: int, size: int, code: int | None) -> GuestError:
        """A range of guest memory that is not all there."""
        return GuestError(f"address {end} is beyond the memory of {size} bytes", code)

    def absorb(self, error: BaseException, signature: Signature) -> int | None:
        """Deal with what a host function raised.

        Returns:
            The code with which the guest goes on, or None when it is to be trapped, and
            `ended` says why.
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
        if isinstance(error, NodeError) or not isinstance(error, Exception):
            self.pending = self.pending or error
        else:
            log.error("host function %s failed", signature.label, exc_info=error)
        self.ended = self.ended or f"host function {signature.label} failed"
        return None

    def raise_pending(self) -> None:
        """Let the node's own exception out, once the guest is gone."""
        pending, self.pending = self.pending, None
        if pending is not None:
            raise pending


def trap_reason(message: str) -> str:
    """The last line of wasmtime's message: the cause, without the guest's backtrace.

    Causes are numbered when there are several: `1: wasm trap: out of bounds ...`.
    """
    lines = message.strip().splitlines()
    return _NUMBER.sub("", lines[-1].strip()) if lines else "trap"


def exit_text(status: int) -> str:
    """The reason given for a guest that called `proc_exit`, with whatever status."""
    return f"exit status {status}"
