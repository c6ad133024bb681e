"""A project's settings for chains: its spending limit, and answers while a chain is unavailable."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fieldbrook.core.model import CHAIN_CODE, PROJECT_CHAINS, PROJECT_SPENDING
from fieldbrook.gateway.management.framework.answers import as_stored
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.projects.configurations.stored import (
    LATER,
    ConfigReply,
    put,
    stored_value,
)


class SpendingReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The daily spending limit of a project, in wei as decimal text."""

    wei_per_day: str


class ChainsReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to events of a project while a chain is unavailable: `CODE` or `RETRY`."""

    unavailable: str


class SpendingLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of what a project's transactions may cost per day (UTC), fees included, in wei
    as decimal text."""

    wei_per_day: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,78}$")] = msgspec.field(
        name="weiPerDay"
    )


class ChainConduct(msgspec.Struct, frozen=True, kw_only=True):
    """What an event is answered while a chain is unavailable that its handler needs: `CODE`, the
    handler's code, because `ws_send_tx` returned -1; or `RETRY`, 503, and nothing of the event
    stays."""

    unavailable: Literal["CODE", "RETRY"]


async def set_spending(call: Call[SpendingLimit, None]) -> ConfigReply:
    """Set the daily spending limit of a project's transactions."""
    return await put(call, PROJECT_SPENDING, msgspec.json.encode(call.body))


async def get_spending(call: Call[None, None]) -> SpendingReply:
    """The daily spending limit of a project's transactions."""
    return as_stored(stored_value(call, PROJECT_SPENDING), SpendingReply)


async def set_chains(call: Call[ChainConduct, None]) -> ConfigReply:
    """Set what events of a project are answered while a chain is unavailable."""
    return await put(call, PROJECT_CHAINS, msgspec.json.encode(call.body))


async def get_chains(call: Call[None, None]) -> ChainsReply:
    """The answer to events of a project while a chain is unavailable."""
    default = msgspec.json.encode({"unavailable": CHAIN_CODE})
    return as_stored(stored_value(call, PROJECT_CHAINS, default), ChainsReply)


ROUTES: tuple[Route, ...] = (
    Route("POST", f"{LATER}/{PROJECT_SPENDING}", "CreateOrUpdateProjectSpending", set_spending),
    Route("GET", f"{LATER}/{PROJECT_SPENDING}", "GetProjectSpending", get_spending),
    Route("POST", f"{LATER}/{PROJECT_CHAINS}", "CreateOrUpdateProjectChains", set_chains),
    Route("GET", f"{LATER}/{PROJECT_CHAINS}", "GetProjectChains", get_chains),
)
