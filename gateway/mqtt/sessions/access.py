"""Rights of clients to connect, publish and subscribe at the node's own MQTT server.

A client without a login may send events, because the header of each message authorizes the event.
It may read the replies to the events that it has sent on this connection. A publisher that logs in
with its token may also use the topics below its own, `PROJECT/PUBLISHER/`. An account that logs in
with an access key may use all topics below those of its projects, an administrator all topics. The
setting `mqtt_device_topics` opens further topics to all. No client can read the topics of events,
because their messages contain tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fieldbrook.actors.project.topics import REPLIES, HandlerTopics, covers
from fieldbrook.core import clock
from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import ADMIN, ENABLED, Publisher
from fieldbrook.gateway.auth import (
    account_from_access_key,
    require_sending,
    strip_scheme,
    valid_access_key,
)
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.events.handling import Login
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.security import access_keys
from fieldbrook.security.access_keys import Group, Permission
from fieldbrook.storage.registry.service import RegistryReader

ACKS = REPLIES
LOGIN_ENDED = "the login is not valid any more"
_OPERATION = "MqttConnect"
_ID_DIGITS = 18


class RefusedConnectError(Exception):
    """A client may not connect; `code` is the reason code of the CONNACK."""

    def __init__(self, code: ReasonCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Principal(msgspec.Struct, frozen=True):
    """The identity of a client: anonymous, a publisher or an account.

    `name` separates the sessions of different principals. `subtrees` are the prefixes of the
    principal's own topics, each with a `/` at its end. `expires_at_ms` is a Unix time; 0 means that
    the login does not expire.
    """

    name: str = ""
    login: Login | None = None
    publisher_id: int = 0
    project_id: int = 0
    publisher_key: str = ""
    subtrees: tuple[str, ...] = ()
    account_id: int = 0
    is_admin: bool = False
    project_ids: frozenset[int] = msgspec.field(default_factory=frozenset)
    expires_at_ms: int = 0

    def has_expired(self) -> bool:
        """Whether the login has expired."""
        return 0 < self.expires_at_ms <= clock.now_ms()


ANYBODY = Principal()


class Access:
    """Decides about the rights of clients; every method is called in the loop of the gateway."""

    def __init__(
        self,
        reader: RegistryReader,
        device_topics: Iterable[str],
        *,
        anonymous: bool,
        any_login: bool,
        trusts_connection: bool,
    ) -> None:
        """Create it.

        Args:
            reader: the registry.
            device_topics: the filters of `mqtt_device_topics`.
            anonymous: whether clients may connect without a login.
            any_login: whether a client with other credentials may connect as one without a login.
            trusts_connection: whether messages of a logged-in publisher may lack its token.
        """
        self._reader = reader
        self._device_topics = tuple(device_topics)
        self._anonymous = anonymous
        self._any_login = any_login
        self._trusts_connection = trusts_connection

    def connect(self, username: str | None, password: bytes | None) -> Principal:
        """Identify a client by its CONNECT.

        Raises:
            RefusedConnectError: the client may not connect.
        """
        if username is None and not password:
            if not self._anonymous:
                raise RefusedConnectError(
                    ReasonCode.NOT_AUTHORIZED, "this node accepts only clients that log in"
                )
            return ANYBODY
        try:
            token = strip_scheme((password or b"").decode("utf-8"))
        except UnicodeDecodeError:
            token = ""
        found = self._identify(username or "", token)
        if found is not None:
            return found
        if self._anonymous and self._any_login:
            return ANYBODY
        raise RefusedConnectError(
            ReasonCode.BAD_USER_NAME_OR_PASSWORD,
            "the user name must be a publisher's key or id and the password its token, or the "
            "user name an account's and the password one of its access keys",
        )

    def _identify(self, username: str, token: str) -> Principal | None:
        if not token:
            return None
        publisher = self._reader.publisher_with_token(token)
        if publisher is not None:
            return self._as_publisher(publisher, username, token)
        if not access_keys.is_access_key(token):
            return None
        try:
            key = valid_access_key(self._reader, token, clock.now_ms())
            account = account_from_access_key(
                self._reader, key, Group.EVENT, Permission.READ_WRITE, _OPERATION
            )
        except NodeError:
            return None
        if username not in ("", account.username, str(account.account_id)):
            return None
        projects = self._reader.projects(account.account_id)
        return Principal(
            name=f"account {account.account_id}",
            login=Login("", token),
            account_id=account.account_id,
            subtrees=tuple(f"{project.name}/" for project in projects if project.name != ACKS),
            is_admin=account.role == ADMIN,
            project_ids=frozenset(project.project_id for project in projects),
            expires_at_ms=key.expires_at,
        )

    def _as_publisher(self, publisher: Publisher, username: str, token: str) -> Principal | None:
        project = self._reader.project(publisher.project_id)
        if project is None:
            return None
        account = self._reader.account(project.account_id)
        expires_at_ms = publisher.token_expires_at
        if 0 < expires_at_ms <= clock.now_ms() or account is None or account.state != ENABLED:
            return None
        names = (publisher.key, str(publisher.publisher_id))
        if username not in ("", *names, *(f"{project.name}/{name}" for name in names)):
            return None
        try:
            require_sending(self._reader, token, _OPERATION)
        except NodeError:
            return None
        return Principal(
            name=f"publisher {publisher.publisher_id}",
            login=Login(publisher.key, token),
            publisher_id=publisher.publisher_id,
            project_id=project.project_id,
            publisher_key=publisher.key,
            expires_at_ms=expires_at_ms,
            subtrees=tuple(
                f"{project.name}/{name}/"
                for name in names
                if name != "push" and project.name != ACKS and not {"+", "#"} & {*name.split("/")}
                if name != publisher.key or not self._is_id_of_another(publisher)
            ),
        )

    def _is_id_of_another(self, publisher: Publisher) -> bool:
        """Whether a publisher's key is the id of another publisher of its project."""
        key = publisher.key
        if not (key.isascii() and key.isdigit() and len(key) <= _ID_DIGITS):
            return False
        found = self._reader.publisher_with_id(publisher.project_id, int(key))
        return found is not None and found.publisher_id != publisher.publisher_id

    def renewed(self, principal: Principal) -> Principal | None:
        """Return the rights that a client has now; None if its login has ended."""
        if principal.login is None:
            return principal
        found = self._identify("", principal.login.token)
        return found if found is not None and found.name == principal.name else None

    def login_for_events(self, principal: Principal) -> Login | None:
        """Return the login that authorizes messages without a token; None if each message needs a
        token."""
        return principal.login if self._trusts_connection and principal.publisher_id else None

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Whether a client may publish to a topic that is not a topic of events."""
        if topic.startswith("$"):
            return False
        if principal.is_admin or topic.startswith(principal.subtrees or ("/\0",)):
            return True
        return any(covers(allowed, topic) for allowed in self._device_topics)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Whether a client may subscribe to a filter, also with a shared subscription.

        Replies below `ack/` are checked when they are delivered: `may_read_reply`.
        """
        if topic_filter.startswith("$"):
            return False
        if principal.is_admin or covers(f"{ACKS}/#", topic_filter):
            return True
        if any(covers(f"{own}#", topic_filter) for own in principal.subtrees):
            return True
        return any(covers(allowed, topic_filter) for allowed in self._device_topics)

    def may_read(self, principal: Principal, topic: str) -> bool:
        """Whether a client may get a message of a topic that is not a topic of replies."""
        return self.may_publish(principal, topic) or self.may_subscribe(principal, topic)

    def opens(self, topic: str) -> bool:
        """Whether `mqtt_device_topics` opens a topic to all."""
        return any(covers(allowed, topic) for allowed in self._device_topics)

    def why_no_handler(self, project_id: int, topic: str) -> str | None:
        """Return why the handlers of a project may not publish on a topic; None when they may."""
        return HandlerTopics(self._reader, project_id, self._device_topics).why_not(topic)

    def project_of(self, topic: str) -> int:
        """The id of the project to which a topic below `PROJECT/` belongs; 0 for other topics."""
        name, slash, _ = topic.partition("/")
        found = self._reader.project_named(name) if slash and name != ACKS else None
        return 0 if found is None else found.project_id

    def has_project(self, project_id: int) -> bool:
        """Whether a project exists."""
        return self._reader.project(project_id) is not None

    def is_event_topic(self, topic: str) -> bool:
        """Whether a topic is an event topic of an existing project: `PROJECT`, or below
        `PROJECT/push/`."""
        channel, slash, rest = topic.partition("/")
        if slash and not rest.startswith("push/"):
            return False
        return self._reader.project_named(project_name(channel)) is not None
