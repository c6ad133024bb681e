"""Checks the logins of open connections: a login may end, or its rights may change."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fieldbrook.core.errors import StoreError
from fieldbrook.gateway.base import essential
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.protocol.topics import parse_shared
from fieldbrook.gateway.mqtt.sessions.access import LOGIN_ENDED
from fieldbrook.gateway.mqtt.sessions.session import Session
from fieldbrook.system.loop_share import LoopShare

if TYPE_CHECKING:
    from fieldbrook.gateway.mqtt.listener.server import MqttServer

log = logging.getLogger(__name__)

_PIECE_S = 0.01
_RETRY_S = 1.0


class Logins:
    """Checks the logins of open connections after each change of the registry."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server
        self._share = LoopShare()
        self._changes = self._checked = 0
        self._check: asyncio.Task[None] | None = None

    def registry_changed(self) -> None:
        """Check all logins soon. If the registry changes meanwhile, all are checked once more."""
        self._changes += 1
        if self._check is None or self._check.done():
            self._check = essential(self._server.loop.create_task(self._check_until_current()))

    def close(self) -> None:
        """End the check."""
        if self._check is not None:
            self._check.cancel()

    async def _check_until_current(self) -> None:
        while self._checked != self._changes:
            changes = self._changes
            try:
                async with self._share:
                    await self._check_all()
            except StoreError as error:
                log.error("cannot check the logins of connected clients: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                self._checked = changes

    async def _check_all(self) -> None:
        for connection in list(self._server.connections):
            session = connection.session
            if session is not None and session.wire is connection:
                if not self.renew(session):
                    connection.end(ReasonCode.NOT_AUTHORIZED, LOGIN_ENDED)
                await self._share.rest(after_s=_PIECE_S)

    def renew(self, session: Session) -> bool:
        """Update the rights of a session's client; return False if its login has ended.

        Raises:
            StoreError: the registry cannot be read.
        """
        principal = self._server.access.renewed(session.principal)
        if principal is None:
            return False
        if principal != session.principal:
            session.principal = principal
            self.end_forbidden(session)
            self._server.router.rights_changed(session)
        return True

    def end_forbidden(self, session: Session) -> None:
        """End the subscriptions for which the client of a session has no right any more."""
        for topic_filter in list(session.subscriptions):
            shared = parse_shared(topic_filter)
            plain = topic_filter if shared is None else shared[1]
            if not self._server.access.may_subscribe(session.principal, plain):
                self._server.router.unsubscribe(session, topic_filter)
