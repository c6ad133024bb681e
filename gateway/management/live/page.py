"""One client of a stream: the topics that it follows, and its waiting messages."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

from fieldbrook.core.errors import (
    BadRequestError,
    FieldError,
    InvalidTokenError,
    NodeError,
    ProjectNotFoundError,
    TooManyRequestsError,
)
from fieldbrook.gateway import replies
from fieldbrook.gateway.auth import Caller
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.workers import Workers
from fieldbrook.gateway.management.live.caller_rights import (
    current_account,
    may_read_project,
    time_left_s,
)
from fieldbrook.gateway.management.live.channels import Channel, Channels
from fieldbrook.gateway.management.live.messages import Follow, Prepared
from fieldbrook.gateway.management.live.topics import source_of

TOPICS_LIMIT = 8
WAITING_LIMIT = 8
SILENCE_S = 15.0
_LOOK_S = 1.0  # how long a silent client may keep topics after it has lost its rights


class Following:
    """One topic that a page follows; see `channels.Follower`."""

    def __init__(self, page: Page, number: int, after: str, project_id: int | None) -> None:
        self._page = page
        self.number, self.after, self.project_id = number, after, project_id
        self.channel: Channel | None = None
        self.missed: Prepared | None = None
        """Older messages that the client will not get, merged into one."""

    def give(self, message: Prepared) -> None:
        """See `channels.Follower`."""
        self._page.put(self, message)

    def fail(self, error: NodeError) -> None:
        """See `channels.Follower`."""
        self.channel = None
        self._page.end(self.number, error)


class Page:
    """A client that follows up to `TOPICS_LIMIT` topics.

    Up to `WAITING_LIMIT` messages wait for a client that reads slowly. With more, the rows of the
    oldest message are dropped and counted in a later message of the same topic.
    """

    def __init__(
        self,
        context: ManagementContext,
        workers: Workers,
        channels: Channels,
        caller: Caller,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context, self._workers, self._channels = context, workers, channels
        self._monotonic = monotonic
        self._followings: dict[int, Following] = {}
        self._waiting: deque[tuple[Following, Prepared]] = deque()
        self._errors: deque[bytes] = deque(maxlen=WAITING_LIMIT)
        self._news = asyncio.Event()
        self.renew(caller)

    def renew(self, caller: Caller) -> None:
        """Use another token of the same account with the same rights; the stream ends with it.

        Raises:
            InvalidTokenError: the token belongs to another account, or has other rights.
        """
        known: Caller | None = getattr(self, "_caller", None)
        if known is not None and known.account.account_id != caller.account.account_id:
            raise InvalidTokenError(reason="the new token belongs to another account")
        if known is not None and _rights(known) != _rights(caller):
            raise InvalidTokenError(reason="the new token has other rights than the first one")
        self._caller = caller
        self._version = self._context.reader.version()
        self._until = self._monotonic() + time_left_s(self._context, caller)

    def follow(self, request: Follow) -> None:
        """Begin to follow a topic.

        Raises:
            NodeError: the page may not follow the topic, or follows too many topics.
        """
        if request.id in self._followings:
            raise BadRequestError(FieldError("follow.id", "is in use: drop it first", "body"))
        if len(self._followings) >= TOPICS_LIMIT:
            raise TooManyRequestsError(what=f"a stream follows {TOPICS_LIMIT} topics at most")
        source = source_of(self._context, self._workers, self._caller, request)
        following = Following(self, request.id, request.after, source.project_id)
        self._followings[request.id] = following
        following.channel = self._channels.follow(source.key, source.make, following)

    def drop(self, number: int) -> None:
        """Stop following a topic; an unknown id is ignored, because its topic may have ended."""
        following = self._followings.pop(number, None)
        if following is None:
            return
        if following.channel is not None:
            following.channel.leave(following)
        kept = [entry for entry in self._waiting if entry[0] is not following]
        self._waiting = deque(kept)

    def end(self, number: int, error: NodeError) -> None:
        """Drop a topic and send the client the reason."""
        self.drop(number)
        self.refuse(error, number)

    def refuse(self, error: NodeError, number: int | None = None) -> None:
        """Send the client an error about a topic or about its last message."""
        body = {"error": error.body(self._context.version)}
        self._errors.append(
            replies.to_json(body if number is None else {"id": number, **body}).rstrip()
        )
        self._news.set()

    def put(self, following: Following, message: Prepared) -> None:
        """Queue a message for the client."""
        if following.missed is not None:
            message, following.missed = message.folded(following.missed), None
        if len(self._waiting) >= WAITING_LIMIT:
            self._fold_oldest()
        self._waiting.append((following, message))
        self._news.set()

    def _fold_oldest(self) -> None:
        oldest, message = self._waiting.popleft()
        for at, (following, later) in enumerate(self._waiting):
            if following is oldest:
                self._waiting[at] = following, later.folded(message)
                return
        # A topic has one such message; while it exists, no other message of the topic waits.
        oldest.missed = message

    async def next(self, wait_s: float = SILENCE_S) -> bytes | None:
        """Return the next message; b"" if none arrived in time, None if the stream has ended."""
        silent = self._monotonic() + wait_s
        while True:
            if not self._still_allowed():
                return None
            if self._errors:
                return self._errors.popleft()
            if self._waiting:
                following, message = self._waiting.popleft()
                return message.addressed(following.number)
            now = self._monotonic()
            if now >= silent:
                return b""
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(silent, self._until, now + _LOOK_S) - now):
                    await self._news.wait()

    def _still_allowed(self) -> bool:
        """Check the rights again after a change of the registry; topics without rights end."""
        if self._monotonic() >= self._until:
            return False
        version = self._context.reader.version()
        if version == self._version:
            return True
        self._version = version
        account = current_account(self._context, self._caller)
        if account is None or account.role != self._caller.account.role:
            return False
        for following in list(self._followings.values()):
            project_id = following.project_id
            if project_id and not may_read_project(self._context, account, project_id):
                self.end(following.number, ProjectNotFoundError(project=project_id))
        return True

    def close(self) -> None:
        """Stop following all topics."""
        for number in list(self._followings):
            self.drop(number)


def _rights(caller: Caller) -> dict[str, str] | None:
    """Return the rights of an access key; None for a login, which has all rights of its account."""
    return None if caller.key is None else caller.key.privileges
