"""Requests to a project that are not events, over a connection of their own to its worker."""

from __future__ import annotations

import asyncio
from typing import Any

from fieldbrook.actors.wire import LOST, NOT_HERE, frame, pack
from fieldbrook.gateway.chain_client import read_frame


async def ask_project(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    project_id: int,
    request: dict[str, Any],
) -> Any:
    """Send one request to a project and return its answer.

    Args:
        reader, writer: a connection to the project's worker without other unanswered requests.
        project_id: the project.
        request: the body of the request, e.g. for outbox entries (see `actors.wire`).

    Raises:
        EOFError, OSError: the connection ended, or the project does not run in this worker any
            more (asyncio.IncompleteReadError is an EOFError).
        ValueError: the answer is malformed.
    """
    writer.write(frame(pack([(project_id, request)])))
    answers = await read_frame(reader)
    if type(answers) is not tuple or len(answers) != 1 or type(answers[0]) is not tuple:
        raise ValueError("the answer is not a list of one pair")
    answered, answer = answers[0]
    if answered != project_id:
        raise ValueError(f"the answer is about project {answered!r}")
    if answer in (NOT_HERE, LOST):
        raise EOFError(f"project {project_id} does not run in this worker")
    return answer
