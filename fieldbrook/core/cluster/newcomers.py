"""Hosts that are there again, and whose engines have to catch up before projects move to them."""

from __future__ import annotations

from collections.abc import Mapping


class Newcomers:
    """The hosts that have come since others were ready, and are not ready themselves.

    A project that moves to such a host waits there until its engine reaches the streams, although
    the host that runs the project now could go on. Hosts that start together are no newcomers:
    none of them is ready, and somebody has to begin.
    """

    def __init__(self) -> None:
        self._there: frozenset[str] = frozenset()
        self._waiting: frozenset[str] = frozenset()

    def look(self, ready: Mapping[str, bool]) -> frozenset[str]:
        """Return the hosts to which no project should move now.

        Args:
            ready: whether each host that is there is ready, this one included; empty while this
                host sees no majority, so that it is a newcomer itself afterwards.
        """
        unready = {name for name, is_ready in ready.items() if not is_ready}
        came = ready.keys() - self._there if len(unready) < len(ready) else set()
        self._waiting = frozenset(unready & (self._waiting | came))
        self._there = frozenset(ready)
        return self._waiting
