"""Short form of the small machine: the limits hold, and nothing is lost, doubled or killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chain.evm import Evm
from tests.faults.small_machine import CORES, MEMORY_BYTES, SmallMachine, as_text
from tests.support.small_box import small_box

_SECONDS = 8.0
_MIB = 1 << 20


@pytest.fixture
def evm() -> Iterator[Evm]:
    made = Evm()
    yield made
    made.stop()


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_many_projects_a_chain_and_pages_fit_on_a_small_machine(evm: Evm) -> None:
    with tempfile.TemporaryDirectory(prefix="fb") as folder, small_box(CORES, MEMORY_BYTES) as box:
        machine = SmallMachine(
            *(Path(folder), box, evm),
            projects=30,
            rate=300.0,
            sample_s=2.0,
            tell=lambda _: None,
        )
        report = machine.run(_SECONDS)
        text = as_text(machine, report)
        assert report.sound, text
        assert report.verdict.acknowledged == report.verdict.sent >= 300
        assert machine.usage.parts["history"] > 0
        if box.is_enforced:
            assert 50 * _MIB < box.peak_bytes <= MEMORY_BYTES


def test_the_memory_of_a_box_is_a_limit_that_ends_a_program() -> None:
    with small_box(1, 64 * _MIB) as box:
        if not box.is_enforced:  # for others than root
            assert box.prefix[0] == "taskset"
            return
        code = "block = bytearray(256 << 20); block[:: 4096] = b'x' * len(block[:: 4096])"
        done = subprocess.run([*box.prefix, sys.executable, "-c", code], check=False)
        assert done.returncode != 0
        assert box.killed >= 1
