"""The HTTP application of the management interface: which handler serves which path.

Source: interface document, section 1.
"""

from __future__ import annotations

import re
from typing import Any

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
from fieldbrook.gateway.management.prefixes import PREFIXES


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
