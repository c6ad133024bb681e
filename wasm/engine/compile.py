"""Compile an uploaded module in a child process, so that a crash does not harm the node.

`python -m fieldbrook.wasm.engine.compile SOURCE OUTDIR` checks a module, compiles it within
limits of processor time and memory, and tests that the result loads. It writes
`<sha256>.wasm` (the bytes as uploaded) and `<sha256>.<engine tag>.cwasm` to OUTDIR, and
prints one line of JSON: the report, or `{"error": reason}` with exit status 1. The size of the
compiled form is limited, too, because a few bytes of a module can become kilobytes of code.

`--stored SOURCE` compiles a module that was accepted before, and writes the code to its standard
output.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.system.confined import OUT_OF_MEMORY
from fieldbrook.system.kernel import die_with_parent
from fieldbrook.system.process import describe_exit, module_command
from fieldbrook.wasm.engine.applet import AppletHost
from fieldbrook.wasm.engine.engine import engine_tag, make_compiler, make_engine, raw_available
from fieldbrook.wasm.engine.files import remove_temporary, write_atomically
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import ModuleReport, check_extent, compile_module, to_binary

CPU_LIMIT_S = 60
ADDRESS_LIMIT_BYTES = 2 << 30
# Modules of usual compilers become 2 to 4 times as large. A module that moves hundreds of values at
# each of many branches becomes 600 times as large: 250 KB became 144 MB. wasmtime also stores an
# image of the initial memory of up to 16 MiB, even if the module fills only little of it.
COMPILED_RATIO = 16
COMPILED_SPARE_BYTES = 20 << 20
_REFUSED = 1
_TOO_LARGE = "too_large"
_STDERR_BYTES = 16 << 10
_CAUSES = "Caused by:"  # wasmtime's text before it contains the path of our file
_NUMBERED = re.compile(r"\s\d+: ")


class CompiledModule(ModuleReport, frozen=True):
    """A module in the modules folder. Hashes and size (bytes) are those of the upload."""

    sha256: str
    md5: str
    size: int
    compiled_size: int


class CompiledTooLargeError(Exception):
    """The compiled form of a module has `size` bytes, more than the caller allows."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the compiled form has {size} bytes")
        self.size = size


def compile_in_child(
    source: Path,
    outdir: Path,
    limits: Limits,
    timeout_s: float = 60,
    *,
    cpu_s: int = CPU_LIMIT_S,
    address_bytes: int = ADDRESS_LIMIT_BYTES,
    room_bytes: int = 1 << 62,
) -> CompiledModule:
    """Check and compile a module in a fresh interpreter. Blocks until it is done.

    Args:
        source: the upload, binary or WAT text.
        outdir: the modules folder; it exists.
        limits: only `memory_bytes` is used; a module whose initial memory is larger is refused.
        timeout_s: limit of wall time.
        cpu_s: limit of processor time, in whole seconds.
        address_bytes: limit of address space during compilation.
        room_bytes: the largest size of the compiled form on the disk, in bytes.

    Raises:
        ModuleRefusedError: the module is invalid, its compiled form is out of proportion, or the
            child died, timed out or ran out of memory; `reason` says which.
        CompiledTooLargeError: the compiled form has more than `room_bytes`; nothing was written.
        OSError: the child process could not be started.
    """
    command = module_command(
        "fieldbrook.wasm.engine.compile",
        *(str(source), str(outdir)),
        *(f"--memory-bytes={limits.memory_bytes}", f"--cpu-s={cpu_s}"),
        *(f"--address-bytes={address_bytes}", f"--room-bytes={max(0, room_bytes)}"),
    )
    with _open_stderr(outdir) as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
        try:
            output, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ModuleRefusedError(reason=f"compiling it took over {timeout_s:g} s") from None
        finally:
            if child.poll() is None:
                child.kill()
                child.communicate()
            remove_temporary(outdir, child.pid)
        errors.seek(0)
        stderr_text = errors.read(_STDERR_BYTES).decode("utf-8", "replace")
    return _read_answer(output, child.returncode, stderr_text, cpu_s, address_bytes)


def _open_stderr(outdir: Path) -> IO[bytes]:
    """Open a file for the child's stderr in `outdir`, because the node writes only to its data
    folder."""
    try:
        return tempfile.TemporaryFile(dir=outdir)
    except OSError as error:
        raise ModuleRefusedError(reason=f"{outdir}: {error.strerror}") from error


def _read_answer(
    output: bytes, status: int, stderr_text: str, cpu_s: int, address_bytes: int
) -> CompiledModule:
    try:
        answer = json.loads(output)
        if status == 0:
            return CompiledModule(**{**answer, "handlers": tuple(answer["handlers"])})
        if _TOO_LARGE in answer:
            raise CompiledTooLargeError(int(answer[_TOO_LARGE]))
        reason = str(answer["error"])
    except (ValueError, KeyError, TypeError):
        reason = _cause_of_death(status, stderr_text, cpu_s, address_bytes)
    raise ModuleRefusedError(reason=reason)


def _cause_of_death(status: int, stderr_text: str, cpu_s: int, address_bytes: int) -> str:
    """Return the reason why a child ended without an answer."""
    if -status in (signal.SIGXCPU, signal.SIGKILL):
        return f"compiling it took over {cpu_s} s of processor time, or the system stopped it"
    if any(word in stderr_text for word in OUT_OF_MEMORY):
        return f"compiling it takes more than {address_bytes >> 20} MiB of memory"
    return describe_exit("the compiler", status, stderr_text)


def main(arguments: list[str] | None = None) -> int:
    """Run the child's side; returns the exit status."""
    parser = argparse.ArgumentParser(prog="fieldbrook.wasm.engine.compile")
    parser.add_argument("source", type=Path)
    parser.add_argument("outdir", type=Path, nargs="?")
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--memory-bytes", type=int, default=Limits().memory_bytes)
    parser.add_argument("--cpu-s", type=int, default=CPU_LIMIT_S)
    parser.add_argument("--address-bytes", type=int, default=ADDRESS_LIMIT_BYTES)
    parser.add_argument("--room-bytes", type=int, default=1 << 62)
    options = parser.parse_args(arguments)
    die_with_parent()
    limits = Limits(memory_bytes=options.memory_bytes)
    if options.stored:
        return _write_code(options.source, limits)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, options.cpu_s)
    address_bytes, room_bytes = options.address_bytes, options.room_bytes
    try:
        answer = msgspec.structs.asdict(
            _compile(options.source, options.outdir, limits, address_bytes, room_bytes)
        )
    except ModuleRefusedError as error:
        answer = {"error": error.desc}
    except CompiledTooLargeError as error:
        answer = {"error": str(error), _TOO_LARGE: error.size}
    except MemoryError:
        answer = {"error": f"compiling it takes more than {address_bytes >> 20} MiB"}
    except OSError as error:
        answer = {"error": f"{error.strerror}: {error.filename}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    return _REFUSED if "error" in answer else 0


def _write_code(source: Path, limits: Limits) -> int:
    """Compile a stored module, within the resource limits that are already set for the process."""
    try:
        module, _ = compile_module(make_compiler(), to_binary(source.read_bytes()), limits)
    except ModuleRefusedError as error:
        sys.stderr.write(error.desc)
        return _REFUSED
    sys.stdout.buffer.write(module.serialize())
    return 0


def _limit(kind: int, value: int) -> int:
    """Set a resource limit of this process, at most to its hard limit; returns the old value."""
    before, most = resource.getrlimit(kind)
    if most != resource.RLIM_INFINITY:
        value = most if value == resource.RLIM_INFINITY else min(value, most)
    # macOS has no limit of address space; there only the time limit applies.
    with suppress(ValueError):
        resource.setrlimit(kind, (value, most))
    return before


def _compile(
    source: Path, outdir: Path, limits: Limits, address_bytes: int, room_bytes: int
) -> CompiledModule:
    before = _limit(resource.RLIMIT_AS, address_bytes)
    upload = source.read_bytes()
    binary = to_binary(upload)
    module, report = compile_module(make_compiler(), binary, limits)
    check_extent(binary, report)
    compiled = bytes(module.serialize())
    del module
    _check_size(len(compiled), len(binary), room_bytes)
    del binary
    # Restore the old limit for `_test_load`, whose pool reserves much address space. No code of the
    # module is compiled after this line.
    _limit(resource.RLIMIT_AS, before)
    sha256 = hashlib.sha256(upload).hexdigest()
    path = outdir / f"{sha256}.{engine_tag()}.cwasm"
    write_atomically(path, compiled)
    try:
        _test_load(path, limits)
    except ModuleRefusedError:
        path.unlink()
        raise
    write_atomically(outdir / f"{sha256}.wasm", upload)
    return CompiledModule(
        **msgspec.structs.asdict(report),
        sha256=sha256,
        md5=hashlib.md5(upload, usedforsecurity=False).hexdigest(),
        size=len(upload),
        compiled_size=len(compiled),
    )


def _check_size(size: int, binary_size: int, room_bytes: int) -> None:
    """Check the size of a compiled form before it is written.

    Raises:
        ModuleRefusedError: the compiled form is out of proportion to the module.
        CompiledTooLargeError: the compiled form has more than `room_bytes`.
    """
    limit = COMPILED_SPARE_BYTES + COMPILED_RATIO * binary_size
    if size > limit:
        reason = f"its {binary_size} bytes become {size} bytes of code; the limit is {limit}"
        raise ModuleRefusedError(reason=reason)
    if size > room_bytes:
        raise CompiledTooLargeError(size)


def _test_load(cwasm: Path, limits: Limits) -> None:
    """Load the module as a project does, because an engine with a pool has further limits.

    Raises:
        ModuleRefusedError: the module exceeds these limits.
    """
    if not raw_available():
        return
    try:
        AppletHost(make_engine(limits, slots=1), cwasm, limits).close()
    except ModuleRefusedError as error:
        _, found, causes = error.desc.partition(_CAUSES)
        reason = _NUMBERED.split(causes)[-1] if found else error.desc
        raise ModuleRefusedError(reason=reason) from error


if __name__ == "__main__":
    sys.exit(main())
