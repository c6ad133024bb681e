"""The clients of all projects to which one gateway process sends events."""

from __future__ import annotations

import asyncio

from fieldbrook.gateway.links.fair_queue import GATEWAY_BYTES
from fieldbrook.gateway.links.project_client import ProjectClient
from fieldbrook.gateway.links.route import ProjectActivator
from fieldbrook.gateway.links.worker_link import WorkerLinks
from fieldbrook.gateway.memory_budget import MemoryBudget
from fieldbrook.observability import metrics


class ProjectClients:
    """The clients of one gateway process, by project, and their links."""

    def __init__(self, activator: ProjectActivator, loop: asyncio.AbstractEventLoop) -> None:
        self._activator = activator
        self._loop = loop
        self._links = WorkerLinks(loop)
        self._budget = MemoryBudget(GATEWAY_BYTES)
        self._clients: dict[int, ProjectClient] = {}

    def __getitem__(self, project_id: int) -> ProjectClient:
        client = self._clients.get(project_id)
        if client is None:
            client = self._clients[project_id] = ProjectClient(
                project_id, self._activator, self._loop, self._links, self._budget
            )
        return client

    @property
    def idle(self) -> bool:
        """Whether all clients are idle."""
        return all(client.idle for client in self._clients.values())

    @property
    def routed(self) -> frozenset[int]:
        """The ids of the projects whose route the supervisor has reported."""
        return frozenset(n for n, client in self._clients.items() if client.routed)

    def expire(self) -> None:
        """Settle overdue events, and remove unused clients and links.

        The gateway calls this about once a second.
        """
        for project_id, client in list(self._clients.items()):
            client.expire()
            if client.idle and client.disconnected:
                del self._clients[project_id]
        self._links.close_idle()

    def close(self) -> None:
        """End all links."""
        self._links.close()

    def measure(self) -> None:
        """Update the queue metrics."""
        clients = self._clients.values()
        metrics.put(metrics.QUEUE_EVENTS, sum(client.waiting for client in clients))
        metrics.put(metrics.QUEUE_BYTES, self._budget.used)
        metrics.put(metrics.EVENTS_IN_FLIGHT, sum(client.unanswered for client in clients))
