"""Collectors: metrics that are read from the stores and the chains at each scrape."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from fieldbrook.core import clock
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import CONTRACT_LOG
from fieldbrook.core.settings import Chain, Settings
from fieldbrook.gateway.metrics.prometheus import Measured, Sizes
from fieldbrook.observability.metrics import COUNTER, GAUGE
from fieldbrook.storage.chain.store import ChainStoreReader
from fieldbrook.storage.chain.transactions import IN_BLOCK, INIT, LEASED, PENDING
from fieldbrook.storage.registry.service import RegistryReader

_UNDER_WAY = (LEASED, INIT, PENDING, IN_BLOCK)


class Measure:
    """Reads all collected metrics.

    Metrics that cannot be read are left out, because failures belong to the health condition.
    """

    def __init__(
        self,
        settings: Settings,
        reader: RegistryReader,
        chain_reader: Callable[[int], ChainStoreReader | None],
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._chain_reader = chain_reader
        self._sizes = Sizes(settings.data)
        self._started = time.time()

    def __call__(self) -> Sequence[Measured]:
        """Read the metrics. Call it in the gateway's loop; it takes milliseconds."""
        found: list[Measured] = [self._stores()]
        with contextlib.suppress(StoreError):
            found += [*self._registry(), *self._accounts()]
        for chain in self._settings.chains:
            with contextlib.suppress(StoreError):
                store = self._chain_reader(chain.id)
                if store is not None:
                    found += self._chain(chain, store)
        return _merged(found)

    def _stores(self) -> Measured:
        sizes = self._sizes.now()
        return Measured(
            "fieldbrook_store_bytes",
            "What folders of the data folder take on the disk.",
            GAUGE,
            ("store",),
            [((name,), size) for name, size in sizes.items()],
        )

    def _registry(self) -> Iterator[Measured]:
        counts = self._reader.counts()
        yield Measured(
            "fieldbrook_registry_rows",
            "How many there are of what the registry knows.",
            GAUGE,
            ("table",),
            [((name,), count) for name, count in counts.items()],
        )
        used, limit = self._reader.used_bytes, self._settings.registry_map_bytes
        text = "The most that the registry has used of registry_map_bytes."
        yield Measured("fieldbrook_registry_used_bytes", text, GAUGE, (), [((), used)])
        yield Measured(
            "fieldbrook_registry_limit_bytes", "registry_map_bytes.", GAUGE, (), [((), limit)]
        )

    def _accounts(self) -> Iterator[Measured]:
        over = sum(account.over_storage for account in self._reader.accounts())
        text = "Accounts with more bytes stored than their quota: events are refused."
        yield Measured("fieldbrook_accounts_over_storage", text, GAUGE, (), [((), over)])

    def _chain(self, chain: Chain, store: ChainStoreReader) -> Iterator[Measured]:
        label = str(chain.id)
        state = store.state()

        def one(name: str, text: str, value: float, kind: str = GAUGE) -> Measured:
            return Measured(f"fieldbrook_chain_{name}", text, kind, ("chain",), [((label,), value)])

        yield one("head_block", "The newest block that was seen.", state.head)
        age_s = max(0, clock.now_ms() - state.head_ms) / 1000 if state.head_ms else 0.0
        yield one("head_age_seconds", "How long ago it was seen.", age_s)
        text = "Times that blocks vanished."
        yield one("reorganisations", text, state.reorganisations, COUNTER)
        yield one("deepest_blocks", "The most blocks that vanished at once.", state.deepest)
        yield one("look_failures", "Looks at the chain that failed.", state.failures, COUNTER)
        yield from self._endpoints(label, store)
        yield from self._monitors(chain, store, state.head)
        yield from _transactions(label, store)

    def _endpoints(self, label: str, store: ChainStoreReader) -> Iterator[Measured]:
        # By number: an endpoint's address is not for every reader of the metrics.
        endpoints = [(str(at), e) for at, e in enumerate(store.state().endpoints)]
        labels = ("chain", "endpoint")
        yield Measured(
            "fieldbrook_chain_endpoint_failures",
            "Requests that an endpoint failed at; endpoints are numbered as in the settings.",
            COUNTER,
            labels,
            [((label, at), e.failures) for at, e in endpoints],
        )
        yield Measured(
            "fieldbrook_chain_endpoint_usable",
            "0 while an endpoint rests after a failure or lies behind others.",
            GAUGE,
            labels,
            [((label, at), float(not e.reason)) for at, e in endpoints],
        )
        yield Measured(
            "fieldbrook_chain_endpoint_head_block",
            "The newest block that an endpoint knew.",
            GAUGE,
            labels,
            [((label, at), e.head) for at, e in endpoints],
        )

    def _monitors(self, chain: Chain, store: ChainStoreReader, head: int) -> Iterator[Measured]:
        cursors = store.cursors()
        running = [
            monitor
            for monitor in self._reader.monitors_of_chain(chain.id)
            if not (monitor.finished or monitor.paused)
        ]
        stands = [
            cursors[m.monitor_id]
            for m in running
            if m.kind == CONTRACT_LOG and m.monitor_id in cursors
        ]
        safe = head - chain.confirmations
        label = (str(chain.id),)
        yield Measured(
            "fieldbrook_chain_monitors",
            "Monitors that run.",
            GAUGE,
            ("chain",),
            [(label, len(running))],
        )
        yield Measured(
            "fieldbrook_chain_monitors_standing",
            "Of those, those that cannot go on.",
            GAUGE,
            ("chain",),
            [
                (
                    label,
                    sum(
                        bool(cursors[m.monitor_id].error)
                        for m in running
                        if m.monitor_id in cursors
                    ),
                )
            ],
        )
        yield Measured(
            "fieldbrook_chain_monitor_lag_blocks",
            "How many confirmed blocks the last of the log monitors has yet to read.",
            GAUGE,
            ("chain",),
            [(label, max((max(0, safe - cursor.block) for cursor in stands), default=0))],
        )


def _transactions(label: str, store: ChainStoreReader) -> Iterator[Measured]:
    rows = [row for row in store.transactions.read_unfinished() if row.state in _UNDER_WAY]
    states = Counter(row.state for row in rows)
    yield Measured(
        "fieldbrook_transactions",
        "Transactions that have not come to their end, by state.",
        GAUGE,
        ("chain", "state"),
        [((label, state.lower()), states[state]) for state in _UNDER_WAY],
    )
    oldest = min((row.created_at for row in rows if row.state != LEASED), default=0)
    age_s = max(0, clock.now_ms() - oldest) / 1000 if oldest else 0.0
    yield Measured(
        "fieldbrook_transactions_oldest_seconds",
        "How long ago the oldest of them was made.",
        GAUGE,
        ("chain",),
        [((label,), age_s)],
    )
    spent = list(store.transactions.all_spending().values())
    yield Measured(
        "fieldbrook_transactions_finished",
        "Transactions that have come to their end, since the store was made.",
        COUNTER,
        ("chain", "outcome"),
        [
            ((label, "confirmed"), sum(each.confirmed for each in spent)),
            ((label, "failed"), sum(each.failed for each in spent)),
        ],
    )
    yield Measured(
        "fieldbrook_transactions_gas",
        "Gas that they have used.",
        COUNTER,
        ("chain",),
        [((label,), sum(each.gas_used for each in spent))],
    )
    yield Measured(
        "fieldbrook_transactions_fees_wei",
        "Fees that they have paid, in wei.",
        COUNTER,
        ("chain",),
        [((label,), float(sum(int(each.fees_wei) for each in spent)))],
    )


def _merged(found: Sequence[Measured]) -> list[Measured]:
    """Merge metrics of the same name, such as those of several chains, into one."""
    merged: dict[str, Measured] = {}
    for one in found:
        known = merged.get(one.name)
        merged[one.name] = (
            one if known is None else one._replace(samples=[*known.samples, *one.samples])
        )
    return list(merged.values())
