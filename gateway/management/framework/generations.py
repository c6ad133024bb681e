"""The generations of clients that use a route.

The lists name routes by method and path. They leave out the names of path parameters, because
the generations name these differently.

Source: interface document, sections 2 and 2b.
"""

from __future__ import annotations

import re

from fieldbrook.gateway.management.framework.route import Route

SEED = frozenset(
    {
        "GET /account/operatoraddr",
        "PUT /account/{}",
        "DELETE /applet/{}",
        "GET /applet/{}",
        "POST /applet/{}",
        "PUT /applet/{}",
        "GET /applet/{}/{}",
        "PUT /applet/{}/{}",
        "POST /cronjob/{}",
        "DELETE /cronjob/{}/{}",
        "GET /deploy/applet/{}",
        "POST /deploy/applet/{}",
        "POST /deploy/applet/{}/{}",
        "GET /deploy/instance/{}",
        "PUT /deploy/{}/{}",
        "PUT /login",
        "PUT /login/eth",
        "PUT /login/wallet",
        "POST /monitor/chain_height/{}",
        "DELETE /monitor/chain_height/{}/{}",
        "POST /monitor/chain_tx/{}",
        "DELETE /monitor/chain_tx/{}/{}",
        "POST /monitor/contract_log/{}",
        "DELETE /monitor/contract_log/{}/{}",
        "GET /project",
        "POST /project",
        "DELETE /project/{}",
        "GET /project/{}",
        "GET /project_config/{}/PROJECT_ENV",
        "POST /project_config/{}/PROJECT_ENV",
        "GET /project_config/{}/PROJECT_SCHEMA",
        "POST /project_config/{}/PROJECT_SCHEMA",
        "DELETE /publisher/{}",
        "GET /publisher/{}",
        "POST /publisher/{}",
        "PUT /publisher/{}/{}",
        "POST /register/admin",
        "GET /resource",
        "DELETE /resource/{}",
        "DELETE /strategy/{}",
        "GET /strategy/{}",
        "POST /strategy/{}",
        "GET /strategy/{}/{}",
        "PUT /strategy/{}/{}",
    }
)
"""Routes of the early clients, until April 2023."""

LATER = frozenset(
    {
        "PUT /account",
        "GET /account/operatoraddr",
        "POST /account_access_key",
        "GET /account_access_key/data/{}",
        "GET /account_access_key/datalist",
        "GET /account_access_key/operator_group_metas",
        "DELETE /account_access_key/{}",
        "PUT /account_access_key/{}",
        "DELETE /applet/data/{}",
        "GET /applet/data/{}",
        "DELETE /applet/x/{}",
        "POST /applet/x/{}",
        "GET /applet/x/{}/datalist",
        "PUT /applet/{}",
        "GET /configuration/chain_config",
        "GET /configuration/eth_client",
        "DELETE /cronjob/data/{}",
        "GET /cronjob/{}",
        "POST /cronjob/{}",
        "GET /deploy/applet/{}",
        "POST /deploy/applet/{}",
        "DELETE /deploy/data/{}",
        "GET /deploy/instance/{}",
        "DELETE /deploy/x/{}",
        "PUT /deploy/{}/{}",
        "PUT /login",
        "PUT /login/wallet",
        "POST /monitor/x/{}/chain_height",
        "DELETE /monitor/x/{}/chain_height/{}",
        "PUT /monitor/x/{}/chain_height/{}",
        "POST /monitor/x/{}/chain_tx",
        "DELETE /monitor/x/{}/chain_tx/{}",
        "PUT /monitor/x/{}/chain_tx/{}",
        "POST /monitor/x/{}/contract_log",
        "DELETE /monitor/x/{}/contract_log/{}",
        "PUT /monitor/x/{}/contract_log/{}",
        "POST /operator",
        "DELETE /operator/data/{}",
        "GET /operator/datalist",
        "POST /project",
        "GET /project/datalist",
        "GET /project/detail_list",
        "DELETE /project/x/{}",
        "GET /project/x/{}/data",
        "GET /project_config/x/{}/PROJECT_DATABASE",
        "POST /project_config/x/{}/PROJECT_DATABASE",
        "GET /project_config/x/{}/PROJECT_ENV",
        "POST /project_config/x/{}/PROJECT_ENV",
        "GET /project_config/x/{}/PROJECT_FLOW",
        "POST /project_config/x/{}/PROJECT_FLOW",
        "GET /project_operator/data/{}",
        "DELETE /project_operator/{}",
        "POST /project_operator/{}/{}",
        "DELETE /publisher/data/{}",
        "GET /publisher/data/{}",
        "DELETE /publisher/x/{}",
        "GET /publisher/x/{}",
        "POST /publisher/x/{}",
        "POST /publisher/x/{}/anonymous",
        "POST /publisher/x/{}/upsert",
        "PUT /publisher/x/{}/{}",
        "POST /register/admin",
        "GET /resource",
        "GET /resource/data/{}",
        "GET /resource/url/{}",
        "DELETE /resource/{}",
        "DELETE /strategy/data/{}",
        "GET /strategy/data/{}",
        "DELETE /strategy/x/{}",
        "POST /strategy/x/{}",
        "GET /strategy/x/{}/datalist",
        "PUT /strategy/{}",
        "GET /traffic/data/{}",
        "DELETE /traffic/x/{}",
        "POST /traffic/x/{}",
        "DELETE /traffic/x/{}/data/{}",
        "GET /traffic/x/{}/datalist",
        "PUT /traffic/x/{}/{}",
        "DELETE /wasmlog/{}",
    }
)
"""Routes of the later clients, until November 2023."""

_PARAMETER = re.compile(r"\{[^{}]*+\}")


def shape(route: Route) -> str:
    """Method and path of a route in the form of the lists."""
    return f"{route.method} {_PARAMETER.sub('{}', route.pattern)}"


def generations(route: Route) -> tuple[str, ...]:
    """The generations of a route: `S1`, `L` or both; none for a route that we added."""
    name = shape(route)
    return tuple(word for word, known in (("S1", SEED), ("L", LATER)) if name in known)
