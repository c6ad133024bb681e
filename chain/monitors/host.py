"""The interface of a chain's process that its monitors need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fieldbrook.actors.wire import WireEvent
from fieldbrook.core.settings import Chain
from fieldbrook.observability.health import ProcessHealth
from fieldbrook.storage.chain.store import ChainStore
from fieldbrook.storage.registry.service import RegistryClient, RegistryReader

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.client import ChainClient


class Host(Protocol):
    """The part of `chain.process.ChainGateway` that the service uses."""

    @property
    def chain(self) -> Chain:
        """The settings of the chain."""
        ...

    @property
    def client(self) -> ChainClient:
        """The client of the chain's endpoints."""
        ...

    @property
    def store(self) -> ChainStore:
        """The store of the chain."""
        ...

    @property
    def reader(self) -> RegistryReader:
        """Reads the monitors in the registry."""
        ...

    @property
    def registry(self) -> RegistryClient:
        """Sends commands to the registry."""
        ...

    @property
    def health(self) -> ProcessHealth:
        """Receives health conditions."""
        ...

    def submit(self, project_id: int, event: WireEvent, settle: Any) -> None:
        """Send an event to a project."""
