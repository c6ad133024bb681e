"""Compiling in a child: what it leaves, and what becomes of a module that it dies of."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine import compile as compiler
from fieldbrook.wasm.engine.compile import compile_in_child
from fieldbrook.wasm.engine.engine import engine_tag
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import to_binary

MODULES = Path(__file__).parents[3] / "modules"
LIMITS = Limits()
# Seconds of compiling, hundreds of megabytes while it lasts.
HEAVY = (
    '(module (memory (export "memory") 1) (func (export "start") (param i32) (result i32) '
    "local.get 0 " + "i32.const 7 i32.mul i32.load i32.eqz " * 500_000 + "))"
)


@pytest.fixture
def outdir(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir(mode=0o700)
    return folder


def upload(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "upload"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("binary", [False, True])
def test_a_good_module_is_left_beside_its_code_for_the_owner_only(
    tmp_path: Path, outdir: Path, binary: bool
) -> None:
    data = (MODULES / "no_alloc.wat").read_bytes()
    data = to_binary(data) if binary else data
    made = compile_in_child(upload(tmp_path, data), outdir, LIMITS)
    assert made == compiler.CompiledModule(
        handlers=("start",),
        wasi=False,
        memory_pages=1,
        sha256=hashlib.sha256(data).hexdigest(),
        md5=hashlib.md5(data).hexdigest(),  # noqa: S324 - clients of the interface send it
        size=len(data),
    )
    names = {f"{made.sha256}.wasm", f"{made.sha256}.{engine_tag()}.cwasm"}
    assert {path.name for path in outdir.iterdir()} == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in outdir.iterdir()} == {0o600}
    assert (outdir / f"{made.sha256}.wasm").read_bytes() == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x89PNG", "not a WebAssembly module"),
        (b"(module)", "it exports no memory named 'memory'; it exports no handler"),
        (b'(module (memory (export "memory") 65536))', "it starts with 65536 pages of memory"),
    ],
)
def test_a_bad_module_is_refused_and_leaves_nothing(
    tmp_path: Path, outdir: Path, data: bytes, reason: str
) -> None:
    with pytest.raises(ModuleRefusedError, match=reason):
        compile_in_child(upload(tmp_path, data), outdir, LIMITS)
    assert list(outdir.iterdir()) == []


def test_a_module_that_only_the_pool_cannot_hold_is_refused_at_upload(
    tmp_path: Path, outdir: Path
) -> None:
    text = (
        (MODULES / "initialize.wat").read_text().replace("(memory", "(table 100000 funcref)(memory")
    )
    with pytest.raises(ModuleRefusedError) as refused:
        compile_in_child(upload(tmp_path, text.encode()), outdir, LIMITS)
    assert refused.value.desc.startswith("table index 0 has a minimum element size of 100000")
    assert list(outdir.iterdir()) == []


def test_a_module_that_takes_too_much_processor_time_is_refused(
    tmp_path: Path, outdir: Path
) -> None:
    with pytest.raises(ModuleRefusedError, match="over 1 s of processor time"):
        compile_in_child(upload(tmp_path, HEAVY.encode()), outdir, LIMITS, cpu_s=1)
    assert list(outdir.iterdir()) == []


def test_a_module_that_takes_too_much_memory_is_refused(tmp_path: Path, outdir: Path) -> None:
    source = upload(tmp_path, HEAVY.encode())
    with pytest.raises(ModuleRefusedError, match="more than 160 MiB"):
        compile_in_child(source, outdir, LIMITS, address_bytes=160 << 20)
    assert list(outdir.iterdir()) == []


def test_a_child_that_takes_too_long_is_killed(tmp_path: Path, outdir: Path) -> None:
    with pytest.raises(ModuleRefusedError, match=r"took over 0\.01 s"):
        compile_in_child(upload(tmp_path, HEAVY.encode()), outdir, LIMITS, timeout_s=0.01)
    assert list(outdir.iterdir()) == []


def test_a_source_that_cannot_be_read_is_named(tmp_path: Path, outdir: Path) -> None:
    with pytest.raises(ModuleRefusedError, match=r"No such file or directory: .*absent"):
        compile_in_child(tmp_path / "absent", outdir, LIMITS)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    source = upload(tmp_path, (MODULES / "no_alloc.wat").read_bytes())
    with pytest.raises(ModuleRefusedError, match="No such file or directory"):
        compile_in_child(source, tmp_path / "absent", LIMITS)
