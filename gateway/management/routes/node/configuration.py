"""Public facts about the node, which pages and tools need before a sign-in."""

from __future__ import annotations

import json

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.security.node_secrets import SETUP_CODE

_NOT_SHOWN = ""  # an endpoint may contain a key, and any caller of these routes would get it


class EthClientReply(msgspec.Struct, frozen=True):
    """Ids of chains, as JSON in a string: `{"4690": ""}`."""

    clients: str


class ChainConfigReply(msgspec.Struct, frozen=True):
    """Chains, as JSON in a string: a list of objects with `chainID`, `name`, `endpoint`."""

    chains: str


async def show_clients(call: Call[None, None]) -> EthClientReply:
    """The ids of the chains: JSON in a string, each with an endpoint that is not shown."""
    return EthClientReply(json.dumps({str(c.id): _NOT_SHOWN for c in call.context.chains}))


async def show_chains(call: Call[None, None]) -> ChainConfigReply:
    """The ids and names of the chains: JSON in a string, endpoints not shown."""
    chains = [
        {"chainID": chain.id, "name": chain.name, "endpoint": _NOT_SHOWN}
        for chain in call.context.chains
    ]
    return ChainConfigReply(json.dumps(chains))


class NodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """The node's ports. `event` is absent without one, `mqtt` with an external broker."""

    http: int
    mqtt: int | UnsetType = UNSET
    event: int | UnsetType = UNSET


class ChainName(msgspec.Struct, frozen=True, kw_only=True):
    """A chain of the settings."""

    id: int
    name: str


class DashboardReply(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that the dashboard's first page needs.

    `setup` is true while the node has no administrator; only then `setupCodeIn` names the file of
    the setup code. `walletSignIn`: some wallet may sign in. `tls`: the HTTP ports use TLS.
    `publicURL` is the setting `public_url`, absent if that is empty. `cluster`: the node is one of
    several hosts.
    """

    version: str
    setup: bool
    setup_code_in: str | UnsetType = msgspec.field(name="setupCodeIn", default=UNSET)
    wallet_sign_in: bool = msgspec.field(name="walletSignIn")
    ports: NodePorts
    tls: bool
    public_url: str | UnsetType = msgspec.field(name="publicURL", default=UNSET)
    chains: list[ChainName]
    cluster: bool


async def show_dashboard(call: Call[None, None]) -> DashboardReply:
    """Facts for the dashboard: version, ports, chains, and whether the node is to be set up."""
    context, settings = call.context, call.context.settings
    setup = not context.reader.has_administrator()
    return DashboardReply(
        version=context.version,
        setup=setup,
        setup_code_in=str(settings.data.absolute() / "secrets" / SETUP_CODE) if setup else UNSET,
        wallet_sign_in=bool(context.wallets.whitelist) or context.reader.has_wallet(),
        ports=NodePorts(
            http=settings.http_port,
            mqtt=UNSET if settings.mqtt_broker else settings.mqtt_port,
            event=settings.event_port or UNSET,
        ),
        tls=settings.tls_certificate is not None,
        public_url=settings.public_url or UNSET,
        chains=[ChainName(id=chain.id, name=chain.name) for chain in context.chains],
        cluster=context.cluster.known() is not None,
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/configuration/dashboard", "GetDashboard", show_dashboard, auth=Auth.ANYBODY),
    Route("GET", "/configuration/eth_client", "EthClient", show_clients, auth=Auth.ANYBODY),
    Route("GET", "/configuration/chain_config", "ChainConfig", show_chains, auth=Auth.ANYBODY),
)
