"""Which processes are below another, while some of them come and go."""

from __future__ import annotations

import os
import subprocess
import threading

from fieldbrook.system.process_tree import descendants


def test_children_and_their_children_are_found() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        found = descendants(os.getpid())
        os.kill(grandchild, 9)
    assert {shell.pid, grandchild} <= set(found)
    assert shell.pid not in descendants(os.getpid())


def test_processes_that_end_while_they_are_looked_at_do_no_harm() -> None:
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            subprocess.run(["sh", "-c", "true | true"], check=True)

    busy = threading.Thread(target=come_and_go)
    busy.start()
    try:
        for _ in range(500):
            descendants(os.getpid())
    finally:
        done.set()
        busy.join()
