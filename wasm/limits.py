"""Limits of one handler run."""

from __future__ import annotations

import msgspec

PAGE_BYTES = 65_536
DEADLINE = "deadline of"  # first words of the reason when a run ends at its deadline


class Limits(msgspec.Struct, frozen=True):
    """Budgets of one run. A run that exceeds one ends in a trap that names the budget.

    The exception is memory: `memory.grow` beyond the limit returns -1, as the guest expects.

    Attributes:
        deadline_ms: time for instantiation, `_initialize` and the handler together.
        memory_bytes: the guest's memory, in whole pages.
        host_calls: calls of host functions.
        log_bytes: UTF-8 bytes of log text plus 32 per record.
        kv_bytes: keys and values that wait for the commit.
        data_bytes: data stored by `ws_set_data`.
        effects: messages, calls, metrics and transactions.
        effect_bytes: the contents of these effects.
    """

    deadline_ms: int = 5000
    memory_bytes: int = 64 << 20
    host_calls: int = 100_000
    log_bytes: int = 256 << 10
    kv_bytes: int = 8 << 20
    data_bytes: int = 8 << 20
    effects: int = 256
    effect_bytes: int = 4 << 20

    @property
    def memory_pages(self) -> int:
        """Whole WebAssembly pages (64 KiB) within `memory_bytes`."""
        return self.memory_bytes // PAGE_BYTES
