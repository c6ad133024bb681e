"""A bare Tornado RequestHandler that does the work of an event, or of a batch of them.

python -m benchmarks.baselines.tornado_server PORT FOLDER
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tornado import web

from benchmarks.baselines.work import TokenError, Work


class Event(web.RequestHandler):
    """What is posted to a project."""

    work: Work

    def post(self, project: str) -> None:
        """Answer 201, or 401 when the token is not the publisher's."""
        try:
            answer = self.work.answer(self.request.body)
        except TokenError:
            self.set_status(401)
            return
        self.set_status(201)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(answer))


def _quiet(handler: web.RequestHandler) -> None:
    """No access log: a line per request would be measured too."""


async def main(port: int, folder: Path) -> None:
    """Serve until the process is ended."""
    Event.work = Work(folder)
    application = web.Application([(r"/srv-applet-mgr/v0/event/(\w+)", Event)], log_function=_quiet)
    application.listen(port, "127.0.0.1")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
