"""What an actor can find out about its children."""

from __future__ import annotations

import multiprocessing
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fieldbrook.actors import runtime
from fieldbrook.actors.runtime import NodeActor


def test_the_exit_code_of_a_child_whose_sockets_are_closed_already_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready, waits = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_end_when_told, args=(waits,))
    child.start()
    ready.recv()
    monkeypatch.setitem(runtime._children, 3, child)
    address = cast("Any", SimpleNamespace(addressDetails=SimpleNamespace(addressInstanceNum=3)))
    ready.send("end")
    assert NodeActor.exit_code(cast("Any", None), address) == 7
    assert NodeActor.exit_code(cast("Any", None), address) is None


def _end_when_told(connection: Any) -> None:
    connection.send("ready")
    connection.recv()
    os._exit(7)  # at once: Python may take more than a second to end
