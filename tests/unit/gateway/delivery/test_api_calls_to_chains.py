"""API calls of applets to the node itself: proofs, and reads of transactions."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.actors.project.chains import NUMBER, chain_socket
from fieldbrook.actors.wire import WireEvent, frame, pack
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.chain_client import READ, read_frame
from fieldbrook.gateway.delivery.api_calls import ApiCaller
from fieldbrook.gateway.links.pending_event import Settle

CHAIN = Chain(id=5, name="dev", endpoints=("http://127.0.0.1:1",))
HASH = "0x" + "ab" * 32


class Prover(http.server.BaseHTTPRequestHandler):
    """Returns a given proof, unless it is set to refuse."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = body.get("imageID") != "bad"
        answer = json.dumps({"proof": body.get("privateInput")} if good else {}).encode()
        self.send_response(200 if good else 422)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def prover() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prover)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/prove"
    server.shutdown()
    server.server_close()


async def answered(method: str, url: str, body: object, **arguments: Any) -> tuple[int, Any]:
    """Return status and body of the response in the event."""
    events: list[WireEvent] = []

    def submit(project_id: int, event: WireEvent, settle: Settle) -> None:
        events.append(event)
        settle(())

    request = {
        "Method": method,
        "Url": url,
        "Header": {"Eventtype": ["DONE"]},
        "Body": base64.b64encode(json.dumps(body).encode()).decode(),
    }
    caller = ApiCaller(submit, (), **arguments)
    await caller(7, (1, "api", "DONE", json.dumps(request).encode(), "event"))
    (event,) = events
    assert (event[0], event[2]) == ("DONE", "event#api1")
    told = json.loads(event[3])
    return told["StatusCode"], json.loads(base64.b64decode(told["Body"]))


def prove(body: object, url: str) -> tuple[int, Any]:
    return asyncio.run(answered("POST", "/system/gen_zk_proof", body, prover=url))


def test_a_proof_is_made_by_the_prover_that_the_settings_name(prover: str) -> None:
    assert prove({"imageID": "good", "privateInput": "41"}, prover) == (200, {"proof": "41"})
    assert prove({"imageID": "bad"}, prover) == (422, {})


def test_a_prover_that_is_not_there_is_a_failure_the_applet_is_told_of() -> None:
    status, body = prove({"imageID": "good"}, "http://127.0.0.1:9/prove")
    assert status == 502
    assert "error" in body


async def read(tmp_path: Path, url: str, body: object) -> tuple[int, Any]:
    """Read a transaction with an API call, from a process that has only `HASH`; return status and
    body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await read_frame(reader)
        good = said[READ] == HASH
        result = json.dumps({"transaction": {"hash": said[READ]}}) if good else "no such hash"
        writer.write(frame(pack((said[NUMBER], good, result.encode() if good else result))))
        await writer.drain()
        writer.close()

    path = str(chain_socket(tmp_path, "chain:5"))
    async with await asyncio.start_unix_server(serve, path):
        return await answered("GET", url, body, run_dir=tmp_path, chains=(CHAIN,))


@pytest.mark.parametrize(
    ("url", "body"),
    [
        ("/system/read_tx", {"chainName": "dev", "hash": HASH}),
        # The form of the SDKs for AssemblyScript and Go.
        ("/system/read_tx", {"chainName": "dev", "hash": HASH.removeprefix("0x")}),
        (f"/system/read_tx?chainName=dev&hash={HASH[2:].upper()}", {}),
        (f"w3bstream://w3bstream.com/system/read_tx?chainName=5&hash={HASH}", {}),
    ],
)
def test_a_transaction_is_read_by_the_chain_and_the_hash(
    url: str, body: object, tmp_path: Path
) -> None:
    assert asyncio.run(read(tmp_path, url, body)) == (200, {"transaction": {"hash": HASH}})


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"chainName": "mars", "hash": HASH}, 400, "chain 'mars': unknown; there are 5 (dev)"),
        ({"chainName": "dev", "hash": "0x12"}, 400, "no such hash"),
        ([1], 400, "the body is not a JSON object"),
    ],
)
def test_a_transaction_that_cannot_be_read_is_answered_why(
    body: object, status: int, reason: str, tmp_path: Path
) -> None:
    found = asyncio.run(read(tmp_path, "/system/read_tx", body))
    assert found == (status, {"error": reason})


def test_a_chain_whose_process_is_away_is_a_failure_the_applet_is_told_of(tmp_path: Path) -> None:
    body = {"chainName": "dev", "hash": HASH}
    status, answer = asyncio.run(
        answered("GET", "/system/read_tx", body, run_dir=tmp_path, chains=(CHAIN,))
    )
    assert status == 502
    assert "its process does not answer" in answer["error"]
