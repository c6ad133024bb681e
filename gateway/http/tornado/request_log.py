"""The line of each answered request in the node's log."""

from __future__ import annotations

import logging
from http import HTTPStatus

from tornado import web

from fieldbrook.observability import metrics

log = logging.getLogger(__name__)


def log_request(handler: web.RequestHandler) -> None:
    """Log and count one answer, for Tornado's setting `log_function`.

    Every status is logged at INFO: an answer of 4xx is the client's error, not a warning. Only
    answers with files of the dashboard, and with the log itself, are logged at DEBUG. Otherwise a
    page that follows the log would show little else.
    """
    request = handler.request
    metrics.add(metrics.HTTP_RESPONSES[f"{handler.get_status() // 100}xx"])
    is_minor = request.path.startswith("/ui/") or request.path.endswith("/node_log")
    is_minor &= handler.get_status() in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED)
    log.log(
        logging.DEBUG if is_minor else logging.INFO,
        "%s %s %s %.1f ms",
        request.method,
        request.path,
        handler.get_status(),
        1_000 * request.request_time(),
    )
