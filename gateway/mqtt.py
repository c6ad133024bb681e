"""The MQTT gateway: messages on a project's topic are events, acknowledged when committed."""

from __future__ import annotations

import asyncio
import logging

from fieldbrook import __version__, keys
from fieldbrook.errors import StoreError, TooManyRequestsError, UnavailableError
from fieldbrook.gateway.admission import Admission
from fieldbrook.gateway.base import GatewayActor
from fieldbrook.gateway.events import EventReply, EventService
from fieldbrook.gateway.sources import Delivery, Source, make_source
from fieldbrook.storage.registry import RegistryReader

log = logging.getLogger(__name__)

_REGISTRY_POLL_S = 0.05
_RETRY_S = 1.0
_REFUSALS_LOGGED_PER_S = 10
TEMPORARY = (TooManyRequestsError, UnavailableError, StoreError)


class MqttGateway(GatewayActor):
    """Owns the connection to the broker.

    A message whose event was handled, or can never be, is acknowledged; one that the node
    could not take now (overload, a full disk) is tried again and stays the broker's.
    """

    _source: Source

    async def open(self) -> None:
        """Open the registry and start the source."""
        settings = self.settings
        token_key = keys.load_or_create_key(settings.data / "secrets", "token.key")
        self._reader = RegistryReader(settings.data / "registry")
        self._events = EventService(
            Admission(self._reader, token_key), self.links, __version__, settings.body_limit_bytes
        )
        self._refusals = 0
        self._closing = False
        self._source = make_source(settings)
        self._source.set_topics(self._projects())
        await self._source.start(self._on_delivery)
        self._registry_watch = self.loop.create_task(self._watch_registry())

    async def refuse_more(self) -> None:
        """Take no more messages: they stay the broker's and come again."""
        self._closing = True
        self._registry_watch.cancel()

    async def close(self) -> None:
        """Send the last acknowledgements and leave the broker."""
        await self._source.stop()

    def _projects(self) -> frozenset[str]:
        return frozenset(project.name for project in self._reader.projects())

    async def _watch_registry(self) -> None:
        known = -1
        ticks = 0
        while True:
            try:
                version = self._reader.version()
                if version != known:
                    self._source.set_topics(self._projects())
                    known = version
            except StoreError as error:  # topics stay as they are until it can be read again
                log.error("the registry cannot be read: %s", error)
                await asyncio.sleep(_RETRY_S)
            ticks += 1
            if ticks % int(1 / _REGISTRY_POLL_S) == 0:
                self._report_refusals()
            await asyncio.sleep(_REGISTRY_POLL_S)

    def _on_delivery(self, delivery: Delivery) -> None:
        if self._closing:
            return
        project_name, slash, _ = delivery.topic.partition("/")
        if slash:
            self._refused(delivery, "only messages on a project's own topic are events")
            delivery.ack()
            return
        self._events.submit(
            project_name,
            delivery.payload,
            lambda reply: self._answered(delivery, reply),
            resend=True,
        )

    def _answered(self, delivery: Delivery, reply: EventReply) -> None:
        if isinstance(reply.error, TEMPORARY):
            self.loop.call_later(_RETRY_S, self._on_delivery, delivery)
            return
        if reply.status != 201:
            self._refused(delivery, reply.body.decode("utf-8", "replace").strip())
        delivery.ack()

    def _refused(self, delivery: Delivery, reason: str) -> None:
        """A device cannot be told over MQTT: the log is where its owner looks. One that
        keeps sending such messages must not fill it."""
        self._refusals += 1
        if self._refusals <= _REFUSALS_LOGGED_PER_S:
            log.warning("message on %s refused: %s", delivery.topic[:128], reason[:512])

    def _report_refusals(self) -> None:
        if self._refusals > _REFUSALS_LOGGED_PER_S:
            hidden = self._refusals - _REFUSALS_LOGGED_PER_S
            log.warning("%d more messages were refused in the last second", hidden)
        self._refusals = 0
