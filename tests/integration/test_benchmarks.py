"""The benchmark suite runs to its end and writes its results. The tests check no values."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.__main__ import SCENARIOS, main
from benchmarks.baselines.http_peers import HTTP_PEERS
from benchmarks.measure import BenchmarkError
from benchmarks.registry import fill_projects, fill_publishers
from benchmarks.report import P99, RATE, Table
from benchmarks.scenarios.http_load import NOT_SENT, Load, measure
from benchmarks.servers import Device, Server, event_requests
from benchmarks.tools import compiler, run_tool
from fieldbrook.core.clock import now_ms
from fieldbrook.security import node_secrets
from fieldbrook.storage.registry.service import RegistryReader, RegistryWriter
from tests.support.tools import require_tool

ROOT = Path(__file__).parents[2]
DEVICE = Device("load", "d0", "the token")


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Server]:
    if compiler() is None:
        require_tool("cc")
    with HTTP_PEERS[0].running(tmp_path, [DEVICE]) as server:
        yield server


@pytest.mark.thorough
def test_the_smallest_scenario_measures_a_node_and_writes_a_table_json_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if compiler() is None:
        require_tool("cc")
    words = ["smallest", "--peers", "none", "--rounds", "2", "--seconds", "0.1"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    first = "node, payload read"
    servers = [first, "node, one key written", f"{first}, shared instance"]
    assert all(server in printed for server in servers)
    assert "tornado: missing, not asked for" in printed
    table = json.loads((tmp_path / "smallest.json").read_text())["tables"][0]
    assert list(table["rounds"]) == servers
    assert all(len(rounds) == 2 for rounds in table["rounds"].values())
    assert all(min(medians[RATE], medians[P99]) > 0 for medians in table["medians"].values())
    picture = ElementTree.parse(tmp_path / "smallest.svg")  # noqa: S314 - made a moment ago
    texts = [element.text or "" for element in picture.iter() if element.tag.endswith("text")]
    assert all(server in texts for server in servers)


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_another_checkout_is_measured_in_the_same_rounds(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / ".venv").symlink_to(sys.prefix)
    words = ["cold", "--quick", "--peers", "none", "--before", str(other)]
    assert main([*words, "--out", str(tmp_path)]) == 0
    table = json.loads((tmp_path / "cold.json").read_text())["tables"][0]
    what = ("first event", "first event, alone", "second event")
    assert set(table["rounds"]) == {f"{name}, {w}" for name in ("node", "before") for w in what}


def test_a_checkout_without_an_environment_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["cold", "--before", str(tmp_path)])
    assert f"no {tmp_path}/.venv/bin/python" in capsys.readouterr().err


def test_the_suite_lists_its_scenarios_with_what_they_measure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SCENARIOS)
    assert all(len(line.split()) > 3 for line in lines)


def test_the_suite_runs_where_the_libraries_of_tests_and_chains_are_not_installed() -> None:
    """This is the environment that `scripts/up` makes."""
    missing = ("pytest", "eth_abi", "eth_account", "web3", "aiohttp", "playwright", "websockets")
    code = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({missing}));"
        "sys.argv[1:] = ['--list'];"
        "runpy.run_module('benchmarks', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) == len(SCENARIOS)


def test_a_program_that_a_scenario_needs_is_named_when_it_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setitem(SCENARIOS, "smallest", lambda *_: str(require_tool("chromium")))
    assert main(["smallest", "--peers", "none", "--out", str(tmp_path)]) == 1
    assert "FAILED: chromium is not installed" in capsys.readouterr().out


def test_a_table_gives_medians_their_range_and_ratios_and_names_a_missing_baseline() -> None:
    table = Table("title", baselines=["peer"], missing={"other": "not installed"})
    for rate in (100.0, 400.0, 200.0):
        table.add("node", {RATE: rate})
    table.add("peer", {RATE: 50.0})
    title, head, node, ranges, peer, missing = table.text().splitlines()
    assert (title, head.split()) == ("title", ["events/s", "x", "peer"])
    assert node.split() == ["node", "200.0", "4.00"]
    assert ranges.split() == ["min-max", "100.0-400.0"]
    assert peer.split() == ["peer", "50.00", "1.00"]
    assert missing == "other: missing, not installed"


def test_an_answer_that_is_not_201_ends_a_measurement_with_an_error(
    peer: Server, tmp_path: Path
) -> None:
    refused = event_requests(tmp_path / "refused", [DEVICE, Device("load", "d0", "another")])
    with pytest.raises(BenchmarkError, match="the first was 401"):
        measure(Load(peer, refused), connections=1, seconds=0.05)


def test_an_answer_without_a_good_result_for_each_event_ends_a_measurement_with_an_error(
    peer: Server, tmp_path: Path
) -> None:
    requests = event_requests(tmp_path / "requests", [DEVICE])
    with pytest.raises(BenchmarkError, match="good results"):
        measure(Load(peer, requests, events=2), connections=1, seconds=0.05)


def test_an_event_that_waits_for_a_connection_counts_from_when_it_was_due(
    peer: Server, tmp_path: Path
) -> None:
    requests = event_requests(tmp_path / "requests", [DEVICE])
    found = measure(Load(peer, requests), connections=1, seconds=0.1, rate=1_000_000)
    assert found[NOT_SENT] > 0  # no server answers so many on one connection
    assert found[P99] > 1_900  # and those not sent have waited 2 s


def test_mqtt_messages_at_a_fixed_rate_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    if compiler() is None:
        require_tool("cc")
    messages, count = tmp_path / "messages", tmp_path / "count"
    messages.write_text("topic\tpayload\n")
    count.write_bytes(bytes(8))
    number, size, id_at = 60, 18, 9  # messages, bytes of each, and where its packet id is

    def acknowledge_all_at_the_end(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1_024)  # CONNECT
            connection.sendall(b"\x20\x02\0\0")
            received = b""
            while len(received) < number * size:
                received += connection.recv(1_024)
            ids = [received[at + id_at :][:2] for at in range(0, len(received), size)]
            count.write_bytes(number.to_bytes(8, "little"))
            connection.sendall(b"".join(b"\x40\x02" + each for each in ids))
            connection.recv(1_024)  # until the tool ends

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=acknowledge_all_at_the_end, args=(listening,))
        server.start()
        words: list[object] = ["-p", listening.getsockname()[1], "-f", messages, "-k", count]
        words += ["-q", 1, "-c", 1, "-r", 200, "-w", 0, "-d", 30, "-n", number]
        found = run_tool("mqttload", *words, seconds=30)
        server.join()
    assert found["sent"] == found["acknowledged"] == number
    assert found["p50"] > 100_000  # us: the first half was due more than that before the last one


def test_a_registry_is_filled_with_publishers_and_projects_a_node_can_read(tmp_path: Path) -> None:
    token_key = node_secrets.load_or_create_key(tmp_path / "secrets", "token.key")
    writer = RegistryWriter(tmp_path / "registry", 4 << 20, now_ms, token_key)
    project = writer.create_project(writer.create_account("a", "", "admin").account_id, "load")
    first = writer.create_publisher(project.project_id, "d0", "d0")
    writer.close()
    senders = fill_publishers(tmp_path, Device("load", "d0", first.token), 5)
    assert fill_projects(tmp_path, senders[0], 4) == senders[:1]
    reader = RegistryReader(tmp_path / "registry")
    publishers = reader.publishers(project.project_id)
    assert {(p.key, p.token) for p in publishers} == {(d.key, d.token) for d in senders}
    assert len(senders) == 5
    assert len(reader.projects()) == 4
    reader.close()
