"""Monitors of chains: contract logs, transactions and heights that become events.

The early routes name the project after the kind, the later ones before it. The two routes that
create a monitor differ only in the default event type. Lists and single monitors can be read, so
that owners see the progress of their monitors.

Source: interface document, 5.8.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from fieldbrook.core.errors import BadRequestError, BlockchainNotFoundError, FieldError
from fieldbrook.core.model import (
    CHAIN_HEIGHT,
    CHAIN_TX,
    CONTRACT_LOG,
    DEFAULT_EVENT_TYPE,
    ContractAbi,
    Monitor,
    Project,
)
from fieldbrook.gateway.management.framework.answers import Page, page
from fieldbrook.gateway.management.framework.binding import Paging, Sfid, Text
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.chain import contract_events
from fieldbrook.gateway.management.routes.chain.contract_abis import abi_named, entries
from fieldbrook.gateway.management.routes.chain.contract_events import EventError
from fieldbrook.gateway.management.routes.chain.monitor_rows import (
    ChainHeightPage,
    ChainHeightReply,
    ChainTxPage,
    ChainTxReply,
    ContractLogPage,
    ContractLogReply,
    MonitorReply,
    monitor_reply,
)
from fieldbrook.storage.registry.commands.projects.monitors import INVALID_IDS, NOT_FOUND

SEED_EVENT_TYPE = "MONITOR_DEFAULT"
IDS_LIMIT = 100
_ADDRESS = re.compile(r"(0x)?[0-9a-fA-F]{40}\Z")
_HASH = re.compile(r"(0x)?[0-9a-fA-F]{64}\Z")

Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class CreateMonitor(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that all kinds of monitors share."""

    event_type: Text = msgspec.field(default="", name="eventType")
    paused: bool = False


class CreateContractLog(CreateMonitor, frozen=True, kw_only=True):
    """The logs of a contract from `blockStart` on, up to `blockEnd` if it is not 0.

    `event` selects logs by the name or the signature of an event and replaces `topic0`. `abi` is
    the contract's JSON ABI: it declares the event and serves to decode its arguments. `abiName`
    refers to a stored ABI of the project instead.
    """

    chain_id: Whole = msgspec.field(name="chainID")
    address: str = msgspec.field(name="contractAddress")
    block_start: Whole = msgspec.field(name="blockStart")
    block_end: Whole = msgspec.field(default=0, name="blockEnd")
    topic0: str = ""
    topic1: str = ""
    topic2: str = ""
    topic3: str = ""
    event: str = ""
    abi: list[dict[str, Any]] = msgspec.field(default_factory=list)
    abi_name: Text = msgspec.field(default="", name="abiName")

    def command(self, kept: ContractAbi | None = None) -> dict[str, Any]:
        """Check the values (not only their types), and return the arguments for the registry.

        Args:
            kept: the stored ABI that `abiName` refers to.

        Raises:
            BadRequestError: a value is wrong.
        """
        errors = [] if _ADDRESS.match(self.address) else [_wrong("contractAddress", 20)]
        topics = [self.topic0, self.topic1, self.topic2, self.topic3]
        errors += [
            _wrong(f"topic{n}", 32)
            for n, topic in enumerate(topics)
            if topic and not _is_hash(topic)
        ]
        if self.block_end and self.block_end < self.block_start:
            errors.append(FieldError("blockEnd", "lies before blockStart", "body"))
        event = {}
        try:
            event = self._event(self.abi if kept is None else entries(kept))
        except EventError as error:
            errors.append(FieldError("event", str(error), "body"))
        if self.abi and self.abi_name:
            errors.append(FieldError("abiName", "cannot be combined with abi", "body"))
        if errors:
            raise BadRequestError(*errors)
        topics[0] = event.pop("topic", self.topic0)
        return {
            "address": self.address,
            "topics": topics,
            "block_start": self.block_start,
            "block_end": self.block_end,
            "abi_name": self.abi_name,
            **event,
        }

    def _event(self, abi: list[dict[str, Any]]) -> dict[str, str]:
        """Return the registry's fields of the selected event, and its topic."""
        if not self.event and not abi:
            return {}
        chosen = contract_events.select_event(self.event.strip(), abi)
        topic = chosen.event.topic
        if self.topic0 and topic != "0x" + self.topic0.lower().removeprefix("0x"):
            raise EventError(f"topic0 is not that of {chosen.event.signature}")
        return {
            "topic": topic,
            "event": chosen.event.signature,
            "event_abi": contract_events.encode(chosen.event) if chosen.decodable else "",
        }


class CreateChainTx(CreateMonitor, frozen=True, kw_only=True):
    """A transaction, by its hash."""

    chain_id: Whole = msgspec.field(name="chainID")
    tx_hash: str = msgspec.field(name="txAddress")

    def command(self) -> dict[str, Any]:
        """Check the hash, and return the arguments for the registry."""
        if not _is_hash(self.tx_hash):
            raise BadRequestError(_wrong("txAddress", 32))
        return {"tx_hash": self.tx_hash}


class CreateChainHeight(CreateMonitor, frozen=True, kw_only=True):
    """A height of a chain; the chain is given by its id or its name."""

    height: Whole
    chain_id: Whole = msgspec.field(default=0, name="chainID")
    chain_name: Text = msgspec.field(default="", name="chainName")

    def command(self) -> dict[str, Any]:
        """Arguments for the registry."""
        return {"height": self.height, "chain_name": self.chain_name}


class RewindContractLog(msgspec.Struct, frozen=True, kw_only=True):
    """The block at which the monitor begins again."""

    block_start: Whole = msgspec.field(name="blockStart")


class ControlMonitors(msgspec.Struct, frozen=True, kw_only=True):
    """The monitors to pause or to start, 1 to 100."""

    ids: list[Sfid]


class ListMonitors(Paging, frozen=True, kw_only=True):
    """Filters: ids, event types and chains."""

    ids: list[Sfid] = msgspec.field(default_factory=list, name="id")
    event_types: list[str] = msgspec.field(default_factory=list, name="eventType")
    chain_ids: list[Whole] = msgspec.field(default_factory=list, name="chainID")


class _Kind(msgspec.Struct, frozen=True):
    """One kind of monitor: its segment in paths, its name in operations, the body that creates
    one, and the answers with one and with a page of them."""

    kind: str
    name: str
    body: type[Any]
    one: type[MonitorReply]
    page: type[Page[Any]]

    def creates(self, event_type: str) -> Callable[[Call[Any, None]], Any]:
        """Make a function for POST; `event_type` is the default for monitors without one."""

        async def create(call: Call[Any, None]) -> MonitorReply:
            """Create a monitor; an unknown chain is refused."""
            project = own_project(call)
            abi_name: str = getattr(call.body, "abi_name", "")
            named = {"kept": abi_named(call, abi_name)} if abi_name else {}
            monitor = await call.context.registry.call(
                "create_monitor",
                project_id=project.project_id,
                kind=self.kind,
                chain_id=_chain_id(call),
                event_type=call.body.event_type or event_type,
                paused=call.body.paused,
                **call.body.command(**named),
            )
            return _reply(call, monitor, project)

        return create

    async def control(self, call: Call[ControlMonitors, None]) -> None:
        """Pause or start monitors, all of them or none; `cmd` is START or PAUSE."""
        command = call.path["cmd"].upper()
        if command not in ("START", "PAUSE"):
            raise BadRequestError(FieldError("cmd", "expected one of START, PAUSE", "path"))
        if len(call.body.ids) > IDS_LIMIT:
            raise INVALID_IDS[self.kind](
                reason=f"{len(call.body.ids)} ids are more than {IDS_LIMIT}"
            )
        await call.context.registry.call(
            "pause_monitors",
            project_id=own_project(call).project_id,
            kind=self.kind,
            monitor_ids=call.body.ids,
            paused=command == "PAUSE",
        )

    async def list(self, call: Call[None, ListMonitors]) -> Page[Any]:
        """The monitors of this kind in a project, with their progress."""
        project, query = own_project(call), call.query
        found = [
            monitor
            for monitor in call.context.reader.monitors(project.project_id)
            if monitor.kind == self.kind
            and (not query.ids or monitor.monitor_id in query.ids)
            and (not query.event_types or monitor.event_type in query.event_types)
            and (not query.chain_ids or monitor.chain_id in query.chain_ids)
        ]
        data = [_reply(call, monitor, project) for monitor in page(found, query)]
        return self.page(data, len(found))

    async def get(self, call: Call[None, None]) -> MonitorReply:
        """One monitor."""
        project = own_project(call)
        return _reply(call, self.own(call, project), project)

    async def remove(self, call: Call[None, None]) -> None:
        """Remove a monitor: it sends no more events."""
        monitor = self.own(call, own_project(call))
        await call.context.registry.call("remove_monitor", monitor_id=monitor.monitor_id)

    def own(self, call: Call[Any, Any], project: Project) -> Monitor:
        """The monitor that the path names, if it is of this kind and of this project."""
        monitor_id = call.id("monitorID")
        monitor = call.context.reader.monitor(monitor_id)
        if monitor is None or (monitor.project_id, monitor.kind) != (project.project_id, self.kind):
            raise NOT_FOUND[self.kind](monitor=monitor_id)
        return monitor

    def routes(self) -> tuple[Route, ...]:
        """The routes of both generations."""
        seed, later = (
            f"/monitor/{self.kind}/{{projectName}}",
            f"/monitor/x/{{projectName}}/{self.kind}",
        )
        one = "{monitorID}"
        create, listed = f"Create{self.name}", f"List{self.name}"
        control, get, remove = f"Control{self.name}", f"Get{self.name}", f"Remove{self.name}"
        seed_create, later_create = self.creates(SEED_EVENT_TYPE), self.creates(DEFAULT_EVENT_TYPE)
        return (
            Route("POST", seed, create, seed_create, body=self.body, answer=self.one),
            Route("POST", later, create, later_create, body=self.body, answer=self.one),
            Route("PUT", f"{later}/{{cmd}}", control, self.control),
            Route("GET", seed, listed, self.list, answer=self.page),
            Route("GET", f"{later}/datalist", listed, self.list, answer=self.page),
            Route("GET", f"{seed}/{one}", get, self.get, answer=self.one),
            Route("GET", f"{later}/{one}", get, self.get, answer=self.one),
            Route("DELETE", f"{seed}/{one}", remove, self.remove),
            Route("DELETE", f"{later}/{one}", remove, self.remove),
        )


async def rewind(call: Call[RewindContractLog, None]) -> MonitorReply:
    """Replace a monitor of contract logs by an equal one that begins at another block. The new
    monitor sends all logs from there on as new events, also those that were sent before."""
    project, block = own_project(call), call.body.block_start
    monitor = _CONTRACT_LOG.own(call, project)
    if monitor.block_end and monitor.block_end < block:
        reason = f"lies behind blockEnd, {monitor.block_end}"
        raise BadRequestError(FieldError("blockStart", reason, "body"))
    again = await call.context.registry.call(
        "rewind_monitor", monitor_id=monitor.monitor_id, block_start=block
    )
    return _reply(call, again, project)


def _reply(call: Call[Any, Any], monitor: Monitor, project: Project) -> MonitorReply:
    """A monitor with its progress, if its chain's process has stored any."""
    store = call.context.chain_reader(monitor.chain_id)
    chain = next((c for c in call.context.chains if c.id == monitor.chain_id), None)
    if store is None or chain is None:
        return monitor_reply(monitor, project, known=chain is not None)
    cursor = store.cursor(monitor.monitor_id)
    state = store.state()
    return monitor_reply(monitor, project, cursor, state.confirmed, reachable=not state.error)


def _chain_id(call: Call[Any, None]) -> int:
    """The id of the chain that the body names.

    Raises:
        BlockchainNotFoundError: the settings have no chain with this id or name.
    """
    given: int = call.body.chain_id
    name: str = getattr(call.body, "chain_name", "")
    for chain in call.context.chains:
        if (chain.id == given and name in ("", chain.name)) or (not given and chain.name == name):
            return chain.id
    raise BlockchainNotFoundError(chain=given or name or "without id and name")


def _is_hash(text: str) -> bool:
    return _HASH.match(text) is not None


def _wrong(field: str, size: int) -> FieldError:
    return FieldError(field, f"not {size} bytes in hexadecimal digits", "body")


_CONTRACT_LOG = _Kind(
    CONTRACT_LOG, "ContractLog", CreateContractLog, ContractLogReply, ContractLogPage
)
_REWIND = "/monitor/x/{projectName}/contract_log/{monitorID}/rewind"
ROUTES: tuple[Route, ...] = (
    *_CONTRACT_LOG.routes(),
    Route("POST", _REWIND, "RewindContractLog", rewind, answer=ContractLogReply),
    *_Kind(CHAIN_TX, "ChainTx", CreateChainTx, ChainTxReply, ChainTxPage).routes(),
    *_Kind(
        CHAIN_HEIGHT, "ChainHeight", CreateChainHeight, ChainHeightReply, ChainHeightPage
    ).routes(),
)
