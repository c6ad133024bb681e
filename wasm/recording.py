"""Records the host calls of a run, for traces and dry runs.

The host functions are unchanged. They use attributes of the run, which are replaced by objects that
record each request and its answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from fieldbrook.core.errors import StatementError
from fieldbrook.core.host_calls import HostCall, Shown, shown
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import (
    ApiCall,
    Capabilities,
    Effect,
    EffectRefusedError,
    Message,
    Metric,
    Run,
    SqlSession,
    Transaction,
)

_CALL_BYTES = 64  # counted for each call in addition to its shown values
T = TypeVar("T")


class RecordLimits(NamedTuple):
    """The limits of a recording: calls, bytes of all calls, and bytes of each value."""

    calls: int
    total_bytes: int
    value_bytes: int


class Recorder:
    """Keeps host calls in order, the first ones up to the limits; `omitted` counts the others.

    `runs` has the strategy of each run that has ended, its duration in microseconds and the size of
    its linear memory in bytes.
    """

    def __init__(self, limits: RecordLimits) -> None:
        self.calls: list[HostCall] = []
        self.runs: list[tuple[int, int, int]] = []
        self.omitted = 0
        self.size = 0
        self._limits = limits
        self._strategy_id = 0
        self._began = time.perf_counter()
        self._refused = False  # the last call was recorded as refused; its log record is next

    def begin(self, run: Run, strategy_id: int) -> None:
        """Start to record the calls of another run; for its SQL session use `session(...)`."""
        self._strategy_id, self._began, self._refused = strategy_id, time.perf_counter(), False
        run.memory_bytes = 0
        unrecorded = run.read
        run.read = self._reader(unrecorded)
        run.writes = _Writes(self, unrecorded)
        run.env = _Environment(self, run.env)
        run.effects = _Effects(self)
        run.logs = _Logs(self)
        run.capabilities = _Capabilities(self, run.capabilities)

    def end(self, run: Run) -> None:
        """Record the duration of the run, including host calls and the recording itself, and its
        memory size."""
        self.runs.append((self._strategy_id, _since(self._began), run.memory_bytes or 0))

    def session(self, session: SqlSession) -> SqlSession:
        """Return a session that records the statements of another one."""
        return _Session(self, session)

    def add(
        self,
        function: str,
        subject: bytes | str,
        result: bytes | str | None = None,
        *,
        before: bytes | None = None,
        error: str = "",
        us: int = 0,
    ) -> HostCall:
        """Record a call that has just ended, unless a limit is reached."""
        elapsed_us = round((time.perf_counter() - self._began) * 1e6)
        call = HostCall(
            function=function,
            strategy_id=self._strategy_id,
            subject=self._shown(subject),
            before=None if before is None else self._shown(before),
            result=None if result is None else self._shown(result),
            error=error[: self._limits.value_bytes],
            at_us=max(elapsed_us - us, 0),
            us=us,
        )
        size = self.size + _size(call)
        if len(self.calls) < self._limits.calls and size <= self._limits.total_bytes:
            self.calls.append(call)
            self.size = size
        else:
            self.omitted += 1
        return call

    def withdraw(self, call: HostCall) -> None:
        """Remove the last call, because it was a part of the next one."""
        if self.calls and self.calls[-1] is call:
            self.calls.pop()
            self.size -= _size(call)
        else:
            self.omitted -= 1

    def refuse(self, function: str, reason: str) -> None:
        """Record that the host refused a call; the text is that of the log record."""
        if not self._refused:
            self.add(function, b"", error=reason)
        self._refused = False

    def timed(self, function: str, subject: bytes | str, work: Callable[[], bytes]) -> bytes:
        """Carry out a call, and record it with its duration and its result or refusal."""
        began = time.perf_counter()
        try:
            result = work()
        except (StatementError, EffectRefusedError) as error:
            self.add(function, subject, error=str(error), us=_since(began))
            self._refused = True
            raise
        self.add(function, subject, result, us=_since(began))
        return result

    def _reader(self, read: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
        def recorded(key: bytes) -> bytes | None:
            began = time.perf_counter()
            value = read(key)
            self.add(abi.WS_GET_DB.name, key, value, us=_since(began))
            return value

        return recorded

    def _shown(self, value: bytes | str) -> Shown:
        data = value.encode("utf-8", "replace") if isinstance(value, str) else value
        return shown(data, self._limits.value_bytes)


def _since(began: float) -> int:
    return round((time.perf_counter() - began) * 1e6)


def _size(call: HostCall) -> int:
    values = (call.subject, call.before, call.result)
    return _CALL_BYTES + len(call.error) + sum(len(value.data) for value in values if value)


class _Writes(dict[bytes, bytes]):
    """The keys that a run wrote. `ws_set_db` looks a key up before it writes it."""

    def __init__(self, recorder: Recorder, read: Callable[[bytes], bytes | None]) -> None:
        super().__init__()
        self._recorder = recorder
        self._read = read
        self._found: HostCall | None = None

    def get(self, key: bytes, default: object = None) -> bytes | None:  # type: ignore[override]  # callers give no default
        value = super().get(key)
        self._found = None
        if value is not None:
            self._found = self._recorder.add(abi.WS_GET_DB.name, key, value)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if self._found is not None:
            self._recorder.withdraw(self._found)
            self._found = None
        before = super().get(key)
        if before is None:
            before = self._read(key)
        self._recorder.add(abi.WS_SET_DB.name, key, value, before=before)
        super().__setitem__(key, value)


class _Environment(Mapping[str, str]):
    """The project's variables."""

    def __init__(self, recorder: Recorder, env: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._env = env

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]  # as hosts call it
        value = self._env.get(key, default)
        self._recorder.add(abi.WS_GET_ENV.name, key, value)
        return value

    def __getitem__(self, key: str) -> str:
        return self._env[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._env)

    def __len__(self) -> int:
        return len(self._env)


class _Effects(list[Effect]):
    """Messages, API calls, metrics and transactions."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def append(self, effect: Effect) -> None:
        match effect:
            case Message(topic=topic, payload=payload):
                self._recorder.add(abi.WS_SEND_MQTT_MSG.name, topic, payload)
            case ApiCall(request=request):
                self._recorder.add(abi.WS_API_CALL.name, request)
            case Metric(value=value):
                self._recorder.add(abi.WS_SUBMIT_METRICS.name, value)
            case Transaction():  # recorded with its duration when it is prepared
                pass
        super().append(effect)


class _Logs(list[tuple[int, str, str]]):
    """Log records of the handler, and reasons why the host refused a call."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def append(self, row: tuple[int, str, str]) -> None:
        level, source, text = row
        if source == abi.SOURCE_GUEST:
            self._recorder.add(abi.WS_LOG.name, abi.level_name(level), text)
        elif source == abi.SOURCE_HOST:
            function, _, reason = text.partition(": ")
            self._recorder.refuse(function, reason)
        super().append(row)


class _Capabilities(Capabilities):
    """The capabilities of a run. Only calls that take noticeable time are recorded here."""

    def __init__(self, recorder: Recorder, below: Capabilities) -> None:
        self._recorder = recorder
        self._below = below
        self.seeded = below.seeded
        self.check_topic = below.check_topic  # type: ignore[method-assign]
        self.api_refusal = below.api_refusal  # type: ignore[method-assign]

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        sent: list[Transaction] = []

        def work() -> bytes:
            sent.append(self._below.send_transaction(run, chain_id, operator, request))
            return sent[0].hash.encode()

        self._recorder.timed(abi.WS_SEND_TX.name, request, work)
        return sent[0]

    def api_transaction(
        self, run: Run, method: str, url: str, event_type: str, request: bytes
    ) -> tuple[int, Transaction | str] | None:
        began = time.perf_counter()
        answer = self._below.api_transaction(run, method, url, event_type, request)
        if answer is not None:
            sent = answer[1]
            result, error = (None, sent) if isinstance(sent, str) else (sent.hash, "")
            self._recorder.add(
                *(abi.WS_API_CALL.name, request, result), error=error, us=_since(began)
            )
        return answer

    def call_contract(self, run: Run, chain_id: int | None, request: bytes) -> bytes:
        return self._recorder.timed(
            abi.WS_CALL_CONTRACT.name,
            request,
            lambda: self._below.call_contract(run, chain_id, request),
        )


class _Session:
    """A SQL session."""

    def __init__(self, recorder: Recorder, below: SqlSession) -> None:
        self._recorder = recorder
        self._below = below

    def query(self, request: bytes, ends_at: float) -> bytes:
        """See `SqlSession.query`."""
        return self._recorder.timed(
            abi.WS_GET_SQL_DB.name, request, lambda: self._below.query(request, ends_at)
        )

    def execute(self, request: bytes, ends_at: float) -> None:
        """See `SqlSession.execute`."""

        def work() -> bytes:
            self._below.execute(request, ends_at)
            return b""

        self._recorder.timed(abi.WS_SET_SQL_DB.name, request, work)
