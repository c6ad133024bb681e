"""The command `send`."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from fieldbrook.cli import main
from fieldbrook.cli.remote.events.send import failed


@pytest.mark.parametrize(
    ("result", "is_failure"),
    [
        ({"code": 0, "errMsg": ""}, False),
        ({"code": 1712, "errMsg": ""}, False),
        ({"code": -1, "errMsg": ""}, True),
        ({"code": -1, "errMsg": "wasm trap: unreachable"}, True),
        ({"code": 0, "errMsg": "instance not running"}, True),
    ],
)
def test_a_handler_failed_when_its_code_is_negative_or_it_has_an_error(
    result: dict[str, Any], is_failure: bool
) -> None:
    assert failed(result) is is_failure


class _Dying(BaseHTTPRequestHandler):
    """A node whose project dies on every event."""

    keys: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        body = json.dumps({"key": "OutcomeUnknown", "desc": "the project died"}).encode()
        self.send_response(503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing, because the tests check the output of the command."""


def test_an_event_of_unknown_outcome_can_be_sent_again_by_the_key_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Dying) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        head = ("--server", f"http://127.0.0.1:{server.server_port}")
        sent = ("send", "p", "--publisher", "d", "--token", "t", "--data", "x")
        try:
            assert main.run([*head, *sent]) != 0
            (key,) = _Dying.keys
            assert f"--idempotency-key {key}" in capsys.readouterr().err
            main.run([*head, *sent, "--idempotency-key", key])
            assert _Dying.keys == [key, key]
        finally:
            server.shutdown()
            thread.join()
