"""The order in which requests wait for an endpoint, and abandoned requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fieldbrook.chain.rpc import transport
from fieldbrook.chain.rpc.request_queue import RequestQueue
from fieldbrook.chain.rpc.transport import BatchRefusedError, HttpTransport, TransportError


class Endpoint:
    """Answers one request after the other, as many as `let` allows."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._free = asyncio.Semaphore(0)

    def let(self, requests: int) -> None:
        for _ in range(requests):
            self._free.release()

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        self.asked.append(method)
        await self._free.acquire()
        return {"result": params}

    async def close(self) -> None:
        pass


def _waiting(queue: RequestQueue, method: str, count: int, urgent: bool) -> list[Any]:
    return [asyncio.create_task(queue.send(method, [], 9.0, urgent=urgent)) for _ in range(count)]


async def _turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_some_of_the_others_go_between_urgent_requests() -> None:
    endpoint = Endpoint()
    queue = RequestQueue(endpoint)
    work = _waiting(queue, "block", 5, urgent=False)
    work += _waiting(queue, "nonce", 20, urgent=True)
    endpoint.let(25)
    await asyncio.gather(*work)
    assert sorted(endpoint.asked) == 5 * ["block"] + 20 * ["nonce"]
    places = [place for place, method in enumerate(endpoint.asked) if method == "block"]
    assert places == [3, 7, 11, 15, 19]
    await queue.close()


async def test_while_transactions_wait_every_second_request_is_not_urgent() -> None:
    endpoint = Endpoint()
    queue = RequestQueue(endpoint)
    work = _waiting(queue, "nonce", 20, urgent=True)
    work += _waiting(queue, "eth_getBlockByNumber", 4, urgent=False)
    work += _waiting(queue, "eth_sendRawTransaction", 4, urgent=False)
    endpoint.let(28)
    await asyncio.gather(*work)
    turns = ["nonce", "eth_sendRawTransaction", "nonce", "eth_getBlockByNumber"]
    assert endpoint.asked[:14] == (4 * turns)[:14]
    await queue.close()


async def test_transactions_and_the_reading_of_blocks_take_turns() -> None:
    endpoint = Endpoint()
    queue = RequestQueue(endpoint)
    work = _waiting(queue, "eth_getBlockByNumber", 40, urgent=False)
    work += _waiting(queue, "eth_sendRawTransaction", 10, urgent=False)
    endpoint.let(50)
    await asyncio.gather(*work)
    assert endpoint.asked[:20] == 10 * ["eth_sendRawTransaction", "eth_getBlockByNumber"]
    assert len(endpoint.asked) == 50
    await queue.close()


async def test_what_nobody_waits_for_any_more_is_not_sent_and_holds_nobody_up() -> None:
    endpoint = Endpoint()
    queue = RequestQueue(endpoint)
    queue.pace.rate = 1.0
    queue.pace.record_sent(asyncio.get_running_loop().time() + 1_000)  # the queue is blocked
    work = _waiting(queue, "nonce", 50, urgent=True)
    await asyncio.sleep(0)
    now = asyncio.get_running_loop().time()
    alone = queue.wait_s(now) - 50
    for one in work:
        one.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    assert abs(queue.wait_s(now) - alone) < 0.01
    await queue.close()
    assert not endpoint.asked


async def test_an_urgent_request_waits_for_few_of_the_others() -> None:
    endpoint = Endpoint()
    queue = RequestQueue(endpoint)
    now = asyncio.get_running_loop().time()
    queue.pace.rate = 10.0
    queue.pace.record_sent(now + 1_000)
    work = _waiting(queue, "block", 100, urgent=False)
    await asyncio.sleep(0)
    start = queue.pace.wait_s(now)
    assert queue.wait_s(now) - start > 9.9
    assert queue.wait_s(now, urgent=True) - start < 0.2
    for one in work:
        one.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await queue.close()


async def test_requests_that_take_long_leave_places_for_urgent_ones() -> None:
    endpoint = Endpoint()
    queue = RequestQueue(endpoint)
    work = _waiting(queue, "eth_getLogs", 30, urgent=False)
    await _turns()
    assert endpoint.asked == 8 * ["eth_getLogs"]
    work += _waiting(queue, "nonce", 20, urgent=True)
    await _turns()
    assert endpoint.asked == 8 * ["eth_getLogs"] + 4 * ["nonce"]
    endpoint.let(50)
    await asyncio.gather(*work)
    await queue.close()


class Batches(HttpTransport):
    """Answers batches up to a number of requests; fails at the first one if it is set to."""

    def __init__(self, limit: int, fails: bool = False) -> None:
        super().__init__("http://127.0.0.1:1")
        self.sizes: list[int] = []
        self.limit, self.fails = limit, fails

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.sizes.append(1)
        return {"result": params}

    async def batch(self, calls: Sequence[tuple[str, list[Any]]]) -> list[dict[str, Any] | None]:
        await asyncio.sleep(0)
        self.sizes.append(len(calls))
        if self.fails:
            self.fails = False
            raise TransportError("HTTP status 502")
        if len(calls) > self.limit:
            raise BatchRefusedError
        return [{"result": [number]} for number, _ in enumerate(calls)]


async def test_what_waits_is_sent_together_in_as_large_batches_as_the_endpoint_takes() -> None:
    for limit, most in ((100, 20), (5, 2), (1, 1)):
        endpoint = Batches(limit)
        queue = RequestQueue(endpoint)
        for _ in range(4):
            await asyncio.gather(*_waiting(queue, "block", 60, urgent=False))
        taken = [size for size in endpoint.sizes if size <= limit]
        assert sum(taken) == 240, "each is answered once"
        assert max(taken) >= most
        assert len(endpoint.sizes) - len(taken) <= 3
        await queue.close()


async def test_requests_that_come_together_are_sent_together() -> None:
    endpoint = Batches(100)
    queue = RequestQueue(endpoint)
    work = [
        asyncio.create_task(queue.send(method, params, 9.0))
        for method, params in (
            ("eth_getBlockByNumber", ["latest", False]),
            ("eth_getLogs", [{"blockHash": "0x01"}]),
            ("eth_getLogs", [{"blockHash": "0x02"}]),
        )
    ]
    await asyncio.gather(*work)
    assert endpoint.sizes == [3]
    await queue.close()


async def test_logs_of_ranges_are_asked_for_alone() -> None:
    endpoint = Batches(100)
    queue = RequestQueue(endpoint)
    ranges: list[list[Any]] = [[{"fromBlock": hex(n), "toBlock": hex(n + 9)}] for n in range(3)]
    await asyncio.gather(*(queue.send("eth_getLogs", params, 9.0) for params in ranges))
    assert endpoint.sizes == [1, 1, 1]
    await queue.close()


async def test_one_failure_of_a_batch_does_not_end_batches() -> None:
    endpoint = Batches(100, fails=True)
    queue = RequestQueue(endpoint)
    await asyncio.gather(*_waiting(queue, "block", 60, urgent=False))
    for _ in range(5):
        await asyncio.gather(*_waiting(queue, "block", 300, urgent=False))
    assert endpoint.sizes[-1] == 20
    await queue.close()


async def test_an_answer_in_a_batch_with_an_id_that_is_none_is_left_out() -> None:
    class Answers(HttpTransport):
        async def _post(self, body: Any) -> Any:
            return [{"id": [], "result": 1}, {"id": body[1]["id"], "result": 2}, 5]

    calls: list[tuple[str, list[Any]]] = [("a", []), ("b", [])]
    first, second = await Answers("http://127.0.0.1:1").batch(calls)
    assert first is None
    assert second is not None
    assert second["result"] == 2


@pytest.mark.parametrize("answer", ["status", "bytes"])
async def test_a_batch_whose_answer_is_too_large_is_sent_in_parts(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answered(request: web.Request) -> web.Response:
        body = await request.json()
        if not isinstance(body, list):
            return web.json_response({"id": body["id"], "result": body["method"]})
        if answer == "status":
            return web.Response(status=413, text="too large")
        return web.json_response([{"id": one["id"], "result": 400 * "x"} for one in body])

    monkeypatch.setattr(transport, "ANSWER_LIMIT_BYTES", 500)
    app = web.Application()
    app.router.add_post("/", answered)
    async with TestServer(app) as server:
        queue = RequestQueue(HttpTransport(str(server.make_url("/"))))
        work = _waiting(queue, "eth_getBlockByNumber", 9, urgent=False)
        answers = await asyncio.gather(*work)
        await queue.close()
    assert [one["result"] for one in answers] == 9 * ["eth_getBlockByNumber"]
