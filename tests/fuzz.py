"""Fuzzer of modules and host calls: python -m tests.fuzz

    python -m tests.fuzz --minutes 10 [--seed N]

A child process makes modules from the test modules by changing bytes, uploads them to the
compiler and runs what it accepts, on all hosts, with random payloads; some rounds make random
host calls through a module that is whole. The parent watches: a child that dies, hangs or
grows ends the run, and the seed of its round is printed, which `--seed` repeats.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import select
import subprocess
import sys
import time
from pathlib import Path

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine.applet import AppletHost
from fieldbrook.wasm.engine.engine import make_engine
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import compile_module, to_binary
from fieldbrook.wasm.run import Host, Run
from tests.contract.hosts.harness import calls

MODULES = Path(__file__).parent / "modules"
LIMITS = Limits(deadline_ms=50, memory_bytes=4 << 20, host_calls=10_000)
HANG_S = 60.0
GROWTH_LIMIT_BYTES = 256 << 20
CHILD_ROUNDS = 400
_PAYLOAD_BYTES = 400


def main() -> int:
    """Run children until the time is over; return 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given.seed or 0, given.child)
    if given.seed is not None:
        return 0 if watch(given.seed, 1) else 1
    seed = int(time.time()) << 20
    end = time.monotonic() + 60 * given.minutes
    rounds = 0
    while time.monotonic() < end:
        if not watch(seed, CHILD_ROUNDS, end):
            return 1
        seed += CHILD_ROUNDS
        rounds += CHILD_ROUNDS
    sys.stdout.write(f"at most {rounds} rounds, no harm\n")
    return 0


def watch(seed: int, rounds: int, end: float = float("inf")) -> bool:
    """Run one child; return False if it died, hung or grew."""
    command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--child", str(rounds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    under_way, first, last = seed, 0, 0
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([process.stdout], [], [], HANG_S)
            line = process.stdout.readline() if ready else b""
            if not line:
                break
            done, last = map(int, line.split())
            under_way, first = done + 1, first or last
        else:
            return True
        code = process.wait(1) if ready else None
        if code == 0 and last - first < GROWTH_LIMIT_BYTES:
            return True
        what = "hangs" if code is None else f"ended with {code}, {last - first} bytes larger"
        sys.stdout.write(f"{what}: python -m tests.fuzz --seed {under_way}\n")
        return False
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def child(seed: int, rounds: int) -> int:
    """Run rounds in this process; after each, write its seed and the memory in use."""
    bases = [to_binary(path.read_bytes()) for path in sorted(MODULES.glob("*.wat"))]
    engine = make_engine(LIMITS)
    driver = compile_module(engine, to_binary((MODULES / "driver.wat").read_bytes()), LIMITS)[0]
    whole = AppletHost(engine, driver, LIMITS)
    out = os.fdopen(1, "wb", 0)
    for number in range(seed, seed + rounds):
        rng = random.Random(number)
        if rng.random() < 0.5:
            run_everything(whole, rng, [wild_calls(rng) for _ in range(4)])
        else:
            damaged_module(rng, bases)
        out.write(b"%d %d\n" % (number, resident_bytes()))
    whole.close()
    return 0


def damaged_module(rng: random.Random, bases: list[bytes]) -> None:
    """Change some bytes of a module, and run it if it is still a module."""
    binary = bytearray(rng.choice(bases))
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(8, len(binary))
        binary[at] = rng.choice((rng.randrange(256), binary[at] ^ (1 << rng.randrange(8))))
    engine = make_engine(LIMITS)
    try:
        module, _ = compile_module(engine, bytes(binary), LIMITS)
    except ModuleRefusedError:
        return
    payloads = [rng.randbytes(rng.randrange(_PAYLOAD_BYTES)) for _ in range(4)]
    hosts: list[Host] = [
        AppletHost(engine, module, LIMITS),
        AppletHost(engine, module, LIMITS, reuse_events=3),
        ReferenceHost(engine, module, LIMITS),
    ]
    for host in hosts:
        run_everything(host, rng, payloads)
        host.close()


def run_everything(host: Host, rng: random.Random, payloads: list[bytes]) -> None:
    """Run every handler with every payload, separately and in batches."""
    for handler in host.handlers:
        store: dict[bytes, bytes] = {b"codes": b"1", b"": b"x"}
        for payload in payloads:
            run = Run(payload, "T", {"codes": "v"}, store.get)
            code, reason = host.run(handler, run)
            assert -(1 << 31) <= code < 1 << 31, code
            assert reason == "" or code == -1, (code, reason)
        runs = [Run(payload, "T", {}, store.get) for payload in payloads]
        assert len(host.run_batch(handler, runs)) <= len(runs)


def wild_calls(rng: random.Random) -> bytes:
    """Return a payload of random host calls for `driver.wat`."""
    edges = (0, 1, 64, 0xFFFF, 0x1_0000, 0x2_0000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)

    def number() -> int:
        return max(0, min(rng.choice(edges) + rng.randint(-3, 3), 0xFFFF_FFFF))

    return calls(
        *((rng.randrange(12), *(number() for _ in range(4))) for _ in range(rng.randrange(1, 20)))
    )


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
