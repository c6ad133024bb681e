"""Collectors: metrics that are read from the stores and the chains at each scrape."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from fieldbrook.core import clock
from fieldbrook.core.cluster.facts import Facts
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import CONTRACT_LOG
from fieldbrook.core.settings import Chain, Settings
from fieldbrook.gateway.metrics.hosts import host_metrics
from fieldbrook.gateway.metrics.prometheus import Collected, FolderSizes
from fieldbrook.observability.metrics import COUNTER, GAUGE
from fieldbrook.storage.chain.store import ChainStoreReader
from fieldbrook.storage.chain.transactions import IN_BLOCK, INIT, LEASED, PENDING
from fieldbrook.storage.registry.service import RegistryReader

_UNFINISHED = (LEASED, INIT, PENDING, IN_BLOCK)


class Collector:
    """Reads all metrics that are not counted continuously.

    Metrics that cannot be read are left out, because the health conditions report the failure.
    """

    def __init__(
        self,
        settings: Settings,
        reader: RegistryReader,
        chain_reader: Callable[[int], ChainStoreReader | None],
        cluster: Callable[[], Facts | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._chain_reader = chain_reader
        self._cluster = cluster
        self._sizes = FolderSizes(settings.data)

    def __call__(self) -> Sequence[Collected]:
        """Read the metrics. Call it in the gateway's loop; it takes milliseconds."""
        sizes = [((name,), float(size)) for name, size in self._sizes.now().items()]
        text = "Disk space of the folders in the data folder."
        found = [Collected("fieldbrook_store_bytes", text, GAUGE, ("store",), sizes)]
        with contextlib.suppress(StoreError):
            found += list(self._registry())
        found += host_metrics(self._cluster(), time.monotonic())
        for chain in self._settings.chains:
            with contextlib.suppress(StoreError):
                store = self._chain_reader(chain.id)
                if store is not None:
                    found += self._chain(chain, store)
        return _merged(found)

    def _registry(self) -> Iterator[Collected]:
        rows = [((name,), float(count)) for name, count in self._reader.counts().items()]
        text = "Rows of the registry's tables."
        yield Collected("fieldbrook_registry_rows", text, GAUGE, ("table",), rows)

        def one(name: str, text: str, value: float) -> Collected:
            return Collected(f"fieldbrook_{name}", text, GAUGE, (), [((), value)])

        text = "Peak size of the registry; registry_map_bytes is the limit."
        yield one("registry_used_bytes", text, self._reader.used_bytes)
        limit = self._settings.registry_map_bytes
        yield one("registry_limit_bytes", "Value of the setting registry_map_bytes.", limit)
        over = sum(account.over_storage for account in self._reader.accounts())
        text = "Accounts that exceed their storage quota. Events for their projects are refused."
        yield one("accounts_over_storage", text, over)

    def _chain(self, chain: Chain, store: ChainStoreReader) -> Iterator[Collected]:
        label = str(chain.id)
        state = store.state()
        age_s = _age_s(state.head_ms)
        for name, text, kind, value in (
            ("head_block", "Newest known block.", GAUGE, state.head),
            ("head_age_seconds", "Time since the newest block became known.", GAUGE, age_s),
            ("reorganisations", "Chain reorganisations.", COUNTER, state.reorganisations),
            (
                "deepest_reorganisation_blocks",
                "Blocks that the deepest chain reorganisation removed.",
                GAUGE,
                state.deepest,
            ),
            ("poll_failures", "Failed polls of the chain.", COUNTER, state.failures),
            *self._monitors(chain, store, state.confirmed),
        ):
            yield Collected(f"fieldbrook_chain_{name}", text, kind, ("chain",), [((label,), value)])
        yield from _endpoints(label, store)
        yield from _transactions(label, store)

    def _monitors(
        self, chain: Chain, store: ChainStoreReader, confirmed: int
    ) -> Iterator[tuple[str, str, str, float]]:
        cursors = store.cursors()
        running = [
            monitor
            for monitor in self._reader.monitors_of_chain(chain.id)
            if not (monitor.finished or monitor.paused)
        ]
        known = [(m, cursors[m.monitor_id]) for m in running if m.monitor_id in cursors]
        failing = sum(bool(cursor.error) for _, cursor in known)
        lags = [confirmed - cursor.block for m, cursor in known if m.kind == CONTRACT_LOG]
        yield "monitors", "Active monitors.", GAUGE, len(running)
        yield "monitors_failing", "Active monitors that cannot continue.", GAUGE, failing
        text = "Confirmed blocks that the slowest log monitor has yet to process."
        yield "monitor_lag_blocks", text, GAUGE, max([0, *lags])


def _endpoints(label: str, store: ChainStoreReader) -> Iterator[Collected]:
    # Endpoints are numbered, because not every reader of the metrics may see their addresses.
    endpoints = [((label, str(n)), e) for n, e in enumerate(store.state().endpoints)]
    for name, text, kind, values in (
        (
            "failures",
            "Failed requests to an endpoint. Endpoints are numbered as in the settings.",
            COUNTER,
            [float(e.failures) for _, e in endpoints],
        ),
        (
            "usable",
            "0 while an endpoint is not used because it failed or lags behind others, else 1.",
            GAUGE,
            [float(not e.reason) for _, e in endpoints],
        ),
        (
            "head_block",
            "Newest block of an endpoint.",
            GAUGE,
            [float(e.head) for _, e in endpoints],
        ),
    ):
        samples = [(labels, value) for (labels, _), value in zip(endpoints, values, strict=True)]
        full_name = f"fieldbrook_chain_endpoint_{name}"
        yield Collected(full_name, text, kind, ("chain", "endpoint"), samples)


def _transactions(label: str, store: ChainStoreReader) -> Iterator[Collected]:
    rows = [row for row in store.transactions.read_unfinished() if row.state in _UNFINISHED]
    states = Counter(row.state for row in rows)
    yield Collected(
        "fieldbrook_transactions",
        "Unfinished transactions by state.",
        GAUGE,
        ("chain", "state"),
        [((label, state.lower()), states[state]) for state in _UNFINISHED],
    )
    oldest_ms = min((row.created_at for row in rows if row.state != LEASED), default=0)
    spent = list(store.transactions.all_spending().values())
    yield Collected(
        "fieldbrook_transactions_finished",
        "Finished transactions by outcome, since the chain's store was created.",
        COUNTER,
        ("chain", "outcome"),
        [
            ((label, "confirmed"), sum(each.confirmed for each in spent)),
            ((label, "failed"), sum(each.failed for each in spent)),
        ],
    )
    fees_wei = float(sum(int(each.fees_wei) for each in spent))
    for name, text, kind, value in (
        ("oldest_seconds", "Age of the oldest unfinished transaction.", GAUGE, _age_s(oldest_ms)),
        ("gas", "Gas used by finished transactions.", COUNTER, sum(s.gas_used for s in spent)),
        ("fees_wei", "Fees paid for finished transactions, in wei.", COUNTER, fees_wei),
    ):
        samples = [((label,), float(value))]
        yield Collected(f"fieldbrook_transactions_{name}", text, kind, ("chain",), samples)


def _age_s(time_ms: int) -> float:
    return max(0, clock.now_ms() - time_ms) / 1000 if time_ms else 0.0


def _merged(found: Sequence[Collected]) -> list[Collected]:
    """Merge metrics of the same name, such as those of several chains, into one."""
    merged: dict[str, Collected] = {}
    for one in found:
        known = merged.get(one.name)
        merged[one.name] = (
            one if known is None else one._replace(samples=[*known.samples, *one.samples])
        )
    return list(merged.values())
