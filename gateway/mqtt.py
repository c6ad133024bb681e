"""The MQTT gateway: messages on a project's topic are events, acknowledged when committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from fieldbrook import __version__, keys
from fieldbrook.actors import messages as m
from fieldbrook.actors.base import Address
from fieldbrook.actors.frames import WireEvent
from fieldbrook.errors import StoreError, TooManyRequestsError, UnavailableError
from fieldbrook.gateway.admission import Admission
from fieldbrook.gateway.api_calls import ApiCaller
from fieldbrook.gateway.base import GatewayActor
from fieldbrook.gateway.events import EventReply, EventService
from fieldbrook.gateway.link import Settle
from fieldbrook.gateway.outbox import OutboxTaker
from fieldbrook.gateway.sources import Delivery, Source, make_publisher, make_source
from fieldbrook.storage.registry import RegistryReader

if TYPE_CHECKING:
    from fieldbrook.gateway.publisher import Publisher

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
        self._publisher: Publisher | None = None
        api = ApiCaller(self._submit_result, settings.api_host_list)
        self._outbox = OutboxTaker(self._publish, api)
        self._source = make_source(settings)
        self._source.set_topics(self._projects())
        await self._source.start(self._on_delivery)
        self._registry_watch = self.loop.create_task(self._watch_registry())

    def receive(self, message: object, sender: Address) -> None:
        """See `GatewayActor`; this one also delivers what handlers send."""
        match message:
            case m.TakeOutbox(project_id=project_id, path=path):
                self._in_loop(lambda: self._outbox.take(project_id, path))
            case _:
                super().receive(message, sender)

    def _publish(self, topic: str, payload: bytes) -> Awaitable[None]:
        if self._publisher is None:
            self._publisher = make_publisher(self.settings)
        return self._publisher.publish(topic, payload)

    def _submit_result(self, project_id: int, event: WireEvent, settle: Settle) -> None:
        self.links[project_id].submit(event, settle, resend=True)

    async def refuse_more(self) -> None:
        """Take no more messages: they stay the broker's and come again."""
        self._closing = True
        self._registry_watch.cancel()

    async def close(self) -> None:
        """Send the last acknowledgements and leave the broker."""
        self._outbox.stop()
        if self._publisher is not None:
            await asyncio.to_thread(self._publisher.close)
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
