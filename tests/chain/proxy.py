"""An endpoint that can be made to fail: a proxy in front of a real endpoint."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.tools import LIMIT_S

_STATUSES = {"busy": 429, "unavailable": 503, "broken": 500}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Proxy:
    """JSON-RPC over HTTP on a port of its own.

    Set `fault` to `drop` (the connection ends without an answer), `slow` (no answer while the fault
    is set), `busy` (429), `unavailable` (503), `broken` (500), `garbage` (not JSON), `silent` (JSON
    without a result) or "" for none. `chain_id` replaces the id, `head` the number of the newest
    block; `range_limit` and `logs_limit` are the most blocks and logs of one query; `refuses` maps
    methods to errors, and with `forgets` there are no logs.
    """

    def __init__(self, url: str) -> None:
        self.target = url
        self.fault = ""
        self.retry_after = ""
        self.chain_id: int | None = None
        self.head: int | None = None
        self.range_limit = self.logs_limit = 1 << 62
        self.refuses: dict[str, str] = {}
        self.forgets = False
        self.refused = 0  # requests that were refused because of one of these limits
        self.asked: Counter[str] = Counter()
        self.answered = 0
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the endpoint, with a secret that must not be shown."""
        return f"http://127.0.0.1:{self._server.server_port}/v2/s3cret-key-of-mine"

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, body: dict[str, Any]) -> bytes:
        method, params = body["method"], body["params"]
        if method in self.refuses:
            return _error(body, -32000, self.refuses[method])
        if self.forgets and method == "eth_getLogs":
            return _result(body, [])
        if self.head is not None:
            if method == "eth_blockNumber":
                return _result(body, hex(self.head))
            if method == "eth_getBlockByNumber" and params[0] == "latest":
                body = {**body, "params": [hex(self.head), *params[1:]]}
        if self.chain_id is not None and method == "eth_chainId":
            return _result(body, hex(self.chain_id))
        request = urllib.request.Request(  # noqa: S310
            self.target, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        if method == "eth_getLogs" and "fromBlock" in params[0]:
            first, last = (int(params[0][key], 16) for key in ("fromBlock", "toBlock"))
            if last - first >= self.range_limit:
                return self._too_many(body, f"exceed maximum block range: {self.range_limit}")
        with _OPENER.open(request, timeout=LIMIT_S) as reply:
            data: bytes = reply.read()
        if method == "eth_getLogs" and len(json.loads(data)["result"]) > self.logs_limit:
            return self._too_many(body, f"query returned more than {self.logs_limit} results")
        return data

    def _too_many(self, body: dict[str, Any], text: str) -> bytes:
        self.refused += 1
        return _error(body, -32005, text)

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the request's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                calls = body if isinstance(body, list) else [body]
                proxy.asked.update(call["method"] for call in calls)
                fault = proxy.fault
                if fault == "slow":
                    proxy._closed.wait()
                if fault in ("drop", "slow"):
                    self.close_connection = True
                    return
                status = _STATUSES.get(fault, 200)
                if fault in _STATUSES:
                    data = b"no"
                elif fault == "garbage":
                    data = b"<html>it works</html>"
                elif fault == "silent":
                    data = b"{}"
                else:
                    answers = [proxy._answer(call) for call in calls]
                    data = b"[" + b",".join(answers) + b"]" if body is calls else answers[0]
                    proxy.answered += len(calls)
                self.send_response(status)
                if proxy.retry_after:
                    self.send_header("Retry-After", proxy.retry_after)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_arguments: object) -> None:
                """Log nothing, because tests check the log of the node."""

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    self.close_connection = True  # the node did not wait

        return Handler


def _error(body: dict[str, Any], code: int, text: str) -> bytes:
    error = {"code": code, "message": text}
    return json.dumps({"jsonrpc": "2.0", "id": body["id"], "error": error}).encode()


def _result(body: dict[str, Any], result: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode()
