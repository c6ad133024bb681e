"""Processes of a node that die, or stand still, at a point which a test names."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from tests.chain.senders import Sending
from tests.support.nodes import RunningNode, alive, long_id, parts, until

CHAIN, PROJECT, NODE = "fb-chain:31337", "project", "the node"


def held(node: RunningNode) -> int:
    """The process that stands still."""

    def found() -> list[int]:
        return [pid for pid in node.processes() if _state(pid) == "T"]

    return int(until(found, "a process stands still")[0])


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def kill(sending: Sending, victim: str) -> None:
    """kill -9; the node is started again, its parts it starts itself."""
    node = sending.node
    if victim == NODE:
        node.kill()
        node.start()
        return
    pid = parts(node)[victim]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), f"{victim} is dead")


class Event:
    """An event that is sent while something happens to the node.

    With `at`, which is to become true before it is answered, the device sends another event where
    it was told of a failure before: the chain took longer than a guest waits for it.
    """

    def __init__(
        self,
        sending: Sending,
        handler: str,
        payload: bytes,
        event_id: str,
        project: str = "sender",
        *,
        at: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sending, self._what = sending, (handler, payload, long_id(event_id), project)
        self._at = at
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._once() not in (None, 0) and not self._at():
            handler, payload, event_id, project = self._what
            self._what = handler, payload, event_id + "'", project

    def _once(self) -> int | None:
        try:
            answer = self._sending.event(*self._what)
        except (OSError, HTTPException):
            return None
        if answer.status != 201:
            return None
        code: int = answer.json["results"][0]["code"]
        return code

    def ends(self) -> None:
        """Wait until it has been answered, or never will be."""
        self._thread.join()

    def code(self) -> int:
        """What the handler returned in the end: the device sends until it is told."""
        self.ends()
        codes: list[int] = []

        def told() -> bool:
            code = self._once()
            if code is not None:
                codes.append(code)
            return bool(codes)

        until(told, "the event is handled")
        return codes[0]
