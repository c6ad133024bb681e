"""The commands of a documentation page, run in order against a node, as a reader types them.

A fenced block of the language `sh` is run. Comments in the page, which are invisible for a reader,
control more:

* `<!-- not run: REASON -->` before a block: it cannot be run on a test machine.
* `<!-- node -->` before a block: it starts the node. The test starts one with the same options.
* `<!-- fails -->` before a block: its last command ends with an exit code other than 0.
* `<!-- file: NAME -->` before a block of any language: a file that the reader saves.
* `<!-- prints -->` before a block: lines that the block before it prints, in this order. `...`
  stands for any text. `<!-- prints` LINES `-->` says the same where a picture shows them.
* `<!-- terminal: NAME.svg -->` before a block: `python -m tests.docs.terminal` draws it and its
  output as a picture.
* `<!-- run` COMMANDS `-->`: commands that only a test needs, such as waiting for a message.
* `<!-- needs: PROGRAM ... -->`: programs without which the page is skipped.
* `<!-- setup: NAME ... -->`: what the page finds done: `node` (running), `admin` (logged in),
  `room` (a project with the counter applet and a publisher).
"""

from __future__ import annotations

import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from tests.docs.site import ROOT
from tests.support.nodes import RunningNode
from tests.support.tools import free_port

LIMIT_S = 120.0
ANVIL = ROOT / "tests" / "chain" / "js" / "node_modules" / ".bin"
"""Where npm puts anvil for the tests of chains."""
_PART = re.compile(
    r"^<!-- (?P<word>[a-z ]+?)(?:: (?P<value>[^\n]*?))? -->\n"
    r"|^<!-- (?P<unseen>run|prints)\n(?P<hidden>.*?)^-->\n"
    r"|^(?P<indent> *)(?P<mark>```|~~~)(?P<language>[\w-]*)[^\n]*\n"
    r"(?P<block>.*?)^(?P=indent)(?P=mark) *$",
    re.MULTILINE | re.DOTALL,
)
_COUNTER = "examples/counter/counter.wat"
_SETUP = {
    "node": "",
    "admin": "fieldbrook admin create",
    "room": f"""fieldbrook project create room
fieldbrook applet deploy room {_COUNTER}
fieldbrook publisher add room sensor-1""",
}


class Step(NamedTuple):
    """A step of a page: commands to run, or output to check."""

    kind: str
    """run, node, fails, file, prints or `not run`."""
    text: str
    line: int
    value: str = ""
    """The name of a file, or the reason why a block is not run."""
    picture: str = ""


class Script(NamedTuple):
    """The steps and the requirements of a page."""

    steps: list[Step]
    needs: list[str]
    setup: list[str]


def parse(text: str) -> Script:
    """Read the steps of a page."""
    script = Script([], [], [])
    marks: dict[str, str] = {}
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        word, value = part["word"], part["value"] or ""
        if part["hidden"] is not None:
            script.steps.append(Step(part["unseen"], part["hidden"], line))
        elif word == "needs":
            script.needs.extend(value.split())
        elif word == "setup":
            script.setup.extend(value.split())
        elif word is not None:
            marks[word] = value
        else:
            kind = next(
                (k for k in ("not run", "node", "fails", "file", "prints") if k in marks), ""
            )
            if kind or part["language"] == "sh":
                value = marks.get(kind, "")
                block = re.sub(f"^{part['indent']}", "", part["block"], flags=re.MULTILINE)
                step = Step(kind or "run", block, line, value, marks.get("terminal", ""))
                script.steps.append(step)
            marks = {}
    return script


class Session:
    """A shell in an empty folder that looks like a clone of the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node: RunningNode | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("examples", "scripts"):
            (folder / name).symlink_to(ROOT / name)
        tools = folder.parent / f"{folder.name}-bin"
        tools.mkdir()
        command = tools / "fieldbrook"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fieldbrook "$@"\n')
        command.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}:/usr/sbin:{ANVIL}",
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(folder.parent / f"{folder.name}-config"),
        }
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        assert self._shell.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._shell.stdout,), daemon=True)
        self._reader.start()
        self._count = 0
        self.ports = {"8545": str(free_port())}

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._lines.put(line)
        self._lines.put(None)

    def start_node(self, arguments: list[str]) -> None:
        """Start a node with these options of `fieldbrook up`, on free ports."""
        node = RunningNode(self.folder / "data", *arguments)
        self.node = node
        self.ports |= {
            "8888": str(node.http_port),
            "1883": str(node.mqtt_port),
            "3000": str(node.dashboard_port),
        }
        server = f"http://127.0.0.1:{node.http_port}"
        self.run(
            f"export FIELDBROOK_SERVER={server} FIELDBROOK_DATA={node.data}\n"
            + "".join(
                f'mosquitto_{way}() {{ command mosquitto_{way} -p {node.mqtt_port} "$@"; }}\n'
                for way in ("pub", "sub")
            )
        )

    def with_ports(self, text: str) -> str:
        """Replace the usual ports and folders by those of this session."""
        text = text.replace("/var/lib/fieldbrook", f"{self.folder}/data")
        text = re.sub(r"(?<![\w.])(/var/lib|/mnt)/", rf"{self.folder}\1/", text)
        for port, ours in self.ports.items():
            text = re.sub(rf"(localhost|127\.0\.0\.1):{port}\b", rf"127.0.0.1:{ours}", text)
        return text.replace("--port 8545", f"--port {self.ports['8545']}")

    def run(self, text: str) -> tuple[int, str]:
        """Run commands; returns the exit code of the last one that ran and what they printed."""
        text = self.with_ports(text)
        self._count += 1
        mark = f"@@ {self._count} "
        assert self._shell.stdin is not None
        # A subshell would lose the variables; a failure ends the block, not the shell.
        body = " &&\n".join(f"{{ {one}\n}}" for one in complete_commands(text)) or "true"
        self._shell.stdin.write(f"{{ {body}\n}} </dev/null; printf '\\n%s%s\\n' '{mark}' $?\n")
        self._shell.stdin.flush()
        return self._until(mark)

    def _until(self, mark: str) -> tuple[int, str]:
        printed: list[str] = []
        limit = time.monotonic() + LIMIT_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, limit - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no end after {LIMIT_S} s: {''.join(printed)}") from None
            assert line is not None, f"the shell ended: {''.join(printed)}"
            if line.startswith(mark):
                return int(line.removeprefix(mark)), "".join(printed).rstrip("\n")
            printed.append(line)

    def close(self) -> None:
        """End the shell, what it started in the background, and the node."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        self._reader.join()
        for pipe in (self._shell.stdin, self._shell.stdout):
            if pipe is not None:
                pipe.close()
        if self.node is not None:
            self.node.stop()


def complete_commands(text: str) -> list[str]:
    """Split a block into its commands: lines, joined while bash finds them incomplete."""
    commands, open_lines = [], ""
    for line in text.splitlines():
        open_lines += f"{line}\n"
        if not open_lines.strip() or open_lines.strip().startswith("#"):
            open_lines = ""
            continue
        done = subprocess.run(
            ["bash", "-n"], input=open_lines, capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and not done.stderr and not line.endswith("\\"):
            commands.append(open_lines.rstrip())
            open_lines = ""
    if open_lines.strip():
        commands.append(open_lines.rstrip())
    return commands


class Ran(NamedTuple):
    """A step, and its commands with what they printed. Commands that are not drawn are one."""

    step: Step
    parts: list[tuple[str, str]]

    @property
    def output(self) -> str:
        """The output of all its commands."""
        return "\n".join(output for _, output in self.parts)


def run_page(path: Path, folder: Path) -> list[Ran]:
    """Run the steps of a page; return those that ran.

    Raises:
        AssertionError: a command failed, or its output differs from the page.
    """
    script, ran, output = parse(path.read_text("utf-8")), [], ""
    name = path.relative_to(ROOT)
    session = Session(folder)
    try:
        for word in script.setup:
            if session.node is None:
                session.start_node([])
            code, printed = session.run(_SETUP[word])
            assert code == 0, printed
        for step in script.steps:
            where = f"{name}:{step.line}"
            if step.kind == "file":
                target = folder / step.value
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(session.with_ports(step.text))
            elif step.kind == "node":
                words = shlex.split(step.text)
                starts = [i for i, w in enumerate(words) if w in ("up", "scripts/up")]
                assert len(starts) == 1, f"{where}: not one command that starts a node"
                flags = [str(folder / w) if (folder / w).is_file() else w for w in words]
                session.start_node(flags[starts[0] + 1 :])
            elif step.kind == "prints":
                look_for(step, output, where)
            elif step.kind in ("run", "fails"):
                ran.append(Ran(step, []))
                for text in complete_commands(step.text) if step.picture else [step.text]:
                    code, printed = session.run(text)
                    ran[-1].parts.append((text, printed))
                    if code:
                        break
                output = ran[-1].output
                log = session.node.log[-2000:] if session.node and code else ""
                assert (code != 0) == (step.kind == "fails"), f"{where}: {code}\n{output}\n{log}"
    finally:
        session.close()
    return ran


def look_for(step: Step, output: str, where: str) -> None:
    """Find each line of a block in what was printed, in their order."""
    rest = output.splitlines()
    for line in step.text.splitlines():
        pattern = ".*".join(re.escape(piece.strip()) for piece in line.split("..."))
        at = next((i for i, have in enumerate(rest) if re.fullmatch(pattern, have.strip())), None)
        assert at is not None, f"{where}: {line!r} is not printed, but\n{output}"
        rest = rest[at + 1 :]
