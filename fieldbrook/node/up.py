"""`fieldbrook up`: run a complete node in the foreground, without another supervisor.

It runs the embedded broker (unless the settings name an external one) and the node, restarts
either when it dies, and stops both, the node first, at SIGINT, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fieldbrook.actors.supervisor.restarts import Restarts
from fieldbrook.core.errors import NodeError, SettingsError
from fieldbrook.core.settings import (
    SECRETS_VARIABLE,
    Settings,
    as_environment,
    clean_environment,
    secrets_of,
)
from fieldbrook.observability import logs, node_log
from fieldbrook.security import tls
from fieldbrook.storage import data_lock
from fieldbrook.system.process import die_with_parent, keep_memory_private, module_command

log = logging.getLogger(__name__)

_NODE_STOP_S = 17.0  # workers write what the stores lack for up to 10 s, see `main.py`
_BROKER_STOP_S = 0.8
_TICK_S = 0.05
_RENEWAL_S = 1.0
CANNOT_START = 2  # the node's exit code when it cannot start; a restart does not help


@dataclass(slots=True)
class Program:
    """A child process that is kept running for as long as this process runs."""

    name: str
    command: list[str]
    environment: dict[str, str]
    stop_s: float
    lock: int
    cannot_start: int = CANNOT_START
    secrets: bytes = b""
    descriptors: Sequence[int] = ()
    process: subprocess.Popen[bytes] | None = None
    restarts: Restarts = field(default_factory=Restarts)
    started: float = 0.0
    start_at: float = 0.0

    def start(self) -> None:
        """Start it in a session of its own, so that a Ctrl-C reaches only this process."""
        self.started = time.monotonic()
        environment, passed = {**os.environ, **self.environment}, []
        if self.secrets:
            # Not in the environment, which can be read for as long as the process lives.
            passed = [_pipe_with(self.secrets)]
            environment[SECRETS_VARIABLE] = str(passed[0])
        try:
            self.process = subprocess.Popen(
                self.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[*passed, *self.descriptors, self.lock],
                preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has no threads
            )
        finally:
            for descriptor in passed:
                os.close(descriptor)

    def watch(self) -> int | None:
        """Restart the program when it has died and its backoff has passed.

        Returns:
            The exit code when the program has just died, else None.
        """
        now = time.monotonic()
        if self.process is None:
            if now >= self.start_at:
                self.start()
            return None
        code = self.process.poll()
        if code is None:
            return None
        self.process = None
        if code == self.cannot_start and not self.restarts.failures:
            return code  # it has logged the reason; a restart cannot help
        self.restarts = self.restarts.after_exit(now - self.started)
        self.start_at = now + self.restarts.delay_s
        log.error(
            "%s ended with code %d; it restarts in %.1f s", self.name, code, self.start_at - now
        )
        return code

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the program does not end within `stop_s`."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(self.stop_s)
        except subprocess.TimeoutExpired:
            log.error("killed %s, which did not stop within %.1f s", self.name, self.stop_s)
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def _pipe_with(content: bytes) -> int:
    """Make a pipe that holds `content`; returns the descriptor of its reading end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        if os.write(writing, content) < len(content):
            raise SettingsError(reason=f"the secret settings are too long: {len(content)} bytes")
    finally:
        os.close(writing)
    return reading


def run(settings: Settings) -> int:
    """Run until SIGINT, SIGTERM or SIGHUP; returns the exit code, 0 after a clean stop."""
    stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    logs.configure(settings.log_level, settings.log_format)
    node_log.start("up")
    for warning in settings.warnings:
        log.warning("%s", warning)
    if not settings.core_dumps:
        keep_memory_private()
    clean_environment()
    try:
        tls.check(settings)
        lock = data_lock.acquire_data_lock(settings.data.absolute())
        programs = _programs(settings, lock)
    except NodeError as error:
        log.critical("%s", error)
        return CANNOT_START
    code = 0
    for program in programs:
        program.start()
    while not stopping:
        for program in programs:
            if program.watch() == program.cannot_start and not program.restarts.failures:
                stopping, code = True, CANNOT_START
        time.sleep(_TICK_S)
    for program in reversed(programs):
        program.stop()
    return code


def _programs(settings: Settings, lock: int) -> list[Program]:
    log_variable, log_descriptors = node_log.passed_on()
    environment = {
        **as_environment(settings),
        **log_variable,
        data_lock.LOCK_VARIABLE: str(lock),
    }
    node = Program(
        "the node",
        module_command("fieldbrook", "node"),
        environment,
        _NODE_STOP_S,
        lock,
        secrets=secrets_of(settings),
        descriptors=log_descriptors,
    )
    return [node]
