"""A host whose handlers are Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fieldbrook.wasm.run import Run

Handler = Callable[[Run], int]


class PythonHost:
    """Runs Python functions as handlers; a `HandlerFailedError` is the failure of a handler."""

    uses_sql = False
    kept_bytes = 0

    def __init__(self, functions: Mapping[str, Handler]) -> None:
        self._functions = functions
        self.closed = False

    @property
    def handlers(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        assert not self.closed
        try:
            return self._functions[handler](run), ""
        except HandlerFailedError as error:
            return -1, str(error)

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        return []

    def copy(self) -> PythonHost:
        return PythonHost(self._functions)

    def close(self) -> None:
        self.closed = True


class HandlerFailedError(Exception):
    """Ends a handler of a `PythonHost`."""
