"""The flow of a project: stored and answered, for clients that expect it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fieldbrook.core.model import PROJECT_FLOW
from fieldbrook.gateway.management.framework.answers import as_stored
from fieldbrook.gateway.management.framework.binding import Text
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.projects.configurations.stored import (
    LATER,
    ConfigReply,
    put,
    stored_value,
)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a flow: events of these types."""

    strategies: list[Text]


class Operator(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a flow."""

    op_type: Literal["FILTER", "MAP", "FLATMAP", "WINDOW", "GROUP", "REDUCE"] = msgspec.field(
        name="opType"
    )
    wasm_func: Text = msgspec.field(default="", name="wasmFunc")
    parallel: Annotated[int, msgspec.Meta(ge=0)] = 0


class TableSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table as the end of a flow."""

    endpoint: str = ""
    db_type: str = msgspec.field(default="", name="DBType")
    table: str = ""
    columns: list[str] = msgspec.field(default_factory=list)


class ChainSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chain as the end of a flow."""

    chain_id: int = msgspec.field(default=0, name="chainID")


class SinkInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The table or the chain of a sink."""

    table: TableSink = msgspec.field(default_factory=TableSink, name="DBInfo")
    chain: ChainSink = msgspec.field(default_factory=ChainSink, name="chainBlock")


class Sink(msgspec.Struct, frozen=True, kw_only=True):
    """The sink of a flow."""

    kind: Literal["RMDB", "BLOCKCHAIN"] = msgspec.field(name="sinkType")
    info: SinkInfo = msgspec.field(default_factory=SinkInfo, name="sinkInfo")


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Events that pass through operators into a sink. The node stores flows but runs none."""

    source: Source
    operators: list[Operator] = msgspec.field(default_factory=list)
    sink: Sink


_EMPTY_FLOW = msgspec.json.encode(
    {
        "source": {"strategies": None},
        "operators": None,
        "sink": {"sinkType": "", "sinkInfo": {"DBInfo": {}, "chainBlock": {}}},
    }
)
"""The defaults of projects without a configuration of that kind (interface document, 13)."""


class StoredSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a flow: events of these types, or null in an empty flow."""

    strategies: list[str] | None


class StoredSink(msgspec.Struct, frozen=True, kw_only=True):
    """The sink of a flow; `sinkType` is empty in an empty flow."""

    kind: str = msgspec.field(name="sinkType")
    info: SinkInfo = msgspec.field(name="sinkInfo")


class StoredFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The flow of a project."""

    source: StoredSource
    operators: list[Operator] | None
    sink: StoredSink


async def set_flow(call: Call[Flow, None]) -> ConfigReply:
    """Store a flow."""
    return await put(call, PROJECT_FLOW, msgspec.json.encode(call.body))


async def get_flow(call: Call[None, None]) -> StoredFlow:
    """The flow of a project; an empty one if none was stored."""
    return as_stored(stored_value(call, PROJECT_FLOW, _EMPTY_FLOW), StoredFlow)


ROUTES: tuple[Route, ...] = (
    Route("POST", f"{LATER}/{PROJECT_FLOW}", "CreateOrUpdateProjectFlow", set_flow),
    Route("GET", f"{LATER}/{PROJECT_FLOW}", "GetProjectFlow", get_flow),
)
