"""The work of an event in plain Python: JSON, token by table, base64, and what the event asks for.

`SUM` adds the payload's bytes up, `KV` also keeps the sum under a key, `TALLY` counts, `SPIN`
computes in WebAssembly as the node does, for it would mean nothing in Python. What is kept is
kept in memory.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

_GOOD = {"instanceID": "baseline", "code": 0, "errMsg": ""}


class TokenError(Exception):
    """The token is not the publisher's."""


class Work:
    """Args:
    folder: has `tokens.json`, the token of each publisher, and `work.wasm`.
    """

    def __init__(self, folder: Path) -> None:
        self._tokens: dict[str, str] = json.loads((folder / "tokens.json").read_text())
        self._module = folder / "work.wasm"
        self._spin: Callable[[bytes], int] | None = None
        self._kept: dict[str, int] = {"count": 0}

    def answer(self, body: bytes) -> object:
        """Do the work of a data message, or of each of a batch; returns what to answer.

        Raises:
            TokenError: of any of them.
        """
        message = json.loads(body)
        if "events" in message:
            return [
                {"wasmResults": [_GOOD], "result": self._work(event)} for event in message["events"]
            ]
        return {"results": [_GOOD], "result": self._work(message)}

    def handle(self, body: bytes | bytearray) -> int:
        """Do the work of one data message; returns what it computed.

        Raises:
            TokenError: and nothing was done.
        """
        return self._work(json.loads(body))

    def _work(self, message: Any) -> int:
        header = message["header"]
        if self._tokens.get(header["pub_id"]) != header["token"]:
            raise TokenError
        payload = base64.b64decode(message["payload"], validate=True)
        kind = header["event_type"]
        if kind == "SPIN":
            self._spin = self._spin or _load_spin(self._module)
            return self._spin(payload)
        total = sum(payload)
        if kind == "KV":
            self._kept["sum"] = total
        elif kind == "TALLY":
            self._kept["count"] += 1
            return self._kept["count"]
        return total


def _load_spin(module: Path) -> Callable[[bytes], int]:
    # Not at the top: it takes memory and time that the other kinds of work do not need.
    from wasmtime import Func, Instance, Memory, Module, Store

    store = Store()
    exports = Instance(store, Module.from_file(store.engine, str(module)), []).exports(store)
    memory, spin = exports["memory"], exports["spin"]
    assert isinstance(memory, Memory)
    assert isinstance(spin, Func)

    def run(payload: bytes) -> int:
        memory.write(store, payload, 1024)
        return int(spin(store, 1024, len(payload)))

    return run
