"""Admission: checks for each event, with the registry, whether the sender may send it to the
project."""

from __future__ import annotations

import asyncio
import hmac
from typing import NamedTuple

from fieldbrook.core import clock
from fieldbrook.core.errors import (
    DisabledAccountError,
    EventTypeNotAllowedError,
    InvalidAuthPublisherIDError,
    InvalidAuthValueError,
    InvalidEventChannelError,
    InvalidTokenError,
    NodeError,
    NoProjectPermissionError,
    ProjectNotFoundError,
    PublisherNotFoundError,
    PublisherTokenError,
    StorageQuotaError,
)
from fieldbrook.core.model import (
    ADMIN,
    ANONYMOUS,
    ENABLED,
    IDENTITY_PUBLISHER,
    AccessKey,
    Project,
    Publisher,
)
from fieldbrook.gateway.auth import (
    account_from_access_key,
    require_sending,
    strip_scheme,
    valid_access_key,
)
from fieldbrook.gateway.channel import project_name as name_of_channel
from fieldbrook.gateway.events.request import DATA_PUSH
from fieldbrook.security import access_keys, tokens
from fieldbrook.security.access_keys import Group, Permission
from fieldbrook.storage.registry.service import RegistryReader

_CACHE_LIMIT = 200_000
OPERATION = "HandleEvent"


class Admitted(NamedTuple):
    """The publisher that a token identifies, and its project."""

    project_id: int
    publisher_id: int
    publisher_key: str


class Admission:
    """Admits publishers of projects.

    Answers of the registry are cached until the registry's change counter increases. A token that a
    completed management call revoked is therefore refused from the next event on.
    """

    def __init__(self, reader: RegistryReader, token_key: bytes) -> None:
        self._reader = reader
        self._token_key = token_key
        self._version = -1
        self._is_current = False
        self._projects: dict[str, Project] = {}
        self._admitted: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._admitted_by_token: dict[tuple[str, str], Admitted] = {}
        self._restricted: dict[int, Publisher] = {}
        self._names: dict[int, str] = {}

    def admit(self, project_name: str, pub_id: str, token: str) -> tuple[int, int]:
        """Return the ids of the project and of the publisher.

        `pub_id` is the publisher's key or its id. The token must be the publisher's, and the
        publisher must belong to the project. A public project has an anonymous publisher for
        messages with neither `pub_id` nor token.

        Raises:
            ProjectNotFoundError: no project of that name.
            PublisherNotFoundError: no such publisher in this project.
            PublisherTokenError: the token is not the publisher's current one; the
                description says why (expired, signed with another key, of another publisher,
                replaced).
            AccessKeyPermissionDeniedError: the token is an access key that may not send events.
            DisabledAccountError: the project's account is disabled.
            StorageQuotaError: the account stores more bytes than its quota allows.
        """
        if not self._is_current:
            self.refresh()
        ids = self._admitted.get((project_name, pub_id, token))
        if ids is not None:
            return ids
        # Only one form of channel and token is cached. Otherwise a device could fill the cache with
        # other prefixes of the channel and other blanks around its token.
        token = strip_scheme(token)
        key = (name_of_channel(project_name), pub_id, token)
        ids = self._admitted.get(key)
        if ids is None:
            project = self.project(project_name)
            self._require_active_account(project)
            if project.public and not pub_id and not token:
                ids = self._anonymous_ids(project)
            else:
                ids = self._authenticate(project, pub_id, token)
            if len(self._admitted) >= _CACHE_LIMIT:
                self._admitted.clear()
            self._admitted[key] = ids
        return ids

    def name_of(self, publisher_id: int) -> str:
        """Return the name of a publisher that `admit` has admitted; "" for the anonymous one."""
        return self._names.get(publisher_id, "")

    def _authenticate(self, project: Project, pub_id: str, token: str) -> tuple[int, int]:
        publisher = self._reader.publisher(project.project_id, pub_id)
        if publisher is None:
            raise PublisherNotFoundError(pub_id=pub_id)
        self._check_token(project.name, publisher, token)
        self._names[publisher.publisher_id] = publisher.name
        return project.project_id, publisher.publisher_id

    def _anonymous_ids(self, project: Project) -> tuple[int, int]:
        publisher = self._reader.publisher_with_key(project.project_id, ANONYMOUS)
        if publisher is None:
            return project.project_id, 0
        self._remember_restrictions(publisher)
        return project.project_id, publisher.publisher_id

    def admit_by_token(self, channel: str, token: str) -> Admitted:
        """Return the publisher of a token; without a token, a public project's anonymous one.

        Raises:
            InvalidTokenError: there is no token and the project is not public, or the token is
                not one of this node.
            PublisherNotFoundError: the token's publisher does not exist any more, or the token is
                an account's login.
            PublisherTokenError: the token was replaced.
            InvalidEventChannelError: the channel is not that of the publisher's project.
            AccessKeyPermissionDeniedError: the token is an access key that may not send events.
            DisabledAccountError: the project's account is disabled.
            StorageQuotaError: the account stores more bytes than its quota allows.
        """
        if not self._is_current:
            self.refresh()
        key = (name_of_channel(channel), token)
        admitted = self._admitted_by_token.get(key)
        if admitted is None:
            admitted, expires = (
                self._admit_token(channel, token) if token else self._admit_anonymous(channel)
            )
            if not expires:
                if len(self._admitted_by_token) >= _CACHE_LIMIT:
                    self._admitted_by_token.clear()
                self._admitted_by_token[key] = admitted
        return admitted

    def _admit_token(self, channel: str, token: str) -> tuple[Admitted, bool]:
        """Return a token's publisher, and whether the token has an expiry that `allow` does not
        check."""
        expires = False
        publisher = self._reader.publisher_with_token(token)
        if publisher is None:
            publisher, expires = self._resolve_other_token(token)
        else:
            require_sending(self._reader, token, OPERATION)
        project = self._reader.project(publisher.project_id)
        if project is None:
            raise PublisherNotFoundError(pub_id=publisher.publisher_id)
        if project.name != name_of_channel(channel):
            raise InvalidEventChannelError(
                pub_id=publisher.key, publisher_id=publisher.publisher_id, channel=channel
            )
        self._require_active_account(project)
        self._remember_restrictions(publisher)
        return Admitted(project.project_id, publisher.publisher_id, publisher.key), expires

    def _resolve_other_token(self, token: str) -> tuple[Publisher, bool]:
        """Resolve a token that is not stored with a publisher: an access key, or an invalid one."""
        if not access_keys.is_access_key(token):
            # As in W3bstream, an account's login token is looked up like a publisher's token
            # and is answered "publisher not found".
            owner = tokens.read_any_token(self._token_key, token)
            publisher = None if owner.is_account else self._reader.publisher_anywhere(owner.id)
            if publisher is None:
                raise PublisherNotFoundError(pub_id=owner.id)
            raise self._token_error(publisher, "token was replaced")
        key = self._read_access_key(token)
        if key.identity_type != IDENTITY_PUBLISHER:
            raise InvalidAuthPublisherIDError(
                reason=f"access key {key.name} belongs to an account and sends only {DATA_PUSH}"
            )
        publisher = self._reader.publisher_anywhere(key.identity_id)
        if publisher is None:
            raise PublisherNotFoundError(pub_id=key.identity_id)
        return publisher, bool(key.expires_at)

    def _read_access_key(self, token: str) -> AccessKey:
        """Return the record of an access key that has the permission to send events."""
        key = valid_access_key(self._reader, token, clock.now_ms())
        access_keys.require_permission(key, Group.EVENT, Permission.READ_WRITE, OPERATION)
        return key

    def _admit_anonymous(self, channel: str) -> tuple[Admitted, bool]:
        if not self.is_public(channel):
            raise InvalidTokenError(reason="token is empty")
        project = self.project(channel)
        self._require_active_account(project)
        return Admitted(*self._anonymous_ids(project), ANONYMOUS), False

    def _require_active_account(self, project: Project) -> None:
        account = self._reader.account(project.account_id)
        if account is not None and account.state != ENABLED:
            raise DisabledAccountError(account=project.account_id)
        if account is not None and account.over_storage:
            raise StorageQuotaError(account=account.username)

    def is_public(self, channel: str) -> bool:
        """Whether the channel belongs to a public project, which accepts events without a token."""
        try:
            if not self._is_current:
                self.refresh()
            return self.project(channel).public
        except NodeError:  # no such project; the next check raises any other error again
            return False

    def admit_owner(self, channel: str, token: str) -> tuple[Project, AccessKey]:
        """Return the project of a channel, for its owner or an administrator with an access key.

        Raises:
            InvalidTokenError: there is no token, or it is not one of this node.
            PublisherNotFoundError: the token is an account's login.
            InvalidAuthValueError: the token is not an account's access key.
            InvalidAccessKeyError, AccessKeyNotFoundError, AccessKeyExpiredError,
            AccessKeyPermissionDeniedError: the access key may not send events.
                AccountNotFoundError, DisabledAccountError: its account does not exist any more, or
                is disabled.
            ProjectNotFoundError: no project has that channel.
            NoProjectPermissionError: the project belongs to another account.
        """
        if not self._is_current:
            self.refresh()
        if not token:
            raise InvalidTokenError(reason="token is empty")
        if not access_keys.is_access_key(token):
            owner = tokens.read_any_token(self._token_key, token)
            if owner.is_account:
                raise PublisherNotFoundError(pub_id=owner.id)
            raise InvalidAuthValueError(reason=f"{DATA_PUSH} needs an account's access key")
        if self._reader.publisher_with_token(token) is not None:
            raise InvalidAuthValueError(
                reason="this access key belongs to a publisher, not to an account"
            )
        key = valid_access_key(self._reader, token, clock.now_ms())
        account = account_from_access_key(
            self._reader, key, Group.EVENT, Permission.READ_WRITE, OPERATION
        )
        project = self.project(channel)
        if project.account_id != account.account_id and account.role != ADMIN:
            raise NoProjectPermissionError(name=channel)
        self._require_active_account(project)
        return project, key

    def publisher(self, project_id: int, key: str) -> Publisher | None:
        """Return the publisher of a project with exactly this key; None when there is none."""
        return self._reader.publisher_with_key(project_id, key)

    def allow(self, publisher_id: int, event_type: str) -> None:
        """Check the token's expiry and the allowed event types of an admitted publisher.

        Raises:
            PublisherTokenError: the publisher's token has expired.
            EventTypeNotAllowedError: the publisher may not send events of that type.
        """
        publisher = self._restricted.get(publisher_id)
        if publisher is None:
            return
        if publisher.token_expires_at and clock.now_ms() >= publisher.token_expires_at:
            raise self._token_error(publisher, "token is expired")
        require_type(publisher, event_type)

    def refresh(self) -> None:
        """Clear the caches if the registry has changed since the last check.

        Raises:
            UnavailableError: this host is disconnected from the others.
        """
        self._reader.lease.require()
        version = self._reader.version()
        if version != self._version:
            self._projects.clear()
            self._admitted.clear()
            self._admitted_by_token.clear()
            self._restricted.clear()
            self._names.clear()
            self._version = version
        # Checked once per iteration of the event loop, not per event. The answer to a management
        # call leaves in a later iteration, and events that are sent after it arrive still later.
        self._is_current = True
        asyncio.get_running_loop().call_soon(self._expire_check)

    def _expire_check(self) -> None:
        self._is_current = False

    def project(self, channel: str) -> Project:
        """Return the project of a channel.

        Raises:
            ProjectNotFoundError: no project has that channel.
        """
        name = name_of_channel(channel)
        project = self._projects.get(name)
        if project is None:
            project = self._reader.project_named(name)
            if project is None:
                raise ProjectNotFoundError(project=channel)
            self._projects[name] = project
        return project

    def _check_token(self, project_name: str, publisher: Publisher, token: str) -> None:
        # Only this node writes `publisher.token`. An equal token is therefore genuine and
        # current, and its signature need not be checked again (20 us).
        if not hmac.compare_digest(token.encode(), publisher.token.encode()):
            raise PublisherTokenError(
                pub_id=publisher.key,
                project=project_name,
                reason=self._token_problem(publisher, token),
            )
        require_sending(self._reader, token, OPERATION)
        self._remember_restrictions(publisher)

    def _remember_restrictions(self, publisher: Publisher) -> None:
        if publisher.event_types or publisher.token_expires_at:
            self._restricted[publisher.publisher_id] = publisher

    def _token_error(self, publisher: Publisher, reason: str) -> PublisherTokenError:
        project = self._reader.project(publisher.project_id)
        name = project.name if project else str(publisher.project_id)
        return PublisherTokenError(pub_id=publisher.key, project=name, reason=reason)

    def _token_problem(self, publisher: Publisher, token: str) -> str:
        if access_keys.is_access_key(token):
            other = self._reader.publisher_with_token(token)
            return "token of another publisher" if other else "token is unknown or was replaced"
        try:
            owner = tokens.read_any_token(self._token_key, token)
        except InvalidTokenError as error:
            return str(error)
        if owner.is_account:
            return "token is an account's login"
        if owner.id != publisher.publisher_id:
            return "token of another publisher"
        return "token was replaced"


def require_type(publisher: Publisher, event_type: str) -> None:
    """Check that a publisher may send events of a type.

    Raises:
        EventTypeNotAllowedError: the publisher may not send that type.
    """
    if publisher.event_types and event_type not in publisher.event_types:
        raise EventTypeNotAllowedError(pub_id=publisher.key, event_type=event_type)
