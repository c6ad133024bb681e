"""What the applets of one project may reach outside it."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from fieldbrook.api_hosts import is_allowed
from fieldbrook.storage.outbox import Outbox
from fieldbrook.storage.registry import RegistryReader
from fieldbrook.wasm.run import EffectRefusedError, Surroundings

SYSTEM_HOST = "w3bstream.com"
SYSTEM_SCHEME = "w3bstream"
HELLO = "/system/hello"
_CHAIN_ROUTES = {("GET", "/system/read_tx"), ("POST", "/system/send_tx")}
_PROOF_ROUTE = ("POST", "/system/gen_zk_proof")
_TOPICS_KEPT = 1_024


class ProjectSurroundings(Surroundings):
    """Messages to topics that are nobody's ingress, and hosts the operator allows."""

    def __init__(self, reader: RegistryReader, outbox: Outbox, api_hosts: Sequence[str]) -> None:
        self._reader = reader
        self._outbox = outbox
        self._api_hosts = api_hosts
        self._topics: set[str] = set()  # found good since the registry changed

    def forget(self) -> None:
        """The registry has changed: a topic may be a project's now."""
        self._topics.clear()

    def check_topic(self, topic: str) -> None:
        """See `Surroundings.check_topic`."""
        self._check_room()
        if topic in self._topics:
            return
        name, slash, rest = topic.partition("/")
        if (not slash or rest.startswith("push/")) and self._reader.project_named(name):
            raise EffectRefusedError(f"topic {topic[:128]!r} is where project {name} takes events")
        if topic.startswith("$"):
            raise EffectRefusedError(f"topic {topic[:128]!r} is the broker's own")
        if len(self._topics) >= _TOPICS_KEPT:
            self._topics.clear()
        self._topics.add(topic)

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        """See `Surroundings.api_refusal`."""
        if self._outbox.is_full:
            return HTTPStatus.TOO_MANY_REQUESTS, "the outbox is full"
        parts = urlsplit(url)
        if not is_system(url):
            if parts.scheme not in ("http", "https") or not parts.hostname:
                return HTTPStatus.NOT_FOUND, f"{url[:128]}: not a URL that can be called"
            if is_allowed(parts.hostname, self._api_hosts):
                return None
            return HTTPStatus.FORBIDDEN, f"host {parts.hostname} is not in the setting api_hosts"
        route = method, parts.path
        if route == ("GET", HELLO):
            return None
        if route in _CHAIN_ROUTES:
            return HTTPStatus.NOT_IMPLEMENTED, "no chain is configured"
        if route == _PROOF_ROUTE:
            return HTTPStatus.NOT_IMPLEMENTED, "no prover is configured"
        return HTTPStatus.NOT_FOUND, f"{method} {parts.path}: there is no such route"

    def _check_room(self) -> None:
        if self._outbox.is_full:
            raise EffectRefusedError("the outbox is full: what was sent is not delivered")


def is_system(url: str) -> bool:
    """Whether a URL names a service of the node itself."""
    parts = urlsplit(url)
    return not parts.scheme or parts.scheme == SYSTEM_SCHEME or parts.hostname == SYSTEM_HOST
