"""The turns of the event loops of a node: how long each one keeps its process busy.

A turn is what a loop does between two waits. Its processor time counts, and not the time that
passes: other programs of a busy machine make no turn longer.

`record` runs in each process of the node; `environment` makes them import this file, without the
rest of the suite and of the node.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

_SHORTEST_MS = 0.5  # shorter ones are not written down, which would take longer than they do


def environment(folder: Path) -> dict[str, str]:
    """An environment for a node, whose processes write their turns below a folder."""
    (folder / "turns").mkdir()
    start = f"import runpy\nrunpy.run_path({__file__!r})['record']({str(folder / 'turns')!r})\n"
    (folder / "sitecustomize.py").write_text(start)
    return {**os.environ, "PYTHONPATH": str(folder)}


def longest_ms(folder: Path, pid: int, begin: float) -> float:
    """The longest turn of a process since a moment of the monotonic clock; 0 if all were short."""
    path = folder / "turns" / str(pid)
    lines = path.read_text().splitlines() if path.exists() else []
    turns = (tuple(map(float, line.split())) for line in lines)
    return max((took for at, took in turns if at >= begin), default=0.0)


def record(folder: str) -> None:
    """Write the end and the milliseconds of each longer turn to the file of the process."""
    turn = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]
    files: dict[int, int] = {}

    def timed(loop: asyncio.BaseEventLoop) -> None:
        began = time.thread_time()
        turn(loop)
        took_ms = (time.thread_time() - began) * 1e3
        if took_ms >= _SHORTEST_MS:
            pid = os.getpid()  # processes fork after this file was read
            if pid not in files:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                files[pid] = os.open(f"{folder}/{pid}", flags, 0o600)
            os.write(files[pid], f"{time.monotonic()} {took_ms}\n".encode())

    asyncio.BaseEventLoop._run_once = timed  # type: ignore[attr-defined]
