"""Checks of the machine: versions, memory, limits, and the clock.

Sources: proc(5), cgroups(7), getrlimit(2), adjtimex(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
from importlib.metadata import version
from pathlib import Path

from fieldbrook import __version__
from fieldbrook.core.findings import Finding
from fieldbrook.system.kernel import cores
from fieldbrook.system.process import descriptor_limit

_MIB = 1 << 20
_LEAST_MEMORY = 1 << 30
_POOL_BYTES = 1 << 40  # the address space that each worker reserves
_ENOUGH_FILES = 8_192
_ENOUGH_BACKLOG = 1_024  # the length that the node's sockets request
_TIME_ERROR = 5
_CGROUPS = Path("/sys/fs/cgroup")


def versions() -> Finding:
    """Report the versions of fieldbrook, Python and the system."""
    here = f"fieldbrook {__version__}, Python {platform.python_version()}, {platform.platform()}"
    return Finding("versions", "ok", here)


def fast_path() -> Finding:
    """Check whether applets run on the fast path of the WebAssembly engine."""
    from fieldbrook.wasm.engine import raw

    if raw.missing:
        text = (
            f"wasmtime lacks {', '.join(raw.missing)}: applets run several times slower; install "
            "the version of wasmtime that fieldbrook asks for"
        )
        return Finding("wasm engine", "warning", text, {"missing": list(raw.missing)})
    return Finding("wasm engine", "ok", f"wasmtime {version('wasmtime')}, with the fast path")


def processors() -> Finding:
    """Check the number of processors that the node may use."""
    count = cores()
    quota = _first_line(_CGROUPS / "cpu.max").split()
    facts: dict[str, object] = {"processors": count}
    if len(quota) == 2 and quota[0].isdecimal():
        share = int(quota[0]) / int(quota[1])
        facts["quota"] = share
        if share < 1:
            text = f"the control group grants {share:.2f} of a processor: expect pauses"
            return Finding("processors", "warning", text, facts)
        return Finding("processors", "ok", f"{count}, of which {share:.1f} are granted", facts)
    return Finding("processors", "ok", str(count), facts)


def memory() -> Finding:
    """Check the memory that the node may use: of the machine, or of its control group."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    group = _first_line(_CGROUPS / "memory.max")
    if group.isdecimal():
        limits.append(int(group))
    limit = min(limits)
    facts = {"bytes": limit}
    if limit < _LEAST_MEMORY:
        text = f"{limit // _MIB} MiB: a node with several projects needs 1 GiB"
        return Finding("memory", "warning", text, facts)
    return Finding("memory", "ok", f"{limit // _MIB} MiB", facts)


def address_space() -> Finding:
    """Check whether a worker can reserve the address space of its instances, which takes no
    memory."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < 2 * _POOL_BYTES:
        text = (
            f"limited to {soft // _MIB} MiB, and a worker reserves 1 TiB: remove the limit "
            "(ulimit -v unlimited, LimitAS=infinity of systemd)"
        )
        return Finding("address space", "failed", text)
    overcommit = _first_line(Path("/proc/sys/vm/overcommit_memory"))
    if overcommit == "2":
        text = "vm.overcommit_memory is 2, and a worker reserves 1 TiB: set it to 0 or 1"
        return Finding("address space", "failed", text)
    return Finding("address space", "ok", "not limited")


def open_files() -> Finding:
    """Check the limit of open files, which limits connections; the node raises it to the hard
    limit."""
    import resource

    soft, (_, hard) = descriptor_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)
    facts = {"soft": soft, "hard": hard}
    most = soft if hard == resource.RLIM_INFINITY else hard
    if most is not None and most < _ENOUGH_FILES:
        text = (
            f"{most}: raise the limit for more connections (ulimit -Hn 65536, LimitNOFILE=65536 of "
            "systemd, --ulimit nofile=65536 of Docker)"
        )
        return Finding("open files", "warning", text, facts)
    return Finding("open files", "ok", "not limited" if most is None else str(most), facts)


def backlog() -> Finding:
    """Check the number of new connections that the kernel queues until the node accepts them."""
    text = _first_line(Path("/proc/sys/net/core/somaxconn"))
    if not text.isdecimal():
        return Finding("new connections", "skipped", "the system does not say how many")
    facts = {"somaxconn": int(text)}
    if int(text) < _ENOUGH_BACKLOG:
        advice = f"sysctl -w net.core.somaxconn={_ENOUGH_BACKLOG}"
        return Finding("new connections", "warning", f"{text} may wait: {advice}", facts)
    return Finding("new connections", "ok", f"{text} may wait", facts)


def time_source() -> Finding:
    """Check whether the kernel's clock follows a time server.

    Cron jobs, the expiry of tokens and times of events depend on it.
    """
    buffer = ctypes.create_string_buffer(512)  # larger than struct timex, whose modes stay 0
    try:
        state = ctypes.CDLL(None).adjtimex(buffer)
    except (AttributeError, OSError):
        state = -1
    if state < 0:
        return Finding("clock", "skipped", "the system does not say whether it is synchronised")
    if state == _TIME_ERROR:
        text = "not synchronised with a time server: install chrony or systemd-timesyncd"
        return Finding("clock", "warning", text)
    return Finding("clock", "ok", "synchronised with a time server")


def _first_line(path: Path) -> str:
    try:
        with path.open() as file:
            return file.readline(256).strip()
    except OSError:
        return ""
