"""The baseline: the same work in a bare Tornado RequestHandler, nothing kept.

It parses the data message, looks the token up in a table, decodes the payload, sums its
bytes in Python and answers a small JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys

from tornado import web


class Event(web.RequestHandler):
    """One event."""

    tokens: dict[str, str]

    def post(self, project: str) -> None:
        """The work of an event."""
        message = json.loads(self.request.body)
        header = message["header"]
        if self.tokens.get(header["pub_id"]) != header["token"]:
            self.set_status(401)
            return
        total = sum(base64.b64decode(message["payload"], validate=True))
        self.set_status(201)
        self.finish({"results": [{"instanceID": project, "code": 0, "errMsg": ""}], "sum": total})


def _quiet(handler: web.RequestHandler) -> None:
    """No access log: a line per request would be measured too."""


async def main() -> None:
    """Serve on the port given first; the table of tokens is read from the file given second."""
    with open(sys.argv[2], encoding="utf-8") as table:  # noqa: ASYNC230, PTH123 - at start only
        Event.tokens = json.load(table)
    application = web.Application([(r"/srv-applet-mgr/v0/event/(\w+)", Event)], log_function=_quiet)
    application.listen(int(sys.argv[1]), "127.0.0.1")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
