"""Routes to projects: on which host, and at which socket, a project runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fieldbrook.actors import messages as m
from fieldbrook.cluster.links.lines import send
from fieldbrook.core.cluster.membership import Host

_NOT_HOME_S = 0.2


class Peer:
    """Another host: the connections in both directions, its last heartbeat and the time of it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.heard = float("-inf")
        self.beat: dict[str, Any] = {}
        self.writer: asyncio.StreamWriter | None = None
        self.incoming: asyncio.StreamWriter | None = None
        self.task: asyncio.Task[None] | None = None
        self.asked: set[int] = set()  # projects for which this host still awaits an answer

    def send(self, message: dict[str, Any]) -> bool:
        """Send a message if the host is connected; return whether it is."""
        if self.writer is None or self.writer.is_closing():
            return False
        send(self.writer, message)
        return True

    def drop(self) -> None:
        """Close both connections, because messages that arrive late would be outdated."""
        for writer in (self.writer, self.incoming):
            if writer is not None:
                writer.transport.abort()


class Routes:
    """Asks other hosts for routes to projects, and answers their questions; for one event loop."""

    def __init__(self, post: Callable[[object], None]) -> None:
        """Create it; `post` sends a message to the supervisor."""
        self._post = post
        self._asked: dict[int, set[str]] = {}  # by project: hosts that wait for its route
        self._refusals: dict[int, asyncio.TimerHandle] = {}  # by project: the answer "not here"
        self._replies: dict[str, asyncio.StreamWriter] = {}  # by host: connection for answers

    # ---------------------------------------------------------------- questions of others

    def asked(self, host: str, replies: asyncio.StreamWriter, question: list[Any]) -> None:
        """Handle a host's question for the route to a project; the answers are sent on
        `replies`."""
        project_id, account_id, processes = question
        self._asked.setdefault(project_id, set()).add(host)
        self._replies[host] = replies
        self._post(m.Activate(project_id, account_id, processes))

    def answer(self, project_id: int, message: dict[str, Any]) -> None:
        """Send a message to the hosts that have asked for a project's route."""
        for name in self._asked.pop(project_id, ()):
            writer = self._replies.get(name)
            if writer is not None and not writer.is_closing():
                send(writer, message)
                if message.get("route", [0, None])[1] is not None:
                    # The host also needs a later message that the project has ended.
                    self._asked.setdefault(project_id, set()).add(name)

    def refuse_later(self, project_id: int) -> None:
        """Answer after a short time that a project does not run here, unless it moves here
        meanwhile."""
        if project_id not in self._refusals:
            self._refusals[project_id] = asyncio.get_running_loop().call_later(
                _NOT_HOME_S, self._refuse, project_id
            )

    def is_here(self, project_id: int) -> None:
        """Cancel the answer that a project does not run here."""
        refusal = self._refusals.pop(project_id, None)
        if refusal is not None:
            refusal.cancel()

    def _refuse(self, project_id: int) -> None:
        del self._refusals[project_id]
        self.answer(project_id, {"route": [project_id, None, False]})

    # ---------------------------------------------------------------- questions to others

    def ask(self, other: Peer | None, asked: m.ActivateOn) -> None:
        """Ask a host for the route to a project; `other` is None if the host is unknown."""
        project_id = asked.project_id
        question = {"activate": [project_id, asked.account_id, asked.processes]}
        if other is not None and other.send(question):
            other.asked.add(project_id)
        else:
            asyncio.get_running_loop().call_later(
                _NOT_HOME_S, self._ask_again, asked.host, project_id
            )

    def lost(self, other: Peer) -> None:
        """Make the gateways repeat their questions to a host whose connection has ended."""
        for project_id in other.asked:
            self._ask_again(other.host.name, project_id)
        other.asked.clear()

    def answered(self, other: Peer, message: dict[str, Any]) -> None:
        """Forward another host's answer about a project to the supervisor."""
        match message:
            case {"route": [int(project_id), None | str() as socket, bool(alone)]}:
                other.asked.discard(project_id)
                self._post(m.RemoteRoute(project_id, other.host.name, socket, alone))
            case {"unreachable": int(project_id)}:
                other.asked.discard(project_id)
                self._post(m.RemoteRefusal(m.Unreachable(project_id)))
            case {"quota": [int(project_id), int(limit)]}:
                other.asked.discard(project_id)
                self._post(m.RemoteRefusal(m.QuotaReached(project_id, limit)))
            case {"dropped": int(project_id)}:
                other.asked.discard(project_id)
                self._post(m.RemoteRefusal(m.DropProject(project_id)))

    def _ask_again(self, host: str, project_id: int) -> None:
        """Make the gateways ask for a project again, because `host` cannot answer."""
        self._post(m.RemoteRoute(project_id, host, None, alone=False))
