"""The last log lines of all processes of the node, for administrators.

Source: ours; the original interface has no such route.
"""

from __future__ import annotations

import logging
from typing import Annotated, Literal

import msgspec

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.management.framework.binding import RowLimit, Sfid, Text
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.observability.node_log import LineFilter, NodeLog, Page, Placed, here

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]

_SEQUENCE_LIMIT = (1 << 63) - 1


class ReadNodeLog(msgspec.Struct, frozen=True, kw_only=True):
    """Lines with a sequence above `after`, oldest first; -20 gives the last 20.

    With `before` the lines come newest first, with sequences below it; `before=0` begins with the
    newest. `level` selects lines that are at least as severe, `contains` those with this text in
    any case, `process` those of a process such as `http:0`, or of all of a kind: `http`.
    """

    after: Annotated[int, msgspec.Meta(ge=-1_000, le=_SEQUENCE_LIMIT)] = 0
    before: Sfid | None = None
    limit: RowLimit = 100
    level: Level | None = None
    contains: Text = ""
    process: Text = ""


class NodeLogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the node's log; `text` of a failure has a traceback in lines of its own."""

    sequence: str
    time: str
    level: str
    logger: str
    process: str
    text: str


class NodeLogPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the node's log.

    `next` is the `after` of the following request, or its `before` if the request had one; it is
    empty when nothing older is left.
    """

    data: list[NodeLogLine]
    following: str = msgspec.field(name="next")


async def read_node_log(call: Call[None, ReadNodeLog]) -> NodeLogPart:
    """A part of the last 5,000 lines (2 MiB at most) that the processes of the node have logged;
    `next` is the `after` of the following request, or its `before` if there was one. Lines of
    processes that have died are there, too."""
    node_log = here.node_log
    if node_log is None:
        raise UnavailableError(what="this system keeps no log in memory")
    page = await call.search(lambda: _search(node_log, call.query))
    following = "" if call.query.before is not None and not page.following else str(page.following)
    return NodeLogPart(data=[_line(placed) for placed in page.lines], following=following)


def _search(node_log: NodeLog, query: ReadNodeLog) -> Page:
    level = logging.getLevelNamesMapping()[query.level] if query.level else 0
    wanted = LineFilter(level, query.contains, query.process)
    if query.before is not None:
        return node_log.read_before(wanted, query.before, query.limit)
    return node_log.read_after(wanted, query.after, query.limit)


def _line(placed: Placed) -> NodeLogLine:
    line = placed.line
    return NodeLogLine(
        sequence=str(placed.sequence),
        time=rfc3339(line.time_ms),
        level=logging.getLevelName(line.level),
        logger=line.logger,
        process=line.process,
        text=line.text,
    )


ROUTES: tuple[Route, ...] = (Route("GET", "/node_log", "ReadNodeLog", read_node_log, Auth.ADMIN),)
