"""Compiling in a child: its files, and the handling of a module that kills it."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine import compile as compiler
from fieldbrook.wasm.engine.compile import CompiledTooLargeError, compile_in_child
from fieldbrook.wasm.engine.engine import engine_tag
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import to_binary

MODULES = Path(__file__).parents[3] / "modules"
LIMITS = Limits()
# It compiles for seconds, and takes hundreds of megabytes meanwhile.
HEAVY = (
    '(module (memory (export "memory") 1) (func (export "start") (param i32) (result i32) '
    "local.get 0 " + "i32.const 7 i32.mul i32.load i32.eqz " * 500_000 + "))"
)


def swelling(values: int, branches: int) -> bytes:
    """Return a module with branches of four bytes, each of which has to move many values."""
    numbers = range(values)
    first = " ".join(f"local.get 0 i32.load offset={4 * n}" for n in numbers)
    others = " ".join(f"local.get 0 i32.load offset={4 * n + 1}" for n in numbers)
    keep = " ".join(f"local.set {n + 1}" for n in numbers)
    use = " ".join(f"local.get 0 local.get {n + 1} i32.store offset={4 * n}" for n in numbers)
    types, drop = "i32 " * values, "drop " * values
    code = f"{keep} {others} {'local.get 0 br_if 0 ' * branches} {drop} {use}"
    function = f"(func (param i32) (local {types}) {first} (loop (param {types}) {code}))"
    start = '(func (export "start") (param i32) (result i32) i32.const 0)'
    return to_binary(f'(module (memory (export "memory") 1) {start} {function})'.encode())


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
        compiled_size=(outdir / f"{made.sha256}.{engine_tag()}.cwasm").stat().st_size,
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


def test_a_small_module_that_becomes_megabytes_of_code_is_refused_and_leaves_nothing(
    tmp_path: Path, outdir: Path
) -> None:
    data = swelling(900, 1_800)  # 19 KB, from which 26 MB of code would be made
    with pytest.raises(ModuleRefusedError, match="bytes become .* bytes of code; the limit is"):
        compile_in_child(upload(tmp_path, data), outdir, LIMITS)
    assert list(outdir.iterdir()) == []


def test_data_at_both_ends_of_megabytes_of_memory_is_no_reason_to_refuse(
    tmp_path: Path, outdir: Path
) -> None:
    far = (
        b'(module (memory (export "memory") 256) (data (i32.const 0) "a") (data (i32.const %d) "b")'
    )
    start = b'(func (export "start") (param i32) (result i32) i32.const 0))'
    made = compile_in_child(upload(tmp_path, far % 16_000_000 + start), outdir, LIMITS)
    assert made.compiled_size > 16_000_000, "it counts for the quota"


def test_a_module_whose_code_has_no_room_is_not_written(tmp_path: Path, outdir: Path) -> None:
    source = upload(tmp_path, swelling(100, 100))
    made = compile_in_child(source, tmp_path, LIMITS)
    assert made.compiled_size > 10 * made.size
    with pytest.raises(CompiledTooLargeError) as refused:
        compile_in_child(source, outdir, LIMITS, room_bytes=made.compiled_size - 1)
    assert refused.value.size == made.compiled_size
    assert list(outdir.iterdir()) == []
    compile_in_child(source, outdir, LIMITS, room_bytes=made.compiled_size)
    with pytest.raises(CompiledTooLargeError):
        compile_in_child(source, outdir, LIMITS, room_bytes=-1)


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
