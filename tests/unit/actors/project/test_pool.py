"""The instance pool: which modules it loads, and when it tries again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.actors.project import pool as pools
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.core.model import Applet
from fieldbrook.wasm.engine.compile import compile_in_child
from fieldbrook.wasm.engine.engine import engine_tag, make_engine
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.run import Run

LIMITS = Limits()
START = '(func (export "start") (param i32) (result i32) (i32.const 0))'


def applet(sha256: str) -> Applet:
    return Applet(
        applet_id=1,
        project_id=1,
        resource_id=1,
        instance_id=1,
        name="a",
        wasm_name="a.wasm",
        sha256=sha256,
        created_at=1,
        updated_at=1,
    )


def test_a_module_that_cannot_be_compiled_is_tried_again_when_its_file_is_new_or_time_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    pool = InstancePool(modules, LIMITS, make_engine(LIMITS, slots=1))
    upload = tmp_path / "upload"
    upload.write_text(f'(module (memory (export "memory") 1) {START})')
    sha256 = compile_in_child(upload, modules, LIMITS).sha256
    code, source = modules / f"{sha256}.{engine_tag()}.cwasm", modules / f"{sha256}.wasm"
    code.unlink()
    whole = source.read_bytes()
    source.write_bytes(b"(module")
    for _ in range(2):
        with pytest.raises(ModuleRefusedError, match="not a WebAssembly text"):
            pool.host(applet(sha256))
        source.write_bytes(whole)  # the second time the file is not checked
    compile_in_child(upload, modules, LIMITS)
    assert pool.host(applet(sha256)).run("start", Run(b"")) == (0, "")

    pool.close()
    code.unlink()
    source.write_bytes(b"(module")
    monkeypatch.setattr(pools, "_REFUSED_S", 0.0)
    with pytest.raises(ModuleRefusedError):
        pool.host(applet(sha256))
    source.write_bytes(whole)
    assert pool.host(applet(sha256)).run("start", Run(b"")) == (0, "")
