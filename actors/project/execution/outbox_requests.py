"""Outbox requests: hands outbox entries to the gateways and chains that deliver them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fieldbrook.actors.project.chains import HELLO, ProjectChains
from fieldbrook.actors.store_watch import StoreWatch
from fieldbrook.actors.wire import AFTER, CONSUMER, DONE, LIMIT, NOT_HERE, REFUSED, Requester
from fieldbrook.core.errors import StoreError
from fieldbrook.observability import fault_points
from fieldbrook.storage.project.outbox import OutboxEntry
from fieldbrook.storage.project.store import ProjectStore

log = logging.getLogger(__name__)

_ENTRIES_AT_MOST = 256  # in one answer


class OutboxRequests:
    """Answers requests for outbox entries, and announces entries that wait for delivery.

    Args:
        project_id: the project.
        store: the project's store, with the outbox.
        watch: where failures of the store are reported.
        chains: the connection to the chains; None when the node has none.
        notify: called with the name of a consumer when entries wait for it.
    """

    def __init__(
        self,
        project_id: int,
        store: ProjectStore,
        watch: StoreWatch,
        chains: ProjectChains | None,
        notify: Callable[[str], None],
    ) -> None:
        self._project_id = project_id
        self._store, self._outbox = store, store.outbox
        self._watch = watch
        self._chains = chains
        self._notify = notify
        # Consumers that were notified of entries, and the connection of each one's last request.
        self._announced: dict[str, Requester | None] = {}
        # Consumers that got no entries because the store failed. They wait for a notification.
        self._disappointed: set[str] = set()

    def announce(self) -> None:
        """Notify the supervisor, once per consumer, that outbox entries wait for delivery.

        A consumer whose connection is closed may have missed entries, and is notified again.
        """
        if not len(self._outbox):
            return
        announced = self._announced
        if self._disappointed and not self._watch.is_failing:
            for consumer in self._disappointed:
                announced.pop(consumer, None)
            self._disappointed.clear()
        for consumer in self._outbox.consumers:
            connection = announced.get(consumer)
            if consumer not in announced or (connection is not None and connection.closed):
                announced[consumer] = None
                self._notify(consumer)

    def answer(self, connection: Requester, request: dict[str, Any]) -> None:
        """Answer a request for outbox entries, after removing those that it reports as done.

        When no entry for a consumer is left, it is notified again of the next entry. When the store
        fails, the answer is `NOT_HERE`: the consumer reports the same entries again later, after
        the next notification.
        """
        if HELLO in request:
            self._answer_hello(connection, request[HELLO])
            return
        outbox, consumer = self._outbox, request.get(CONSUMER, "")
        delivered = request.get(DONE, ())
        try:
            if delivered:
                fault_points.hit("project.before_outbox_removal")
            self._store.remove_sent(delivered, request.get(REFUSED, {}))
            if delivered:
                fault_points.hit("project.outbox_entries_removed")
            entries = outbox.first(min(request[LIMIT], _ENTRIES_AT_MOST), request[AFTER], consumer)
        except StoreError as error:
            self._watch.failed(error)
            self._disappointed.add(consumer)
            connection.answer(NOT_HERE)
            return
        for known in self._announced.keys() - outbox.consumers:
            del self._announced[known]
        if consumer in self._announced:
            self._announced[consumer] = connection
        if entries:
            fault_points.hit("project.before_outbox_send")
        connection.answer([_on_the_wire(number, entry) for number, entry in entries])

    def _answer_hello(self, connection: Requester, part: str) -> None:
        """Answer a chain's question which nonce leases are in use."""
        try:
            connection.answer(self._chains.hello(part) if self._chains else None)
        except StoreError as error:
            log.error("project %d: its outbox cannot be read: %s", self._project_id, error)
            connection.answer(None)


def _on_the_wire(number: int, entry: OutboxEntry) -> tuple[Any, ...]:
    """An entry as it is sent; see `wire.LIMIT`."""
    items = number, entry.kind, entry.target, entry.body, entry.event_id
    return (*items, entry.context) if entry.context else items
