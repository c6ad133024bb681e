"""Declarations of routes: the operation's name, who may call it, and its parameters.

The dispatcher and the OpenAPI document read the same declarations.
"""

from __future__ import annotations

import enum
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec

from fieldbrook.core.errors import NodeError, NotFoundError
from fieldbrook.core.model import AccessKey, Account
from fieldbrook.gateway.auth import Caller
from fieldbrook.gateway.management.framework.audit_trail import AuditTrail
from fieldbrook.gateway.management.framework.binding import path_id
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.workers import Workers
from fieldbrook.gateway.management.live.channels import Channels
from fieldbrook.gateway.management.sign_in.throttle import SignInThrottle
from fieldbrook.security.access_keys import Group, Permission
from fieldbrook.security.tokens import Login

B = TypeVar("B")
Q = TypeVar("Q")
_T = TypeVar("_T")


class Auth(enum.Enum):
    """Who may call a route."""

    ANYBODY = "anybody"
    ACCOUNT = "an account, by a token"
    ADMIN = "an administrator, by a token"
    SETUP = "the setup code while the node has no administrator, then an administrator's token"


class Form(msgspec.Struct, frozen=True):
    """A multipart upload: the file, if any, and the texts of `info` and `cache`, if any."""

    file: bytes | None
    filename: str
    info: bytes | None
    cache: bytes | None = None


# Answers that are not JSON are dataclasses, because a struct in the return type of a route stands
# for a JSON object.


@dataclass(frozen=True)
class Download:
    """An answer that is a file; a `temporary` file is removed as soon as it has been opened.

    Each account may have a bounded number of open downloads; some of all places are reserved for
    administrators.
    """

    path: Path
    filename: str
    account: Account
    temporary: bool = False


@dataclass(frozen=True)
class Stream:
    """An answer of server-sent events that continues until either side ends it.

    `chunks` yields an empty chunk from time to time, so that the handler notices when the client
    has disconnected. Each account may have a bounded number of open streams; some of all places are
    reserved for administrators.
    """

    chunks: AsyncGenerator[bytes, None]
    account: Account


@dataclass(frozen=True)
class PlainText:
    """An answer that is a string, not JSON."""

    text: str


@dataclass(frozen=True)
class NoContent:
    """An answer without a body that has warnings."""

    warnings: Sequence[str]


class Call(msgspec.Struct, Generic[B, Q], frozen=True):
    """One authenticated request with its bound values: the argument of a route's function.

    `caller` is the account with the access key or the login of the request's token; routes without
    authentication have none. `peer` is the client's address and `host` the header `Host`.
    `audit_trail` holds the data for the audit log. `channels` has the live channels. Upload routes
    set `form`; routes that declare `body` and `query` set these.
    """

    context: ManagementContext
    workers: Workers
    path: Mapping[str, str]
    body: B
    query: Q
    form: Form
    caller: Caller | None
    throttle: SignInThrottle
    audit_trail: AuditTrail
    peer: str = ""
    host: str = ""
    last_event_id: str = ""
    channels: Channels = msgspec.field(default_factory=Channels)

    @property
    def account(self) -> Account:
        """The account of the caller of a route that needs one."""
        assert self.caller is not None
        return self.caller.account

    @property
    def owner(self) -> Hashable:
        """The owner of the pool share that the request uses: its account, or its address."""
        return self.peer if self.caller is None else self.caller.account.account_id

    @property
    def key(self) -> AccessKey | None:
        """The access key of the request, if that is its token."""
        return self.caller and self.caller.key

    @property
    def login(self) -> Login | None:
        """The login of the request's token, if it has one."""
        return self.caller and self.caller.login

    def id(self, name: str) -> int:
        """The id in the path.

        Raises:
            BadRequestError: the segment is not an id.
        """
        return path_id(name, self.path[name])

    async def search(self, work: Callable[[], _T]) -> _T:
        """Search in a thread, concurrently with other accounts' searches, and return the result.

        Raises:
            TooManyRequestsError: too many searches wait, in total or of this account.
        """
        return await self.workers.searches.run(self.account.account_id, work)

    async def command(self, project_id: int, command: str, payload: list[Any]) -> Any:
        """Send a command to a project and return its results; see `ManagementContext.command`.

        Raises:
            NodeError: the project refused the command or could not be reached.
        """
        outcome = await self.context.command(project_id, command, payload)
        if isinstance(outcome, NodeError):
            raise outcome
        return outcome


# The group of operations that a route belongs to, by the first segment of its path.
GROUPS: dict[str, Group] = {
    "account": Group.ACCOUNT,
    "account_access_key": Group.ACCOUNT_ACCESS_KEY,
    "applet": Group.APPLET,
    "applet_log": Group.WASM_LOG,
    "applet_metrics": Group.WASM_LOG,
    "audit": Group.ACCOUNT,
    "chain": Group.MONITOR,
    "cluster": Group.ACCOUNT,
    "configuration": Group.CONFIGURATION,
    "contract_abi": Group.MONITOR,
    "cronjob": Group.CRONJOB,
    "dead_letter": Group.EVENT,
    "deploy": Group.DEPLOY,
    "event": Group.EVENT,
    "event_log": Group.EVENT,
    "health": Group.ACCOUNT,
    "kv": Group.WASM_LOG,
    "login": Group.LOGIN,
    "logout": Group.LOGIN,
    "monitor": Group.MONITOR,
    "mqtt": Group.ACCOUNT,
    "node_log": Group.ACCOUNT,
    "operator": Group.OPERATOR,
    "project": Group.PROJECT,
    "project_config": Group.PROJECT_CONFIG,
    "project_operator": Group.PROJECT_OPERATOR,
    "publisher": Group.PUBLISHER,
    "quota": Group.ACCOUNT,
    "refused_event": Group.EVENT,
    "register": Group.ACCOUNT_REGISTER,
    "resource": Group.RESOURCE,
    "search": Group.PROJECT,
    "series": Group.PROJECT,
    "setting": Group.ACCOUNT,
    "sql": Group.WASM_LOG,
    "strategy": Group.STRATEGY,
    "stream": Group.EVENT,
    "traffic": Group.TRAFFIC_LIMIT,
    "tx": Group.OPERATOR,
    "wasmlog": Group.WASM_LOG,
}

Handler = Callable[[Call[Any, Any]], Awaitable[object]]


@dataclass(frozen=True)
class Route:
    """One method on one path.

    The annotations of the handler declare the rest: `call: Call[BODY, QUERY]` names the structs
    that the JSON body (for uploads: the part `info`) and the query string are bound to. The
    return type names the answer for the OpenAPI document: a struct or a list of structs.

    Args:
        operation: the name of the operation in the interface, sent in `X-Meta`.
        handler: a function that returns None or a `NoContent` for 204, a `Download`, a `Stream`, a
            `PlainText`, or a value to send as JSON (201 for a POST, else 200).
        upload: the body is a multipart form with `file` and `info`.
        group: the group that an access key needs; by default the entry of `GROUPS` for the
            path. Access keys cannot call a route without a group.
        reads: whether a POST only reads, so that an access key needs no more than for a GET.
        body: the struct of the body, if the handler serves several routes with different bodies.
        answer: the struct of the answer, if the handler serves several routes with different
            answers.
    """

    method: str
    pattern: str
    operation: str
    handler: Handler
    auth: Auth = Auth.ACCOUNT
    upload: bool = False
    group: Group | None = None
    reads: bool = False
    body: type[Any] | None = None
    answer: Any = None
    query: type[Any] | None = field(init=False)
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(self.handler, include_extras=True)
        answer, (call,) = hints.pop("return"), hints.values()
        body, query = (None if kind is type(None) else kind for kind in get_args(call))
        segments = tuple(self.pattern.split("/")[1:])
        for name, value in (
            ("body", self.body or body),
            ("query", query),
            ("answer", self.answer or answer),
            ("segments", segments),
            ("group", self.group or GROUPS.get(segments[0])),
        ):
            object.__setattr__(self, name, value)

    @property
    def permission(self) -> Permission:
        """The permission that an access key needs on the group."""
        reads = self.reads or self.method == "GET"
        return Permission.READONLY if reads else Permission.READ_WRITE

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """Return the parameters of a path; None if the path does not belong to this route."""
        if len(segments) != len(self.segments):
            return None
        parameters = {}
        for given, wanted in zip(segments, self.segments, strict=True):
            if wanted.startswith("{"):
                if not given:
                    return None
                parameters[wanted[1:-1]] = given
            elif given != wanted:
                return None
        return parameters


class Match(msgspec.Struct, frozen=True):
    """A route and the parameters of the requested path."""

    route: Route
    parameters: dict[str, str]


class WrongMethod(Exception):  # noqa: N818 - a result of routing, not a failure of ours
    """The path exists, but not with the requested method."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(", ".join(allowed))
        self.allowed = allowed


def find_route(routes: Sequence[Route], method: str, path: str) -> Match:
    """Find the route of a request.

    If several routes match, the one with the fewest path parameters wins.

    Args:
        path: the path after the prefix, still percent-encoded.

    Raises:
        NotFoundError: no route has this path.
        WrongMethod: routes have this path, but with other methods.
    """
    segments = [urllib.parse.unquote(part, errors="replace") for part in path.split("/")[1:]]
    found = [(route, route.match(segments)) for route in routes]
    matches = [Match(route, given) for route, given in found if given is not None]
    if not matches:
        raise NotFoundError(what=path)
    fitting = [match for match in matches if match.route.method == method]
    if not fitting:
        raise WrongMethod(sorted({match.route.method for match in matches}))
    return min(fitting, key=lambda match: len(match.parameters))


def correct_path(patterns: Sequence[Sequence[str]], path: str) -> str | None:
    """Correct a path with superfluous slashes or with words in another case.

    Args:
        patterns: the segments of the routes that have the request's method.
        path: a path that no route has, after the prefix and percent-encoded.

    Returns:
        The path of a route in the same form; None if the corrected path is unknown too.

    Source: interface document, 1.1 (httprouter's redirects).
    """
    segments = [part for part in path.split("/") if part not in ("", ".")]
    candidates = (_corrected(pattern, segments) for pattern in patterns)
    found = [candidate for candidate in candidates if candidate is not None]
    return min(found, default=None)


def _corrected(pattern: Sequence[str], segments: Sequence[str]) -> str | None:
    if len(pattern) != len(segments):
        return None
    corrected = ""
    for wanted, given in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            corrected += f"/{given}"
        elif wanted.casefold() == urllib.parse.unquote(given, errors="replace").casefold():
            corrected += f"/{wanted}"
        else:
            return None
    return corrected
