"""The process of one chain: a gateway whose events come from that chain.

The process owns the connections to the chain's endpoints and the chain's store. Two services,
one for monitors and one for transactions, share them in one event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import Address
from fieldbrook.actors.wire import WireEvent
from fieldbrook.chain.monitors.service import MonitorService
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.base import GatewayActor
from fieldbrook.gateway.links.pending_event import Settle
from fieldbrook.gateway.registry_client import SocketRegistryClient
from fieldbrook.security import node_secrets
from fieldbrook.security.operator_keys import Vault
from fieldbrook.storage.chain.store import ChainStore, chain_path
from fieldbrook.storage.chain.transactions import TransactionWriter
from fieldbrook.storage.project.outbox import is_parked
from fieldbrook.storage.registry.service import RegistryReader

if TYPE_CHECKING:
    # These imports take 0.4 s and 20 MB, so only this process makes them, when it starts.
    from fieldbrook.chain.rpc.client import ChainClient
    from fieldbrook.chain.transactions.requests import Transactions

log = logging.getLogger(__name__)

_LAG_S = 30  # how far an endpoint in use may lag behind another one
_LAG_BLOCKS_LEAST = 5  # the same for chains with long block times


class Service(Protocol):
    """A service of a chain's process. All methods run in its event loop."""

    async def start(self) -> None:
        """Start the service. Slow work continues in tasks, so an unreachable chain is no error.

        Raises:
            NodeError: the service cannot run, e.g. because its tables cannot be opened.
        """
        ...

    async def stop(self) -> None:
        """Stop starting new work. Answers of projects to events in flight are still accepted."""
        ...

    def project_removed(self, project_id: int) -> None:
        """Drop all state of a project that was removed."""
        ...


class ChainGateway(GatewayActor):
    """The actor of one chain. It owns the settings, the client and the stores of its services."""

    chain: Chain
    client: ChainClient
    store: ChainStore
    reader: RegistryReader
    registry: SocketRegistryClient
    transactions: Transactions
    services: Sequence[Service] = ()

    async def open(self) -> None:
        """Open the stores and start the services."""
        from fieldbrook.chain.rpc.client import ChainClient

        chain_id = int(self.part.partition(":")[2])
        self.chain = next(chain for chain in self.settings.chains if chain.id == chain_id)
        self.reader = RegistryReader(self.settings.data / "registry")
        self.registry = SocketRegistryClient(self.run_dir / "registry")
        self.store = ChainStore(chain_path(self.settings.data / "chains", chain_id))
        lag_blocks = max(_LAG_BLOCKS_LEAST, _LAG_S * 1_000 // self.chain.poll_ms)
        self.client = ChainClient(chain_id, self.chain.urls, lag_blocks=lag_blocks)
        self.services = self.make_services()
        for service in self.services:
            await service.start()

    def make_services(self) -> list[Service]:
        """Make the services of this process."""
        return [MonitorService(self), self.make_transactions()]

    def submit(self, project_id: int, event: WireEvent, settle: Settle) -> None:
        """Send an event to a project.

        If the worker dies, the event is sent again; after repeated deaths it is sent alone in a
        frame. An event that was alone in flight at `DEAD_LETTER_AFTER_DEATHS` deaths becomes a dead
        letter and does not run again.
        """
        self.projects[project_id].submit(event, settle, resend=True)

    def make_transactions(self) -> Transactions:
        """Make the service that sends transactions."""
        from fieldbrook.chain.transactions.requests import Transactions

        secrets = self.settings.data / "secrets"
        self.transactions = Transactions(
            self.chain,
            self.client,
            TransactionWriter(self.store.environment),
            self.reader,
            Vault(node_secrets.load_or_create_key(secrets, "operator.key")),
            self.run_dir,
            self.submit,
            self.activate,
            lambda: is_parked(self.settings.data),
            self.health,
        )
        return self.transactions

    def receive(self, message: object, sender: Address) -> None:
        """See `GatewayActor`; this actor also delivers the outboxes of projects."""
        match message:
            case m.DeliverOutbox(project_id=project_id, path=path):
                self._in_loop(lambda: self.transactions.consume_outbox(project_id, path))
            case m.RouteTo(project_id=project_id, path=route):
                self._in_loop(lambda: self.transactions.set_route(project_id, route))
                super().receive(message, sender)
            case _:
                super().receive(message, sender)

    def registry_reader(self) -> RegistryReader:
        """See `GatewayActor`."""
        return self.reader

    async def refuse_more(self) -> None:
        """Stop the services."""
        for service in self.services:
            await service.stop()

    async def close(self) -> None:
        """Close the connections to the endpoints and the chain's store."""
        await self.client.close()
        self.store.close()

    def project_removed(self, project_id: int) -> None:
        """See `GatewayActor`."""
        super().project_removed(project_id)
        for service in self.services:
            service.project_removed(project_id)
