"""The HTTP application of the management interface: which handler serves which path.

Source: interface document, section 1.
"""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any

from tornado import web
from tornado.routing import PathMatches

from fieldbrook.gateway.management.base_handler import Services
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.live.websocket import StreamHandler, UpgradeTo
from fieldbrook.gateway.management.management_handler import ManagementHandler
from fieldbrook.gateway.management.node_pages import (
    DescriptionHandler,
    DescriptionPageHandler,
    LivenessHandler,
    MetricsHandler,
    ReadinessHandler,
    RootHandler,
    UnknownPathHandler,
    VersionHandler,
)
from fieldbrook.gateway.management.route_table import PREFIXES
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)


def make_application_routes(context: ManagementContext, *, management: bool = True) -> list[Any]:
    """Build the rules for `tornado.web.Application`. Mount them last: they match every path.

    The rules cover the management routes under both prefixes (if `management` is set), the node's
    own pages, and an answer for every unknown path.
    """
    services = {"services": Services(context)}
    prefix = "|".join(re.escape(prefix) for prefix in PREFIXES)
    misspelt_events = [(rf"(?:{prefix})(/event/.*)", ManagementHandler, services)]
    stream = (UpgradeTo(rf"(?:{prefix})/stream"), StreamHandler, services)
    managing = [
        (rf"(?:{prefix})(/.*)", ManagementHandler, services),
        (r"/srv-applet-mgr", DescriptionHandler, services),
        (r"/srv-applet-mgr/docs", DescriptionPageHandler, services),
        (r"/metrics", MetricsHandler, services),
    ]
    served = [
        *(managing if management else misspelt_events),
        (r"/", RootHandler, services),
        (r"/liveness", LivenessHandler, services),
        (r"/readiness", ReadinessHandler, services),
        (r"/version", VersionHandler, services),
    ]
    paths = tuple(PathMatches(pattern).regex for pattern, *_ in served)
    streams = [stream] if management else []
    return [*streams, *served, (r".*", UnknownPathHandler, {**services, "paths": paths})]


def log_request(handler: web.RequestHandler) -> None:
    """Log and count one answer, for Tornado's setting `log_function`.

    Every status is logged at INFO: an answer of 4xx is the client's error, not a warning. Only
    answers with files of the dashboard, and with the log itself, are logged at DEBUG: a page that
    follows the log would show little else.
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
