"""Endpoints with the limits, the faults and the error texts of public providers, in front of a real
EVM.

The numbers and texts are those that users of such providers have reported; a provider may change
them at any time. `PERSONALITIES` has all of them.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

_CALL = {"Content-Type": "application/json"}


class Refusal(NamedTuple):
    """The error of an endpoint; without a code it is not JSON."""

    text: str
    code: int | None = None
    status: int = 200
    retry_after: str = ""


Words = Callable[[int, int, int], Refusal]
"""What is said of a range, given its first block, its last block, and the limit."""

_NONE = 1 << 62  # no limit
_TOO_FAST = Refusal("Too Many Requests", None, 429)
_NO_BATCHES = Refusal("batch requests are disabled", -32600)


def _exceeded(*_: int) -> Refusal:
    return Refusal("limit exceeded", -32005)


@dataclass(frozen=True)
class Personality:
    """The limits and the faults of one provider.

    Attributes:
        rate: how many calls it accepts in a second; each call of a batch counts.
        too_fast: the error for more calls.
        blocks: the most blocks of one query for logs; `range_words` is the error for more.
        logs: the most logs in one answer; `logs_words` is the error for more.
        cut: the most logs in one answer, where the others are omitted without an error.
        batch: the most calls in a batch; `batch_words` is the error for more.
        latency_s: how long an answer takes.
        slow_blocks: queries over more blocks take too long: half of the answers are cut off, and
            the others are a 504.
        history: the number of newest blocks whose state and logs it has.
        behind: how many of the newest blocks each node behind its address lacks.
    """

    name: str
    rate: float = math.inf
    too_fast: Refusal = _TOO_FAST
    blocks: int = _NONE
    range_words: Words = _exceeded
    logs: int = _NONE
    logs_words: Words = _exceeded
    cut: int = _NONE
    batch: int = 100
    batch_words: Refusal = _NO_BATCHES
    latency_s: float = 0.0
    slow_blocks: int = _NONE
    history: int = _NONE
    behind: tuple[int, ...] = (0,)


def _halves(words: str) -> Words:
    """Return an error text that names a possible range: half of the requested one."""
    return lambda first, last, _: Refusal(f"{words}[{first:#x}, {(first + last) // 2:#x}]", -32005)


PERSONALITIES = {
    each.name: each
    for each in (
        Personality(
            "alchemy",
            rate=25,
            too_fast=Refusal(
                "Your app has exceeded its compute units per second capacity.", 429, 429
            ),
            blocks=10,
            range_words=lambda first, _last, limit: Refusal(
                f"You can make eth_getLogs requests with up to a {limit} block range. Based on "
                f"your parameters, this block range should work: [{first:#x}, "
                f"{first + limit - 1:#x}]",
                -32600,
            ),
        ),
        Personality(
            "infura",
            rate=10,
            too_fast=Refusal("project ID request rate exceeded", -32005, 429),
            blocks=10_000,
            range_words=lambda first, last, limit: Refusal(
                f"range {last - first + 1} exceeds limit of {limit}", -32602
            ),
            logs=1_000,
            logs_words=_halves("query returned more than 1000 results. Try with this block range "),
            history=128,
        ),
        Personality(
            "quicknode",
            rate=15,
            too_fast=Refusal(
                "15/second request limit reached - reduce calls per second or upgrade your "
                "account at quicknode.com",
                -32007,
                429,
            ),
            blocks=10_000,
            range_words=lambda *_: Refusal("eth_getLogs is limited to a 10,000 range", -32614, 413),
        ),
        Personality(
            "ankr",
            rate=30,
            blocks=3_000,
            range_words=lambda *_: Refusal("block range is too wide", -32600),
            batch=5,
        ),
        Personality(
            "drpc",
            rate=40,
            too_fast=Refusal("Too many request, try again later", 15, 429),
            blocks=10_000,
            range_words=lambda *_: Refusal(
                "ranges over 10000 blocks are not supported on freetier", 35, 400
            ),
            slow_blocks=4_000,
            batch=3,
            batch_words=Refusal(
                "Batch of more than 3 requests are not allowed on free tier", 31, 500
            ),
        ),
        Personality(
            "avalanche",
            rate=20,
            too_fast=Refusal("Service Unavailable", None, 503, "1"),
            blocks=2_048,
            range_words=lambda first, last, limit: Refusal(
                f"requested too many blocks from {first} to {last}, maximum is set to {limit}",
                -32000,
            ),
        ),
        Personality(
            "bsc",
            rate=33,
            too_fast=Refusal("method eth_getLogs in batch triggered rate limit", -32005),
            blocks=5_000,
            range_words=lambda *_: Refusal("exceed maximum block range: 5000", -32000),
            logs=400,
        ),
        Personality(
            "gateway",  # a content network before a node
            rate=10,
            too_fast=Refusal("<html>429</html>", None, 429, "1"),
            blocks=800,
            range_words=lambda *_: Refusal("<html>Request Entity Too Large</html>", None, 413),
            batch=1,
            batch_words=Refusal("Bad Request", None, 400),
        ),
        Personality("distant", latency_s=0.8, slow_blocks=500, batch=10),
        Personality(
            "pool",  # nodes of different heights, some without old state, behind one address
            blocks=1_000,
            range_words=lambda *_: Refusal("query timeout exceeded", -32000),
            history=256,
            behind=(0, 1, 2),
        ),
        Personality("iotex", cut=1_000),  # an old node
    )
}
assert len(PERSONALITIES) == 11

_FAULTS = ("502", "drop", "cut", "garbage")


class Provider:
    """An endpoint with a personality, on a port of its own.

    Attributes:
        failures: the share of the requests that fail, at random.
        closed: whether no request is answered.
        calls: the number of calls of each method.
        requests: the number of HTTP requests.
        refused: the number of refused calls, by the error text.
        leaves_out: the blocks whose logs are omitted in answers for a range of blocks.
        lacks: the blocks that are unknown in answers to queries for their logs.
    """

    def __init__(
        self, url: str, personality: Personality, *, failures: float = 0.0, seed: int = 1
    ) -> None:
        self.personality = personality
        self.failures = failures
        self.closed = False
        self.calls: Counter[str] = Counter()
        self.requests = 0
        self.refused: Counter[str] = Counter()
        self.leaves_out: Callable[[int], bool] = lambda _block: False
        self.lacks: Callable[[int], bool] = lambda _block: False
        self._target = url
        self._random = random.Random(seed)
        self._taken: deque[float] = deque()  # times of the calls in the last second
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v2/s3cret-key-of-mine"

    def change(self, **ways: Any) -> None:
        """Change the personality."""
        self.personality = replace(self.personality, **ways)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)

        async def start() -> web.AppRunner:
            self._session = aiohttp.ClientSession()
            app = web.Application(client_max_size=64 << 20)
            app.router.add_post("/{tail:.*}", self._post)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
            return runner

        runner = self._loop.run_until_complete(start())
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.run_until_complete(self._session.close())
        self._loop.close()

    # ---------------------------------------------------------------- answers

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        calls = body if isinstance(body, list) else [body]
        self.requests += 1
        self.calls.update(call["method"] for call in calls)
        ways = self.personality
        if ways.latency_s:
            await asyncio.sleep(ways.latency_s * self._random.uniform(0.9, 1.1))
        if self.closed:
            return await self._failed(request, "drop", b"")
        if isinstance(body, list) and len(body) > ways.batch:
            return self._refuse(ways.batch_words, None)
        if not self._takes(len(calls)):
            return self._refuse(ways.too_fast, None if isinstance(body, list) else body["id"])
        answers = [await self._answer(call) for call in calls]
        for answer in answers:
            if isinstance(answer, Refusal) and (answer.status != 200 or answer.code is None):
                return await self._special(request, answer, calls[0]["id"])
        rows = [
            _error(call["id"], answer) if isinstance(answer, Refusal) else answer
            for call, answer in zip(calls, answers, strict=True)
        ]
        data = json.dumps(rows if isinstance(body, list) else rows[0]).encode()
        if self._random.random() < self.failures:
            return await self._failed(request, self._random.choice(_FAULTS), data)
        return web.Response(body=data, headers=_CALL)

    def _takes(self, calls: int) -> bool:
        now = time.monotonic()
        while self._taken and self._taken[0] <= now - 1.0:
            self._taken.popleft()
        if len(self._taken) + calls > self.personality.rate:
            return False
        self._taken.extend([now] * calls)
        return True

    async def _answer(self, call: dict[str, Any]) -> dict[str, Any] | Refusal:
        method, params = call["method"], call["params"]
        ways = self.personality
        refusal = None
        if method == "eth_getLogs" and "fromBlock" in params[0]:
            first, last = (int(params[0][key], 16) for key in ("fromBlock", "toBlock"))
            refusal = await self._range_refusal(first, last)
        if method == "eth_getLogs" and "blockHash" in params[0]:
            found = await self._pass_on(_made("eth_getBlockByHash", params[0]["blockHash"], False))
            if self.lacks(int((found["result"] or {"number": "0x0"})["number"], 16)):
                return Refusal("unknown block", -32000)
        node = self._random.choice(ways.behind)
        if refusal is None and (node or ways.history < _NONE):
            refusal, call = await self._from_node(node, call)
        if refusal is None:
            answer = await self._pass_on(call)
            if method == "eth_blockNumber":
                answer = {**answer, "result": hex(max(0, int(answer["result"], 16) - node))}
            if method == "eth_getLogs" and "fromBlock" in params[0] and answer.get("result"):
                shown = [
                    log
                    for log in answer["result"]
                    if not self.leaves_out(int(log["blockNumber"], 16))
                ]
                answer = {**answer, "result": shown[: ways.cut]}
            if method != "eth_getLogs" or len(answer.get("result") or ()) <= ways.logs:
                return answer
            refusal = ways.logs_words(first, last, ways.logs)
        self.refused[refusal.text[:40]] += 1
        return refusal

    async def _range_refusal(self, first: int, last: int) -> Refusal | None:
        ways, blocks = self.personality, last - first + 1
        if blocks > ways.blocks:
            return ways.range_words(first, last, ways.blocks)
        if blocks > ways.slow_blocks:
            await asyncio.sleep(0.5)
            return Refusal("", None, self._random.choice((504, 0)))
        return None

    async def _from_node(
        self, behind: int, call: dict[str, Any]
    ) -> tuple[Refusal | None, dict[str, Any]]:
        """Return the error of a node that lacks the newest blocks or old ones, or else the call to
        answer."""
        method, params = call["method"], call["params"]
        head = int((await self._pass_on(_made("eth_blockNumber")))["result"], 16)
        newest, oldest = max(0, head - behind), head - self.personality.history
        if method == "eth_getBlockByNumber" and params[0] not in ("safe", "finalized"):
            if params[0] == "latest":
                return None, {**call, "params": [hex(newest), *params[1:]]}
            if int(params[0], 16) > newest:
                return None, {**call, "params": [hex(1 << 40), *params[1:]]}  # a null
        if method in ("eth_getTransactionReceipt", "eth_getTransactionByHash"):
            found = await self._pass_on(_made("eth_getTransactionReceipt", params[0]))
            if int((found["result"] or {"blockNumber": "0x0"})["blockNumber"], 16) > newest:
                return None, {**call, "params": ["0x" + "00" * 32]}  # a null
        if method == "eth_getTransactionCount" and params[-1] in ("latest", "pending") and behind:
            return None, {**call, "params": [params[0], hex(newest)]}
        if method == "eth_getLogs" and "blockHash" in params[0]:
            found = await self._pass_on(_made("eth_getBlockByHash", params[0]["blockHash"], False))
            if int((found["result"] or {"number": "0x0"})["number"], 16) > newest:
                return Refusal("unknown block", -32000), call
        if method in ("eth_call", "eth_getTransactionCount", "eth_getBalance"):
            block = params[-1]
            if block.startswith("0x") and int(block, 16) < oldest:
                text = self._random.choice(
                    ("project ID does not have access to archive state", "missing trie node")
                )
                return Refusal(text, -32002), call
            if block.startswith("0x") and int(block, 16) > newest:
                return Refusal("header not found", -32000), call
        return None, call

    async def _pass_on(self, call: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(self._target, json=call) as reply:
            answer: dict[str, Any] = await reply.json(content_type=None)
        return answer

    # ---------------------------------------------------------------- faults

    def _refuse(self, refusal: Refusal, call_id: Any) -> web.Response:
        self.refused[refusal.text[:40]] += 1
        headers = {"Retry-After": refusal.retry_after} if refusal.retry_after else {}
        if refusal.code is None:
            return web.Response(text=refusal.text, status=refusal.status, headers=headers)
        data = json.dumps(_error(call_id, refusal)).encode()
        return web.Response(body=data, status=refusal.status, headers=_CALL | headers)

    async def _special(
        self, request: web.Request, refusal: Refusal, call_id: Any
    ) -> web.StreamResponse:
        if refusal.status == 0:
            return await self._failed(request, "cut", b'{"jsonrpc":"2.0","result":[{"addr')
        return self._refuse(refusal, call_id)

    async def _failed(self, request: web.Request, fault: str, data: bytes) -> web.StreamResponse:
        if fault == "502":
            return web.Response(text="<html>502 Bad Gateway</html>", status=502)
        if fault == "garbage":
            return web.Response(text="<html>it works</html>")
        transport = request.transport
        assert transport is not None
        if fault == "cut":
            response = web.StreamResponse(headers={"Content-Length": str(len(data) + 100)})
            await response.prepare(request)
            await response.write(data[: len(data) // 2])
        transport.close()
        return web.Response()


def _made(method: str, *params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 0, "method": method, "params": list(params)}


def _error(call_id: Any, refusal: Refusal) -> dict[str, Any]:
    error = {"code": refusal.code, "message": refusal.text}
    return {"jsonrpc": "2.0", "id": call_id, "error": error}
