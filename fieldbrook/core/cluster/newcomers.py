"""Newcomers: hosts that are up again, and must catch up before they own projects."""

from __future__ import annotations

from collections.abc import Mapping


class Newcomers:
    """Hosts that were started after other hosts were ready, and are not ready yet.

    A project that moved to such a host would wait until the replication engine of the host has
    reached the streams, although the present owner host could continue to run it. Hosts that start
    together are no newcomers: none of them is ready, and some host must own the projects.
    """

    def __init__(self) -> None:
        self._there: frozenset[str] = frozenset()
        self._waiting: frozenset[str] = frozenset()

    def update(self, ready: Mapping[str, bool]) -> frozenset[str]:
        """Return the hosts to which no project should move now.

        Args:
            ready: for each host that is up, including this one, whether it is ready. Empty while
                this host sees no majority, so that it becomes a newcomer itself afterwards.
        """
        unready = {name for name, is_ready in ready.items() if not is_ready}
        came = ready.keys() - self._there if len(unready) < len(ready) else set()
        self._waiting = frozenset(unready & (self._waiting | came))
        self._there = frozenset(ready)
        return self._waiting
