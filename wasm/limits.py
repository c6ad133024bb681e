"""What one handler run may use."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_BYTES = 65_536
DEADLINE = "deadline of"  # how the reason of a run that was ended at its deadline begins


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets of one run; going over one ends the run in a trap that names it.

    The exception is memory: `memory.grow` beyond it answers -1, as the guest expects.
    `deadline_ms` covers instantiation, `_initialize` and the handler together.
    `log_bytes` is counted as UTF-8 bytes of text plus 32 per record, `kv_bytes` as the
    keys and values that wait to be committed, `data_bytes` as what `ws_set_data` keeps,
    `effect_bytes` as the contents of messages, calls and metrics that leave with the commit.
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
