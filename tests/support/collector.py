"""An OpenTelemetry collector that keeps the spans it receives: OTLP over HTTP, with protobuf."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.nodes import until

PATH = "/v1/traces"


class Received(NamedTuple):
    """A received span; ids are hexadecimal."""

    name: str
    trace: str
    span: str
    parent: str
    began_ns: int
    ended_ns: int
    failed: str
    attributes: dict[str, Any]
    part: str


class Collector:
    """Keeps spans, and the header fields of the last request. While `closed` is set, it refuses
    spans."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.headers: dict[str, str] = {}
        self.closed = False
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector.take(self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Decode a request; return the status of the answer."""
        if self.closed:
            return 400  # the exporter does not repeat a request after this status
        assert path == PATH
        self.headers = {name.lower(): value for name, value in headers.items()}
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            about = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                assert scope.scope.name == "fieldbrook"
                self.spans += [_received(span, about) for span in scope.spans]
        return 200

    def of_trace(self, trace: str, *names: str) -> dict[str, Received]:
        """Wait until a trace has these spans, and return all its spans by name; each name occurs
        once."""

        def found() -> list[Received]:
            spans = [span for span in tuple(self.spans) if span.trace == trace]
            return spans if {*names} <= {span.name for span in spans} else []

        spans: list[Received] = until(found, f"the spans {names} of {trace}")
        by_name = {span.name: span for span in spans}
        assert len(by_name) == len(spans), spans
        return by_name

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a port of its own."""
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()


def _received(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
        _attributes(span.attributes),
        resource["service.instance.id"].partition("/")[2],
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
