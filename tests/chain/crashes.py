"""Processes of a node that are killed or stopped at a fault point that a test names."""

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
    """Return the pid of the stopped process."""

    def found() -> list[int]:
        return [pid for pid in node.processes() if _state(pid) == "T"]

    return int(until(found, "a process stands still")[0])


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def kill(sending: Sending, victim: str) -> None:
    """Kill a process with SIGKILL; start the node again if it was the main process, because the
    node restarts its other processes itself."""
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

    With `at`, a condition that has to become true before the answer, the device sends another event
    if one has failed earlier because the chain took longer than a guest waits.
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
        """Wait until the event is answered, or the sender has stopped."""
        self._thread.join()

    def code(self) -> int:
        """Return the code of the handler: the device sends the event until it is answered."""
        self.ends()
        codes: list[int] = []

        def told() -> bool:
            code = self._once()
            if code is not None:
                codes.append(code)
            return bool(codes)

        until(told, "the event is handled")
        return codes[0]
