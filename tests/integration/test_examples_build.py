"""The examples, built from source by their own scripts and run in the node's hosts."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fieldbrook.security.keccak import keccak256
from fieldbrook.wasm.engine.applet import AppletHost, load_host
from fieldbrook.wasm.engine.compile import compile_in_child
from fieldbrook.wasm.engine.engine import engine_tag, make_engine
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import check, compile_module, to_binary
from fieldbrook.wasm.run import Host, Run
from tests.support.nodes import RunningNode, StartNode
from tests.support.tools import require_tool

EXAMPLES = Path(__file__).parents[2] / "examples"
TOOLS = {
    "counter": (),
    "checksum": ("clang", "wasm-ld"),
    "thermostat": ("npm",),
    "device-proof": ("clang", "wasm-ld"),
    "device-token": ("clang", "wasm-ld"),
}
DEVICES = {"device-python", "device-javascript", "device-arduino"}
"""Examples without an applet; test_device_examples.py runs them."""
RUN_TOOLS = {"device-proof": ("openssl",)}
LIMITS = Limits(deadline_ms=1500)
_BUILD_S = 280.0  # npm may have to fetch the compiler from a slow registry
pytestmark = pytest.mark.timeout(300)


def build(name: str, folder: Path) -> Path:
    """Build an example into a folder; return the module."""
    for tool in ("bash", *TOOLS[name]):
        require_tool(tool)
    done = subprocess.run(
        ["bash", str(EXAMPLES / name / "build.sh"), str(folder)],
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def module_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the module of an example, which is built at its first use in this file."""
    return functools.cache(lambda name: build(name, tmp_path_factory.mktemp(name)))


class Deployed:
    """A built example with a store of its own, like in a project."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.store: dict[bytes, bytes] = {}
        self.env: dict[str, str] = {}
        self.logs: list[tuple[int, str]] = []
        self.error = ""

    def send(self, payload: bytes, handler: str = "start") -> int:
        """Run a handler; keep its writes if it did not fail. Return its code."""
        run = Run(payload, env=self.env, read=self.store.get)
        code, error = self.host.run(handler, run)
        if not error:
            self.store.update(run.writes)
        self.logs = [(level, text) for level, _, text in run.logs]
        self.error = error
        return code


def deployed(module: Path, modules: Path) -> Iterator[Deployed]:
    report = compile_in_child(module, modules, LIMITS)
    engine = make_engine(LIMITS)
    wasm = modules / f"{report.sha256}.wasm"
    cwasm = modules / f"{report.sha256}.{engine_tag()}.cwasm"
    host = load_host(engine, cwasm, wasm, LIMITS)
    yield Deployed(host)
    host.close()


@pytest.fixture
def counter(module_of: Callable[[str], Path], tmp_path: Path) -> Iterator[Deployed]:
    yield from deployed(module_of("counter"), tmp_path)


@pytest.fixture
def checksum(module_of: Callable[[str], Path], tmp_path: Path) -> Iterator[Deployed]:
    yield from deployed(module_of("checksum"), tmp_path)


@pytest.fixture
def device_proof(module_of: Callable[[str], Path], tmp_path: Path) -> Iterator[Deployed]:
    yield from deployed(module_of("device-proof"), tmp_path)


@pytest.fixture
def thermostat(module_of: Callable[[str], Path], tmp_path: Path) -> Iterator[Deployed]:
    yield from deployed(module_of("thermostat"), tmp_path)


@pytest.mark.parametrize(
    ("name", "handlers"),
    [
        ("counter", {"start"}),
        ("checksum", {"start", "fail", "spin"}),
        ("thermostat", {"start", "reset"}),
        ("device-proof", {"start"}),
        ("device-token", {"report", "credited", "settled"}),
    ],
)
def test_each_example_builds_a_module_that_the_node_accepts(
    name: str, handlers: set[str], module_of: Callable[[str], Path]
) -> None:
    report = check(module_of(name).read_bytes(), Limits())
    assert set(report.handlers) == handlers
    assert not report.wasi


def test_every_example_has_a_page_and_its_scripts() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == set(TOOLS) | DEVICES
    for name in folders:
        assert (EXAMPLES / name / "README.md").is_file()
        for script in ("build.sh", "run.sh") if name in TOOLS else ("run.sh",):
            assert os.access(EXAMPLES / name / script, os.X_OK)


@pytest.mark.parametrize("name", ["thermostat", "device-token"])
def test_the_lock_file_names_no_place_to_download_from(name: str) -> None:
    lock = json.loads((EXAMPLES / name / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert all("resolved" not in package for package in packages.values())
    assert all(package["integrity"] for package in packages.values())


_PAYLOADS = (b"", b"21.5", b'{"device": "d1", "celsius": 31.5}', b"\xff\x00\xfe", b"x" * 5_000)


@pytest.mark.parametrize(
    ("name", "handler"),
    [
        ("counter", "start"),
        ("checksum", "start"),
        ("checksum", "fail"),
        ("thermostat", "start"),
        ("thermostat", "reset"),
        ("device-proof", "start"),
        ("device-token", "report"),
        ("device-token", "credited"),
        ("device-token", "settled"),
    ],
)
def test_every_example_does_the_same_on_every_host(
    name: str, handler: str, module_of: Callable[[str], Path]
) -> None:
    engine = make_engine(LIMITS)
    module, _ = compile_module(engine, to_binary(module_of(name).read_bytes()), LIMITS)
    reference, raw = ReferenceHost(engine, module, LIMITS), AppletHost(engine, module, LIMITS)

    def perform(run_all: Callable[[list[Run]], list[tuple[int, str]]]) -> object:
        store: dict[bytes, bytes] = {}
        runs = [Run(payload, read=store.get) for payload in _PAYLOADS * 3]
        left = []
        while runs:
            outcomes = run_all(runs)
            for outcome, run in zip(outcomes, runs, strict=False):
                left.append((outcome, run.writes, run.logs))
                if not outcome[1]:
                    store.update(run.writes)
            runs = runs[len(outcomes) :]
        return left, store

    expected = perform(lambda runs: [reference.run(handler, runs[0])])
    assert perform(lambda runs: [raw.run(handler, runs[0])]) == expected
    together = perform(lambda runs: raw.run_batch(handler, runs) or [raw.run(handler, runs[0])])
    assert together == expected
    raw.close()
    reference.close()


# ---------------------------------------------------------------- counter


def test_the_counter_counts_each_event_and_logs_its_payload(counter: Deployed) -> None:
    for number in range(1, 13):
        assert counter.send(f"reading {number}".encode()) == 0
        assert counter.store == {b"count": str(number).encode()}
        assert counter.logs == [(abi.LOG_INFO, f"count={number} payload=reading {number}")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"1"),
        (b"9", b"10"),
        (b"99999", b"100000"),
        (b"9223372036854775806", b"9223372036854775807"),
        (b"9223372036854775807", b"9223372036854775808"),
        (b"18446744073709551614", b"18446744073709551615"),
        (b"7 and what is no digit", b"8"),
    ],
)
def test_the_counter_is_right_for_every_64_bit_number(
    before: bytes, after: bytes, counter: Deployed
) -> None:
    counter.store[b"count"] = before
    assert counter.send(b"") == 0
    assert counter.store[b"count"] == after
    assert counter.logs == [(abi.LOG_INFO, f"count={after.decode()} payload=")]


def test_the_counter_takes_large_payloads_and_shows_their_beginning(counter: Deployed) -> None:
    for size in (65_535, 65_536, 1 << 20, 16 << 20):
        assert counter.send(b"x" * size) == 0
    assert counter.store == {b"count": b"4"}
    (level, text), *_ = counter.logs
    assert level == abi.LOG_INFO
    assert text == f"count=4 payload={'x' * abi.MESSAGE_LIMIT}"[: abi.MESSAGE_LIMIT]


def test_the_counter_counts_nothing_when_the_payload_is_beyond_its_memory(
    counter: Deployed,
) -> None:
    assert counter.send(b"x" * (65 << 20)) == -1
    assert counter.store == {}
    assert counter.logs[-1] == (abi.LOG_ERROR, "the payload cannot be read")


# ---------------------------------------------------------------- checksum


def test_the_checksum_adds_up_the_bytes_of_all_payloads(checksum: Deployed) -> None:
    total = 0
    for payload in (b"", b"abc", bytes(range(256)), b"\xff" * 300_000):
        total += sum(payload)
        assert checksum.send(payload) == 0
        assert checksum.store == {b"total": str(total).encode()}
        assert checksum.logs == [(abi.LOG_INFO, f"sum={sum(payload)} total={total}")]


def test_a_checksum_handler_that_traps_leaves_its_log_line_and_no_write(
    checksum: Deployed,
) -> None:
    checksum.send(b"abc")
    assert checksum.send(b"x", "fail") == -1
    assert "unreachable" in checksum.error
    assert (abi.LOG_WARNING, "the total is 0 now, but not for long") in checksum.logs
    assert checksum.store == {b"total": b"294"}


def test_a_checksum_handler_that_never_ends_is_stopped(checksum: Deployed) -> None:
    assert checksum.send(b"x", "spin") == -1
    assert "deadline" in checksum.error
    assert checksum.send(b"a") == 0
    assert checksum.store == {b"total": b"97"}


# ---------------------------------------------------------------- thermostat


def reading(device: str, temperature: float) -> bytes:
    return json.dumps({"device": device, "temperature": temperature}).encode()


def test_the_thermostat_keeps_the_last_and_the_highest_of_each_device(
    thermostat: Deployed,
) -> None:
    for device, temperature in [("a", 20), ("a", 22.5), ("b", -3.25), ("a", 21), ("b", -10)]:
        assert thermostat.send(reading(device, temperature)) == 0
    assert thermostat.store == {
        b"last/a": b"21.0",
        b"max/a": b"22.5",
        b"last/b": b"-10.0",
        b"max/b": b"-3.25",
    }


@pytest.mark.parametrize(("env", "limit"), [({}, 30.0), ({"TEMPERATURE_LIMIT": "25.5"}, 25.5)])
def test_the_thermostat_warns_above_the_limit_of_the_environment(
    env: dict[str, str], limit: float, thermostat: Deployed
) -> None:
    thermostat.env = env
    thermostat.send(reading("a", limit))
    assert thermostat.logs == [(abi.LOG_INFO, f"a: {limit} degrees, highest {limit}")]
    thermostat.send(reading("a", limit + 1))
    above = f"a: {limit + 1} degrees, highest {limit + 1}, above the limit of {limit}"
    assert thermostat.logs == [(abi.LOG_WARNING, above)]


def test_a_reset_makes_the_last_temperature_the_highest(thermostat: Deployed) -> None:
    for temperature in (20.0, 30.0, 25.0):
        thermostat.send(reading("a", temperature))
    assert thermostat.send(b'{"device": "a"}', "reset") == 0
    assert thermostat.store == {b"last/a": b"25.0", b"max/a": b"25.0"}
    assert thermostat.send(b'{"device": "unknown"}', "reset") == 0
    assert set(thermostat.store) == {b"last/a", b"max/a"}


@pytest.mark.parametrize(
    "payload", [b"{}", b"[]", b"7", b'{"device": "a"}', b'{"device": 1, "temperature": 2}']
)
def test_the_thermostat_answers_1_to_a_message_of_another_shape(
    payload: bytes, thermostat: Deployed
) -> None:
    assert thermostat.send(payload) == 1
    assert thermostat.store == {}
    assert thermostat.logs[0][0] == abi.LOG_WARNING


def test_a_payload_that_is_no_json_ends_the_run_and_leaves_the_reason_in_the_log(
    thermostat: Deployed,
) -> None:
    assert thermostat.send(b"nope") == -1
    assert any("abort" in text for _, text in thermostat.logs)
    assert thermostat.store == {}


# ---------------------------------------------------------------- device-proof


class Device:
    """A device with a key on P-256."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key()
        self.public_key = public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint).hex()

    def sign(self, reading: bytes) -> bytes:
        signature = self._key.sign(reading, ec.ECDSA(SHA256()))
        return signature.hex().encode() + b" " + reading


@pytest.fixture(scope="module")
def device() -> Device:
    return Device()


@pytest.mark.parametrize("reading", [b'{"celsius": 21.5}', b"", b"\0\xff ", b"x" * 200_000])
def test_what_a_device_signed_is_kept_under_its_digest_once(
    reading: bytes, device_proof: Deployed, device: Device
) -> None:
    device_proof.env = {"DEVICE_KEY": device.public_key}
    payload = device.sign(reading)
    assert device_proof.send(payload) == 0
    digest = keccak256(reading).hex().encode()
    assert device_proof.store == {b"proof/" + digest: payload, b"last": digest}
    assert device_proof.logs == [(abi.LOG_INFO, f"proof/{digest.decode()}")]
    again = device.sign(reading)
    assert again != payload
    assert device_proof.send(again) == 1
    assert device_proof.store[b"proof/" + digest] == payload


def test_what_the_device_did_not_sign_is_not_kept(device_proof: Deployed, device: Device) -> None:
    device_proof.env = {"DEVICE_KEY": device.public_key}
    good = device.sign(b"21.5")
    assert device_proof.send(good[:-4] + b"99.5") == 11
    assert device_proof.send(Device().sign(b"21.5")) == 11
    assert device_proof.logs == [(abi.LOG_WARNING, "the signature is not the device's")]
    assert device_proof.send(b"30" + good) == 12
    for payload in (b"", b"21.5", b"abc 21.5", b" 21.5", good.split()[0], b"zz" + good):
        assert device_proof.send(payload) == -1
    assert device_proof.store == {}


@pytest.mark.parametrize("variable", [None, "", "02", "0z", "02" * 33, "021"])
def test_without_a_key_nothing_is_kept(
    variable: str | None, device_proof: Deployed, device: Device
) -> None:
    device_proof.env = {} if variable is None else {"DEVICE_KEY": variable}
    assert device_proof.send(device.sign(b"21.5")) in {-1, 11, 13}
    assert device_proof.store == {}
    assert device_proof.logs[0][0] == abi.LOG_WARNING


# ---------------------------------------------------------------- the run scripts


@pytest.fixture(scope="module")
def node(start_module_node: StartNode) -> RunningNode:
    return start_module_node("--deadline-ms", "1500")


@pytest.mark.parametrize(
    ("name", "last_lines"),
    [
        ("counter", ["== the number of counted events", "3"]),
        ("checksum", []),
        ("thermostat", ["== the highest one, after a reset", "22.25"]),
        ("device-proof", []),
    ],
)
@pytest.mark.thorough("checksum", "thermostat", "device-proof")
def test_an_examples_run_script_shows_it_at_work_on_a_real_node(
    name: str, last_lines: list[str], node: RunningNode, tmp_path: Path
) -> None:
    for tool in ("bash", "curl", "mosquitto_pub", *TOOLS[name], *RUN_TOOLS.get(name, ())):
        require_tool(tool)
    # A copy, so that what the script builds does not stay in the source.
    copied = tmp_path / "examples"
    subprocess.run(["cp", "-R", str(EXAMPLES), str(copied)], check=True)
    environment = {
        **os.environ,
        "XDG_CONFIG_HOME": str(tmp_path),
        "PYTHONPATH": str(EXAMPLES.parent),
        "FIELDBROOK_SERVER": f"http://127.0.0.1:{node.http_port}",
        "FIELDBROOK_MQTT": f"127.0.0.1:{node.mqtt_port}",
        "FIELDBROOK_TOKEN": node.token,
        "FIELDBROOK_COMMAND": f"{sys.executable} -m fieldbrook",
    }
    done = subprocess.run(
        ["bash", str(copied / name / "run.sh")],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    lines = [line for line in done.stdout.splitlines() if line]
    wanted = [line for line in lines if line in last_lines]
    assert wanted[-len(last_lines) :] == last_lines or not last_lines
    if name == "checksum":
        assert lines[lines.index("== the applet log") - 1].count("deadline of 1500 ms") == 1
        assert "394" in lines
    if name == "device-proof":
        codes = [json.loads(line)["results"][0]["code"] for line in lines if line[0] == "{"]
        assert codes == [0, 1, 11]
        assert sum(" proof/" in line for line in lines) == 2
