"""The clients' ledger: what was sent and acknowledged, and its comparison with the store."""

from __future__ import annotations

import bisect
import itertools
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field


@dataclass(slots=True)
class Entry:
    """One event. `named`: it has an event id, so that sending it again does not double it."""

    named: bool
    attempts: int = 0
    acknowledged: bool = False


@dataclass(slots=True)
class Verdict:
    """The results of the comparison; `lost`, `wrong` and `unknown` must be empty."""

    sent: int = 0
    resent: int = 0
    acknowledged: int = 0
    committed: int = 0
    parked: int = 0  # acknowledged as dead letters
    doubled: int = 0  # sent again without an event id, and committed more than once
    lost: list[str] = field(default_factory=list)  # acknowledged, but stored nowhere
    wrong: list[str] = field(default_factory=list)  # committed more often than any promise allows
    unknown: list[str] = field(default_factory=list)  # committed, but never sent

    def columns(self) -> dict[str, int]:
        """Return each value under its heading."""
        return {
            "sent": self.sent,
            "sent again": self.resent,
            "acknowledged": self.acknowledged,
            "committed": self.committed,
            "dead letters": self.parked,
            "lost": len(self.lost),
            "doubled, allowed": self.doubled,
            "doubled, wrong": len(self.wrong),
            "never sent": len(self.unknown),
        }

    @property
    def sound(self) -> bool:
        return not (self.lost or self.wrong or self.unknown)


class Ledger:
    """The record of all events; each is written by only one thread of the loads."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._changed = threading.Condition()
        self._newest: dict[str, float] = {}  # load: begin of its last acknowledged attempt
        self._times: list[float] = []  # of acknowledgements over HTTP, ascending
        self.refused: dict[str, int] = {}

    def sending(self, name: str, *, named: bool) -> float:
        """Record that an attempt begins; return the time in seconds of the monotonic clock."""
        with self._changed:
            self._entries.setdefault(name, Entry(named)).attempts += 1
        return time.monotonic()

    def acknowledged(self, load: str, name: str, began: float) -> None:
        with self._changed:
            self._entries[name].acknowledged = True
            self._newest[load] = began
            if not load.startswith("mqtt"):
                self._times.append(time.monotonic())
            self._changed.notify_all()

    def refuse(self, reason: str) -> None:
        """Count an attempt that was not acknowledged, by the text of the refusal."""
        with self._changed:
            self.refused[reason] = self.refused.get(reason, 0) + 1

    def wait_for_attempt(self, load: str, since: float, limit_s: float) -> bool:
        """Wait until an attempt that began after `since` is acknowledged; return whether that was
        in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._newest.get(load, 0.0) > since, limit_s)

    def silence(self, since: float) -> float:
        """Return the longest time in seconds without an acknowledgement over HTTP, from `since` to
        the last acknowledgement."""
        with self._changed:
            first = bisect.bisect_left(self._times, since)
            times = [since, *self._times[first:]]
        return max((later - sooner for sooner, later in itertools.pairwise(times)), default=0.0)

    def names_acknowledged(self) -> set[str]:
        with self._changed:
            return {name for name, entry in self._entries.items() if entry.acknowledged}

    def names_sent(self) -> set[str]:
        with self._changed:
            return set(self._entries)

    @property
    def count(self) -> int:
        """Return the number of acknowledged events."""
        return len(self.names_acknowledged())

    def compare(self, counts: Mapping[str, int], parked: Set[str]) -> Verdict:
        """Compare the record with the store. `counts`: how often the handler saw each event;
        `parked`: events in dead letters."""
        with self._changed:
            entries = dict(self._entries)
        verdict = Verdict(sent=len(entries), committed=len(counts))
        for name, entry in entries.items():
            judge(name, entry, counts.get(name, 0), name in parked, verdict)
        verdict.unknown = sorted(counts.keys() - entries.keys())
        return verdict


def judge(name: str, entry: Entry, count: int, is_parked: bool, verdict: Verdict) -> None:
    """Add one event to the verdict."""
    verdict.resent += entry.attempts > 1
    verdict.acknowledged += entry.acknowledged
    if count == 0 and entry.acknowledged:
        if is_parked:
            verdict.parked += 1
        else:
            verdict.lost.append(name)
    elif count > 1:
        if entry.named or count > entry.attempts:
            verdict.wrong.append(f"{name}: {count} times in {entry.attempts} attempts")
        else:
            verdict.doubled += 1


def table_of(columns: Mapping[str, object]) -> list[str]:
    """Return one row and its headings as lines of Markdown."""
    return [
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
        f"| {' | '.join(map(str, columns.values()))} |",
    ]
