"""An endpoint that a test can delay, break or close: a proxy in front of a real endpoint."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.tools import LIMIT_S

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Held:
    """Requests of one method that are held before they reach the endpoint or, with `answers`, after
    it has answered them."""

    def __init__(self, method: str, answers: bool) -> None:
        self.method, self.answers = method, answers
        self.arrived = threading.Event()
        self.released = threading.Event()

    def hold(self) -> None:
        """Hold a request until the test releases it."""
        self.arrived.set()
        self.released.wait(LIMIT_S)


class Gate:
    """Listens on a port of its own and forwards to the endpoint at `url`."""

    def __init__(self, url: str) -> None:
        self._behind = url
        self._held: Held | None = None
        self.closed = False  # every request is answered 503
        self.seen: list[str] = []  # methods, in the order of their requests
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                # A client that was killed does not wait for its answer.
                with suppress(OSError):
                    status, answer = gate.answer(body)
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.send_header("Content-Type", "application/json")
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, body: bytes) -> tuple[int, bytes]:
        """Return status and body for one request."""
        calls = json.loads(body)
        methods = [call["method"] for call in (calls if isinstance(calls, list) else [calls])]
        self.seen += methods
        held = self._held
        holds = held is not None and held.method in methods
        if held is not None and holds and not held.answers:
            held.hold()
        if self.closed:
            return 503, b"{}"
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._behind, body, kind)  # noqa: S310
        with _OPENER.open(request, timeout=LIMIT_S) as reply:
            answer = reply.read()
        if held is not None and holds and held.answers:
            held.hold()
        return 200, answer

    @contextmanager
    def holding(self, method: str, *, answers: bool = False) -> Iterator[Held]:
        """Hold requests of a method until the end of the block."""
        self._held = held = Held(method, answers)
        try:
            yield held
        finally:
            self._held = None
            held.released.set()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
