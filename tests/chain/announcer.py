"""A WebSocket endpoint that can be made to fail: a proxy in front of a real endpoint."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

import aiohttp
from aiohttp import WSMsgType, web

from tests.chain.evm import Evm

_PASSED_ON = 64 << 20


class Announcer:
    """JSON-RPC over a WebSocket on a port of its own.

    Set `fault` to `mute` (nothing is answered), `silent` (nothing is announced), `deaf` (pings are
    not answered), `refusing` (subscriptions are refused), `nameless` (the answer has no
    subscription id), `malformed`, `large` or `flooding` (announcements), `garbage` (not JSON),
    `redirecting` or `html` (no WebSocket), or "" for none. `chain_id` replaces the id, `ahead` is
    added to the numbers of announced blocks.
    """

    def __init__(self, evm: Evm) -> None:
        self._target = evm.url.replace("http", "ws")
        self.fault = ""
        self.chain_id: int | None = None
        self.ahead = 0
        self.connects = 0
        self.subscriptions = 0
        self.announced = 0
        self._open: set[web.WebSocketResponse] = set()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        app = web.Application()
        app.router.add_get("/{tail:.*}", self._get)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()
        await self._session.close()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """The address of the endpoint, with a secret that must not be shown."""
        return f"ws://127.0.0.1:{self._port}/v2/s3cret-key-of-mine"

    async def cut(self) -> None:
        """Close all connections."""
        for one in list(self._open):
            await one.close()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        self.connects += 1
        if self.fault == "redirecting":
            raise web.HTTPFound("http://127.0.0.1:9/elsewhere")
        if self.fault == "html":
            return web.Response(text="<html>it works</html>", content_type="text/html")
        here = web.WebSocketResponse(autoping=self.fault != "deaf", max_msg_size=_PASSED_ON)
        await here.prepare(request)
        self._open.add(here)
        try:
            async with self._session.ws_connect(self._target, max_msg_size=_PASSED_ON) as there:
                passing = asyncio.create_task(self._pass_back(there, here))
                async for message in here:
                    if message.type is WSMsgType.TEXT:
                        await self._asked(json.loads(message.data), there, here)
                passing.cancel()
        finally:
            self._open.discard(here)
        return here

    async def _asked(
        self,
        call: dict[str, Any],
        there: aiohttp.ClientWebSocketResponse,
        here: web.WebSocketResponse,
    ) -> None:
        subscribes = call["method"] == "eth_subscribe"
        self.subscriptions += subscribes
        if self.fault == "mute":
            return
        if self.fault == "garbage":
            await here.send_str("<html>it works</html>")
        elif self.chain_id is not None and call["method"] == "eth_chainId":
            await here.send_json({"id": call["id"], "result": hex(self.chain_id)})
        elif self.fault == "refusing" and subscribes:
            error = {"code": -32601, "message": f"no eth_subscribe at {self.url}"}
            await here.send_json({"id": call["id"], "error": error})
        elif self.fault == "nameless" and subscribes:
            await here.send_json({"id": call["id"], "result": None})
        else:
            await there.send_json(call)

    async def _pass_back(
        self, there: aiohttp.ClientWebSocketResponse, here: web.WebSocketResponse
    ) -> None:
        async for message in there:
            if message.type is not WSMsgType.TEXT:
                continue
            body = json.loads(message.data)
            if "method" not in body:
                await here.send_str(message.data)
                continue
            for told in self._announcements(body):
                self.announced += 1
                await here.send_str(told)

    def _announcements(self, body: dict[str, Any]) -> list[str]:
        header = body["params"]["result"]
        header["number"] = hex(int(header["number"], 16) + self.ahead)
        match self.fault:
            case "silent":
                return []
            case "malformed":
                header["number"] = "0xzz"
            case "large":
                header["extraData"] = "0x" + "00" * (2 << 20)
            case "flooding":
                return [json.dumps(body)] * 1_500
        return [json.dumps(body)]
