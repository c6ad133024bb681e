"""The exporter of spans: OpenTelemetry's OTLP over HTTP. No other module imports OpenTelemetry."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from fieldbrook import __version__
from fieldbrook.core.settings import Settings
from fieldbrook.observability.span import TRACE_BYTES, Span

log = logging.getLogger(__name__)

_LIMIT_S = 10.0
_ANSWER_BYTES = 64 << 10
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("fieldbrook", __version__)


class Exporter:
    """Sends spans to the collector; this blocks the calling thread for up to `_LIMIT_S`."""

    def __init__(self, settings: Settings, part: str) -> None:
        """Create the exporter of one process; `part` is its name."""
        # The library logs each failed attempt with a traceback; the node logs one line for all of
        # them.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(
            endpoint=settings.otlp_endpoint,
            headers=settings.otlp_header_fields,
            timeout=_LIMIT_S,
            session=_Session(),
        )
        self._resource = Resource(
            {
                "service.name": "fieldbrook",
                "service.version": __version__,
                "service.instance.id": f"{socket.gethostname()}/{part}",
                "process.pid": os.getpid(),
            }
        )
        self._failing = False

    def export(self, spans: Sequence[Span]) -> bool:
        """Send spans; return whether the collector has accepted them."""
        try:
            result = self._exporter.export([self._readable(span) for span in spans])
            reason = "" if result is SpanExportResult.SUCCESS else "it did not take them"
        except Exception as error:  # noqa: BLE001 - any library may raise; the thread must continue
            reason = str(error) or type(error).__name__
        if bool(reason) is not self._failing:
            self._failing = bool(reason)
            if reason:
                log.warning("spans do not reach the collector and are dropped: %s", reason)
            else:
                log.info("spans reach the collector again")
        return not reason

    def _readable(self, span: Span) -> ReadableSpan:
        own = _context(span.context[:TRACE_BYTES], span.context[TRACE_BYTES:])
        return ReadableSpan(
            name=span.name,
            context=own,
            parent=_context(span.context[:TRACE_BYTES], span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            kind=SpanKind[span.kind],
            instrumentation_scope=_SCOPE,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.began_ns,
            end_time=span.ended_ns,
        )


class _Session(requests.Session):
    """Drops the bodies of answers, which are not needed, and ends a connection with a long body.

    The library itself would read and unpack a whole answer of any length.
    """

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """See `requests.Session`."""
        answer = super().send(request, **{**kwargs, "stream": True})
        ends_at, left = time.monotonic() + _LIMIT_S, _ANSWER_BYTES
        while piece := answer.raw.read1(left, decode_content=False):
            left -= len(piece)
            if left <= 0 or time.monotonic() > ends_at:
                answer.close()
                break
        answer._content = b""
        return answer


def _context(trace: bytes, span: bytes) -> SpanContext:
    return SpanContext(
        int.from_bytes(trace, "big"),
        int.from_bytes(span, "big"),
        is_remote=False,
        trace_flags=_SAMPLED,
    )
