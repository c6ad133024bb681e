"""The findings of the doctor about endpoints of every kind, and about addresses without an
endpoint."""

from __future__ import annotations

import json
import socket
import threading
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.chain.doctor import announcements
from fieldbrook.cli.main import run
from fieldbrook.core.networks import DEFAULT_LOG_RANGE
from fieldbrook.core.settings.chain import read_chain
from tests.chain.evm import CHAIN_ID, Evm
from tests.chain.evms import EVMS, running
from tests.chain.hardhat import Hardhat
from tests.chain.providers import PERSONALITIES, Provider
from tests.chain.proxy import Proxy
from tests.support.tools import free_port

KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"  # of Anvil and Hardhat
SECRET = "s3cret-key-of-mine"
HEIGHT = 30_000

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for blocks on a chain without new blocks."""
    monkeypatch.setattr(announcements, "_LEAST_WAIT_S", 0.3)


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    return str(file)


def examined(capsys: Output, *arguments: str) -> tuple[int, Any]:
    """Run the doctor; return the exit code and the report."""
    code = run(["chain", "doctor", *arguments, "--json"])
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    assert KEY[2:] not in shown.out + shown.err
    return code, json.loads(shown.out)


def facts(report: Any, check: str) -> Any:
    """Return the facts of a check, with its state and its text."""
    (found,) = [each for each in report["checks"] if each["check"] == check]
    return {**found["facts"], "state": found["state"], "text": found["text"]}


def refused(capsys: Output, *arguments: str) -> tuple[int, str]:
    """Run the doctor; return the exit code and the error."""
    code = run(["chain", "doctor", *arguments])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert SECRET not in shown.err
    return code, shown.err


# ---------------------------------------------------------------- real chains


@pytest.fixture(scope="module", params=EVMS)
def chain(request: pytest.FixtureRequest) -> Iterator[Evm]:
    for made in running(request.param):
        made.mine(100)
        yield made


def test_a_good_endpoint_has_everything_and_a_send_is_followed_to_its_receipt(
    chain: Evm, key: str, capsys: Output
) -> None:
    code, report = examined(capsys, chain.url, "--chain", str(CHAIN_ID), "--send-from", key)
    assert (code, report["usable"], report["endpoint"]) == (0, True, chain.url)
    assert facts(report, "chain id")["chainID"] == CHAIN_ID
    assert facts(report, "head")["number"] == 100
    assert facts(report, "log range")["blocks"] == 101
    assert facts(report, "archive of states")["blocks"] == 100
    assert facts(report, "archive of logs")["blocks"] == 100
    assert facts(report, "fee history")["supported"] is True
    assert facts(report, "batches")["size"] == 20
    assert facts(report, "WebSocket")["subscribes"] is True
    assert facts(report, "rate")["refusal"] is None
    sent, receipt = facts(report, "send"), facts(report, "receipt")
    found = chain.rpc("eth_getTransactionReceipt", sent["hash"])
    assert (int(found["blockNumber"], 16), int(found["gasUsed"], 16)) == (
        receipt["block"],
        receipt["gasUsed"],
    )
    assert found["from"] == found["to"] == sent["sender"].lower()
    transaction = chain.rpc("eth_getTransactionByHash", sent["hash"])
    assert (transaction["value"], transaction["type"]) == ("0x0", "0x2")
    (entry,) = tomllib.loads(report["toml"])["chains"]
    assert entry == report["settings"]
    made = read_chain(entry)
    assert (made.id, made.endpoints) == (CHAIN_ID, (chain.url,))
    assert made.websocket == chain.url.replace("http", "ws")


def test_the_table_shows_every_check_and_then_the_settings(chain: Evm, capsys: Output) -> None:
    assert run(["chain", "doctor", chain.url, "--no-rate"]) == 0
    table, _, settings = capsys.readouterr().out.partition("\n\n")
    heading, *rows = table.splitlines()
    assert heading.split() == ["CHECK", "STATE", "RESULT"]
    assert [row.split("  ")[0] for row in rows][:3] == ["chain id", "software", "head"]
    assert "rate" not in table
    assert tomllib.loads(settings)["chains"][0]["endpoints"] == [chain.url]


def test_a_websocket_is_an_endpoint_as_well(chain: Evm, key: str, capsys: Output) -> None:
    url = chain.url.replace("http", "ws")
    code, report = examined(capsys, url, "--send-from", key, "--no-rate")
    assert (code, facts(report, "batches")["state"]) == (0, "skipped")
    assert facts(report, "receipt")["state"] == "ok"


def test_a_subscription_is_followed_to_the_first_block(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "_LEAST_WAIT_S", 20.0)
    evm = Evm("--block-time", "1")
    try:
        _, report = examined(capsys, evm.url, "--no-rate")
        found = facts(report, "WebSocket")
        assert (found["state"], found["subscribes"]) == ("ok", True)
        assert 0 < found["announced"] <= evm.height
        other = evm.url.replace("http", "ws") + "/" + SECRET
        code, report = examined(capsys, evm.url, "--no-rate", "--websocket", other)
        assert (code, facts(report, "WebSocket")["state"]) == (1, "failed")
    finally:
        evm.stop()


@pytest.mark.parametrize("hardfork", ["berlin", "london"])
def test_a_chain_without_final_blocks_or_base_fees_is_told_as_it_is(
    hardfork: str, key: str, capsys: Output
) -> None:
    evm = Hardhat(hardfork=hardfork)
    try:
        code, report = examined(capsys, evm.url, "--send-from", key, "--no-rate")
        sent = evm.rpc("eth_getTransactionByHash", facts(report, "send")["hash"])
    finally:
        evm.stop()
    assert code == 0
    assert facts(report, "block finalized")["number"] is None
    assert "pre-merge" in facts(report, "block finalized")["text"]
    assert "block_tag" not in report["toml"]
    legacy = hardfork == "berlin"
    assert (facts(report, "fees")["baseFee"] is None) is legacy
    assert int(sent["type"], 16) == (0 if legacy else 2)
    assert facts(report, "receipt")["state"] == "ok"


def test_final_blocks_are_suggested_where_there_are_some(chain: Evm, capsys: Output) -> None:
    _, report = examined(capsys, chain.url, "--no-rate")
    behind = facts(report, "block finalized")["behind"]
    assert ('# block_tag = "finalized"' in report["toml"]) is (behind > 0)


# ---------------------------------------------------------------- public providers


@pytest.fixture(scope="module")
def tall() -> Iterator[Hardhat]:
    made = Hardhat()
    made.mine(HEIGHT)
    yield made
    made.stop()


RANGES = {
    "alchemy": (10, 10),
    "infura": (10_000, 10_000),
    "quicknode": (10_000, 10_000),
    "ankr": (2_850, 3_000),
    "drpc": (3_800, 4_000),  # more takes too long
    "avalanche": (2_048, 2_048),
    "bsc": (5_000, 5_000),
    "gateway": (760, 800),
    "distant": (475, 500),
    "pool": (950, 1_000),
    "iotex": (DEFAULT_LOG_RANGE, DEFAULT_LOG_RANGE),
}
BATCHES = {"ankr": 5, "drpc": 2, "gateway": 1, "distant": 10}
HISTORIES = {"infura": 128, "pool": 128}


@pytest.mark.parametrize("name", PERSONALITIES)
@pytest.mark.thorough("distant", "avalanche")
def test_the_limits_of_each_kind_of_provider_are_found(
    tall: Hardhat, name: str, capsys: Output
) -> None:
    provider = Provider(tall.url, PERSONALITIES[name])
    # The test is not to take long.
    provider.change(rate=4 * provider.personality.rate, latency_s=0.0)
    try:
        code, report = examined(capsys, provider.url, "--no-rate")
    finally:
        provider.close()
    assert code == 0, report
    least, most = RANGES[name]
    assert least <= facts(report, "log range")["blocks"] <= most
    suggested = report["settings"].get("log_range", DEFAULT_LOG_RANGE)
    assert suggested == facts(report, "log range")["blocks"]
    assert facts(report, "batches")["size"] == BATCHES.get(name, 20)
    assert facts(report, "archive of states")["blocks"] == HISTORIES.get(name, HEIGHT)
    assert facts(report, "WebSocket")["subscribes"] is False
    assert report["settings"]["endpoints"] == [provider.url.partition("/v2")[0] + "/..."]
    assert "may be a key" in report["toml"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("infura", "HTTP status 429: too many requests"),
        ("avalanche", "HTTP status 503: too many requests (wait 1 s)"),
        ("gateway", "HTTP status 429: too many requests (wait 1 s)"),
    ],
)
def test_the_rate_is_measured_and_the_refusal_told(
    tall: Hardhat, name: str, reason: str, capsys: Output
) -> None:
    provider = Provider(tall.url, PERSONALITIES[name])
    try:
        code, report = examined(capsys, provider.url)
    finally:
        provider.close()
    found = facts(report, "rate")
    assert code == 0
    assert found["perSecond"] <= provider.personality.rate
    assert found["perSecond"] >= provider.personality.rate / 2
    assert reason in found["text"]


def test_requests_that_fail_now_and_then_are_sent_again_and_counted(
    tall: Hardhat, capsys: Output
) -> None:
    provider = Provider(tall.url, PERSONALITIES["infura"], failures=0.1)
    provider.change(rate=1_000)
    try:
        code, report = examined(capsys, provider.url)
    finally:
        provider.close()
    found = facts(report, "failures")
    assert code == 0, report
    assert found["state"] == "warning"
    assert 0 < found["count"] < found["requests"] / 3
    assert "answered when sent again" in found["text"]
    assert facts(report, "batches")["size"] == 20
    assert facts(report, "rate")["refusal"] is None


# ---------------------------------------------------------------- what cannot be used


@pytest.fixture
def proxy(chain: Evm) -> Iterator[Proxy]:
    made = Proxy(chain.url)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("drop", "it closed the connection"),
        ("slow", "no answer to eth_chainId within 0.3 s"),
        ("broken", "HTTP status 500"),
        ("garbage", "its answer is not JSON"),
        ("silent", "its answer has neither result nor error"),
    ],
)
def test_an_address_where_no_endpoint_answers_is_named_with_the_reason(
    proxy: Proxy, fault: str, reason: str, capsys: Output
) -> None:
    proxy.fault = fault
    code, error = refused(capsys, proxy.url, "--timeout", "0.3" if fault == "slow" else "10")
    assert code == 3
    assert error.startswith(f"fieldbrook: {proxy.url.partition('/v2')[0]}: {reason}")


class _Other(BaseHTTPRequestHandler):
    """An HTTP server that is not an endpoint; the last part of the path selects the answer."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.path.rpartition("/")[2]
        status = {"moved": 301, "found": 302, "permanent": 308, "denied": 401, "none": 404}
        body = {
            "list": b"[]",
            "number": b'{"jsonrpc":"2.0","id":1,"result":1}',
            "word": b'{"jsonrpc":"2.0","id":1,"result":"banana"}',
            "refusal": b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no method"}}',
        }
        self.send_response(status.get(kind, 200))
        if status.get(kind, 0) // 100 == 3:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        data = body.get(kind, b"<html>welcome</html>")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Other)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v2/{SECRET}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("html", "its answer is not JSON"),
        ("moved", "HTTP status 301: it redirects to another address"),
        ("found", "HTTP status 302: it redirects to another address"),
        ("permanent", "HTTP status 308: it redirects to another address"),
        ("denied", "HTTP status 401"),
        ("none", "HTTP status 404"),
        ("list", "its answer is not a JSON-RPC response"),
        ("number", "its answer to eth_chainId is not a chain id"),
        ("word", "its answer to eth_chainId is not a chain id"),
        ("refusal", "it refuses eth_chainId: no method"),
    ],
)
def test_a_server_that_is_no_endpoint_is_told_apart(
    other: str, kind: str, reason: str, capsys: Output
) -> None:
    code, error = refused(capsys, f"{other}/{kind}")
    assert code == 3
    assert error.strip().endswith(reason)


def test_nobody_at_the_address_is_an_error_of_its_own(capsys: Output) -> None:
    code, error = refused(capsys, f"http://127.0.0.1:{free_port()}/{SECRET}")
    assert code == 3
    assert "Connect call failed" in error
    code, error = refused(capsys, f"https://no-such-host.invalid/{SECRET}")
    assert (code, "its host name is not known" in error) == (3, True)


def test_a_server_without_tls_is_told(capsys: Output) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            with suppress(OSError):  # the listener has ended
                while True:
                    with listener.accept()[0] as there:
                        there.recv(4_096)
                        there.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        code, error = refused(capsys, f"https://127.0.0.1:{port}/{SECRET}")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert code == 3
    assert f"https://127.0.0.1:{port}: " in error


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8545",
        "ftp://host/" + SECRET,
        "file:///etc/passwd",
        "http://",
        "http:///" + SECRET,
        "http://[::1/" + SECRET,
        "http://host:port/" + SECRET,
        "http://host:99999/" + SECRET,
        "http://ho st/" + SECRET,
    ],
)
def test_what_is_no_address_is_wrong_usage(url: str, capsys: Output) -> None:
    code, error = refused(capsys, url)
    assert code == 2
    assert "not a URL with http, https, ws, wss and a host" in error


@pytest.mark.parametrize("wanted", ["banana", "0", "-1", "1.5", str(1 << 63), "²"])
def test_what_is_no_chain_is_wrong_usage(wanted: str, capsys: Output) -> None:
    code, error = refused(capsys, "http://127.0.0.1:9", "--chain", wanted)
    assert (code, "neither an id nor a known name" in error) == (2, True)


def test_a_subscription_must_be_a_websocket(capsys: Output) -> None:
    code, error = refused(capsys, "http://127.0.0.1:9", "--websocket", "http://127.0.0.1:9")
    assert (code, "ws, wss" in error) == (2, True)


def test_another_chain_is_an_error_and_nothing_else_is_asked(proxy: Proxy, capsys: Output) -> None:
    code, report = examined(capsys, proxy.url, "--chain", "iotex-testnet")
    assert (code, report["usable"], len(report["checks"])) == (1, False, 1)
    text = "it belongs to chain 31337 (not a known chain), not to 4690"
    assert facts(report, "chain id")["text"] == text
    assert proxy.asked.total() == 1


@pytest.mark.parametrize("chain_id", [1, 137, 999])
def test_nothing_is_sent_on_a_chain_that_is_not_known_as_a_test_chain(
    chain_id: int, key: str, capsys: Output
) -> None:
    evm = Evm(chain_id=chain_id)
    proxy = Proxy(evm.url)
    try:
        code, error = refused(capsys, proxy.url, "--send-from", key)
        assert code == 2
        assert f"chain {chain_id}" in error
        assert "is not a known test chain: nothing is sent" in error
        assert set(proxy.asked) == {"eth_chainId"}
    finally:
        proxy.close()
        evm.stop()


def test_an_account_without_funds_sends_nothing(chain: Evm, tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "poor"
    file.write_text("11" * 32)
    code, report = examined(capsys, chain.url, "--send-from", str(file), "--no-rate")
    assert code == 1
    assert "it has 0 wei, and the transaction may take" in facts(report, "send")["text"]


def test_a_transaction_that_no_block_includes_is_told_with_its_hash(
    key: str, capsys: Output
) -> None:
    evm = Evm("--no-mining")
    try:
        code, report = examined(
            capsys, evm.url, "--send-from", key, "--no-rate", "--timeout", "0.5"
        )
        waiting = evm.rpc("eth_getTransactionByHash", facts(report, "send")["hash"])
    finally:
        evm.stop()
    assert (code, waiting["blockNumber"]) == (1, None)
    text = facts(report, "receipt")["text"]
    assert text.startswith("none within 3 s; known after 0.")


@pytest.mark.parametrize("content", ["", "banana", "11" * 31, "11" * 33, "00" * 32])
def test_a_file_without_a_private_key_is_wrong_usage(
    tmp_path: Path, content: str, capsys: Output
) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    code, error = refused(capsys, "http://127.0.0.1:9", "--send-from", str(file))
    assert (code, "not a private key of 64 hexadecimal digits" in error) == (2, True)
    assert content == "" or content not in error


def test_an_endpoint_of_a_public_chain_that_stands_still_cannot_be_used(capsys: Output) -> None:
    evm = Evm("--timestamp", "1700000000", chain_id=1)
    try:
        code, report = examined(capsys, evm.url, "--no-rate", "--chain", "ethereum-mainnet")
    finally:
        evm.stop()
    assert (code, report["settings"]["name"]) == (1, "ethereum-mainnet")
    assert "it does not follow the chain" in facts(report, "head")["text"]


@pytest.mark.parametrize("method", ["eth_getLogs", "eth_getBalance", "eth_gasPrice"])
def test_an_endpoint_without_what_a_node_needs_cannot_be_used(
    chain: Evm, proxy: Proxy, method: str, capsys: Output
) -> None:
    proxy.refuses[method] = f"the method {method} is not available in your plan"
    code, report = examined(capsys, proxy.url, "--no-rate")
    assert (code, report["usable"]) == (1, False)
    failed = [each["text"] for each in report["checks"] if each["state"] == "failed"]
    assert all("is not available in your plan" in text for text in failed)


@pytest.mark.parametrize(
    "method",
    ["web3_clientVersion", "eth_feeHistory", "eth_maxPriorityFeePerGas", "eth_getBlockReceipts"],
)
def test_what_a_node_can_do_without_is_no_failure(
    chain: Evm, proxy: Proxy, method: str, capsys: Output
) -> None:
    proxy.refuses[method] = "method not found"
    code, report = examined(capsys, proxy.url, "--no-rate")
    assert (code, report["usable"]) == (0, True)
