"""Modules that are compiled before their first event."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.ahead import AheadCompiler
from fieldbrook.wasm.engine.applet import compile_ahead, load_host
from fieldbrook.wasm.engine.engine import engine_tag, make_engine
from fieldbrook.wasm.limits import Limits
from tests.support.tools import LIMIT_S

GUEST = (Path(__file__).parents[2] / "modules" / "guest.wat").read_bytes()
LIMITS = Limits(memory_bytes=1 << 20)


def until(condition: Callable[[], object]) -> None:
    ends_at = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def compiled(folder: Path, name: str) -> Path:
    return folder / f"{name}.{engine_tag()}.cwasm"


def test_what_is_compiled_ahead_is_loaded_and_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "guest.wasm"
    source.write_bytes(GUEST)
    AheadCompiler(tmp_path, LIMITS, 0.0).add("guest")
    until(compiled(tmp_path, "guest").exists)
    source.unlink()  # without compiled code it would be needed
    host = load_host(make_engine(LIMITS), compiled(tmp_path, "guest"), source, LIMITS)
    assert "echo" in host.handlers
    host.close()


def test_a_module_that_is_compiled_or_removed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    done: list[str] = []

    def compiles(target: Path, source: Path, limits: Limits) -> None:
        done.append(source.stem)
        compiled(tmp_path, "meanwhile").touch()

    for name in ("old", "first", "meanwhile", "last"):
        (tmp_path / f"{name}.wasm").write_bytes(GUEST)
    compiled(tmp_path, "old").touch()
    ahead = AheadCompiler(tmp_path, LIMITS, 0.2, compiles)
    for name in ("old", "first", "meanwhile", "removed", "last"):
        ahead.add(name)
    until(lambda: "last" in done)
    assert done == ["first", "last"]


def test_a_module_that_cannot_be_compiled_holds_no_other_one_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "bad.wasm").write_bytes(b"(module")
    (tmp_path / "good.wasm").write_bytes(GUEST)
    with pytest.raises(ModuleRefusedError, match=r"bad\.wasm cannot be compiled again"):
        compile_ahead(compiled(tmp_path, "bad"), tmp_path / "bad.wasm", LIMITS)
    ahead = AheadCompiler(tmp_path, LIMITS, 0.0)
    ahead.add("bad")
    ahead.add("good")
    until(compiled(tmp_path, "good").exists)
    assert "module bad is compiled at its first event" in caplog.text
