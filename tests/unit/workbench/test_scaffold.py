"""The builds of applet folders."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.system.kernel import has_ended
from fieldbrook.workbench import scaffold


def test_a_signal_during_the_start_of_a_step_ends_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    (tmp_path / "applet.toml").write_text(
        '[build]\nmodule = "a.wasm"\nsteps = [["sleep", "600"]]\n'
    )
    with pytest.raises(KeyboardInterrupt):
        scaffold.build(tmp_path)
    assert [has_ended(pid) for pid in started] == [True]
