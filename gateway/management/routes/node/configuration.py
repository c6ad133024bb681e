"""The chains of the settings, in the form that tools of the later generation read."""

from __future__ import annotations

import json
from typing import Annotated

from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.framework.views import Json
from fieldbrook.gateway.management.openapi import shapes

_NOT_SHOWN = ""  # an endpoint may hold a key, and any caller of these routes would see it


async def show_clients(call: Call[None, None]) -> Annotated[Json, shapes.EthClientReply]:
    """The ids of the chains: JSON in a string, each with an endpoint that is not shown."""
    return {"clients": json.dumps({str(c.id): _NOT_SHOWN for c in call.context.chains})}


async def show_chains(call: Call[None, None]) -> Annotated[Json, shapes.ChainConfigReply]:
    """The ids and names of the chains: JSON in a string, endpoints not shown."""
    chains = [
        {"chainID": chain.id, "name": chain.name, "endpoint": _NOT_SHOWN}
        for chain in call.context.chains
    ]
    return {"chains": json.dumps(chains)}


ROUTES: tuple[Route, ...] = (
    Route("GET", "/configuration/eth_client", "EthClient", show_clients, auth=Auth.ANYBODY),
    Route("GET", "/configuration/chain_config", "ChainConfig", show_chains, auth=Auth.ANYBODY),
)
