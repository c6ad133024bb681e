"""Applets built with each SDK, on every host, with every kind of payload.

The AssemblyScript samples are built with the real SDK; the samples in Rust and C have the
declarations of their SDKs. The results of each are those of the ABI document, and the same on all
hosts.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import wasmtime

from fieldbrook.storage.sql.sqlite.database import SqliteDatabase
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import check, compile_module
from fieldbrook.wasm.run import Capabilities, Host, Message, Metric, Run
from fieldbrook.workbench.chain_file import Call, Chain, ChainFile
from fieldbrook.workbench.results import describe
from fieldbrook.workbench.runs import DEFAULT_SEED, HOSTS, Trial, Workbench
from fieldbrook.workbench.simulated_chain import SimulatedChains
from tests.contract.hosts import harness as h
from tests.contract.sql.databases import Backend
from tests.integration.test_applet_projects import rustc_for_wasm
from tests.support.postgres import PostgresServer
from tests.support.tools import require_tool

HERE = Path(__file__).parent
THERMOSTAT = HERE.parents[1] / "examples" / "thermostat"
LIMITS = Limits(deadline_ms=5_000)
ENV = {"LIMIT": "25.5"}
CONFIG = {
    "tables": [
        {
            "name": "t",
            "cols": [
                {"name": "n", "constrains": {"datatype": "INT64"}},
                {"name": "x", "constrains": {"datatype": "FLOAT64"}},
                {"name": "s", "constrains": {"datatype": "TEXT"}},
            ],
        }
    ]
}

PAYLOADS = {
    "empty": b"",
    "JSON": b'{"device":"d1","celsius":21.5}',
    "text": "grün\n<21.5>".encode(),
    "binary": bytes(range(256)),
    "64 KiB": b"x" * 65_536,
    "not UTF-8": b"\xff\xfe caf\xe9 \xf0\x9f",
}


# ---------------------------------------------------------------- building


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _assemblyscript(folder: Path) -> None:
    npm = require_tool("npm")
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(THERMOSTAT / name, folder)
    _run(npm, "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
    options = ("--outFile", "samples.wasm", "--optimizeLevel", "3", "--disableWarning")
    asc = folder / "node_modules" / ".bin" / "asc"
    _run(str(asc), str(folder / "samples.ts"), *options, folder=folder)


def _rust(folder: Path) -> None:
    require_tool("wasm-ld")
    options = [
        "--edition",
        "2021",
        "--target",
        "wasm32-unknown-unknown",
        "-O",
        "--crate-type",
        "cdylib",
    ]
    for option in ("linker=wasm-ld", "linker-flavor=wasm-ld", "panic=abort", "strip=symbols"):
        options += ["-C", option]
    _run(rustc_for_wasm(), *options, "samples.rs", "-o", "samples.wasm", folder=folder)


def _c(folder: Path) -> None:
    require_tool("wasm-ld")
    options = """--target=wasm32-unknown-unknown -std=c11 -O2 -nostdlib -ffreestanding -fno-builtin
        -Wall -Wextra -Werror -Wl,--no-entry -Wl,-z,stack-size=8192 -Wl,--strip-all"""
    clang = require_tool("clang")
    _run(clang, *options.split(), "samples.c", "-o", "samples.wasm", folder=folder)


BUILDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "AssemblyScript": ("samples.ts", _assemblyscript),
    "Rust": ("samples.rs", _rust),
    "C": ("samples.c", _c),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """Return the module of a language, which is built at its first use."""

    def build(language: str) -> bytes:
        source, make = BUILDS[language]
        folder = tmp_path_factory.mktemp(language)
        shutil.copy(HERE / source, folder)
        make(folder)
        return (folder / "samples.wasm").read_bytes()

    return functools.cache(build)


# ---------------------------------------------------------------- what they are to leave


class Left(NamedTuple):
    """All results of a run."""

    code: int
    error: str
    writes: dict[bytes, bytes]
    effects: list[Any]
    logs: list[tuple[int, str, str]]


class Neighbours(Capabilities):
    """The effects of a project with a broker and an API, but no chain."""

    def check_topic(self, topic: str) -> None:
        assert topic == "out/readings"

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        return None if url.endswith("/system/hello") else (404, "there is no such route")


def info(text: str | bytes) -> tuple[int, str, str]:
    """Return a log line of the applet, as the node stores it."""
    shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return abi.LOG_INFO, abi.SOURCE_GUEST, shown[: abi.MESSAGE_LIMIT]


def well(
    code: int = 0, *logs: tuple[int, str, str], effects: tuple[Any, ...] = (), **kept: bytes
) -> Left:
    writes = {key.encode(): value for key, value in kept.items()}
    return Left(code, "", writes, list(effects), list(logs))


_WORD = {"little": (1).to_bytes(4, "little")}
_ON_THE_WAY = (abi.LOG_ERROR, abi.SOURCE_GUEST, "on the way")

# The results of handlers in C and Rust: bytes stay unchanged.
BYTES: dict[str, Callable[[bytes], Left]] = {
    "log": lambda given: well(0, info(given)),
    "size": lambda given: well(len(given)),
    "keep": lambda given: well(last=given),
    "count": lambda _: well(1, count=_WORD["little"]),
    "missing": lambda _: well(abi.RESOURCE_NOT_FOUND),
    "unknown": lambda _: well(abi.RESOURCE_NOT_FOUND),
    "resource": lambda _: well(),
    "environment": lambda _: well(0, info("25.5")),
    "publish": lambda given: well(effects=(Message("out/readings", given),)),
}


def _text(given: bytes) -> str | None:
    """Return the result of GetDataByRID of the AssemblyScript SDK for a payload: UTF-8 up to the
    first zero. Its result for other bytes is not defined."""
    try:
        return given.partition(b"\0")[0].decode()
    except UnicodeDecodeError:
        return None


def _as_json(given: bytes) -> Left | None:
    return well(0, info("21.5")) if given.startswith(b"{") else None


TEXTS: dict[str, Callable[[bytes], Left | None]] = {
    "log": lambda given: None if (t := _text(given)) is None else well(0, info("received: " + t)),
    "size": lambda given: None if (t := _text(given)) is None else well(len(t.encode())),
    "keep": lambda given: (
        None
        if (t := _text(given)) is None
        else well(0, info(str(len(t.encode()))), last=t.encode())
    ),
    "count": lambda _: well(1, count=_WORD["little"]),
    "missing": lambda _: well(),
    "json": _as_json,
    "environment": lambda _: well(0, info("25.5")),
    "metrics": lambda given: (
        None
        if (t := _text(given)) is None
        else well(effects=(Metric(f'{{"bytes":{len(t.encode())}}}'),))
    ),
    "chance": lambda _: well(),
}
EXPECTED: dict[str, dict[str, Any]] = {"AssemblyScript": TEXTS, "Rust": BYTES, "C": BYTES}

# Handlers whose outcome does not depend on the payload: the code, whether they trap, and their log.
# An SDK reports a failure by `abort` and a trap.
ENDS: dict[str, dict[str, tuple[int, bool, str]]] = {
    "AssemblyScript": {
        "no_environment": (-1, True, "abort: get env failed: key: NOT THERE"),
        "bad_sql": (-1, True, "abort: fail to execute the sql query"),
        "transaction": (-1, True, "abort: send tx failed"),
        "contract": (-1, True, "abort: send tx failed"),
        "aborts": (-1, True, "abort: a text cannot be shorter than nothing"),
    },
    "Rust": {
        "no_environment": (abi.ENV_KEY_NOT_FOUND, False, ""),
        "bad_sql": (-1, False, "ws_set_sql_db: applets may not run DROP statements"),
        "transaction": (-1, False, "ws_send_tx: "),
        "aborts": (-1, True, "on the way"),
    },
    "C": {
        "no_environment": (abi.ENV_KEY_NOT_FOUND, False, ""),
        "bad_sql": (-1, False, "ws_set_sql_db: applets may not run DROP statements"),
        "aborts": (-1, True, "on the way"),
    },
}


# ---------------------------------------------------------------- performing


_HostOf = Callable[[str, str], Host]
_Perform = Callable[[str, str, str, bytes], Left]


@pytest.fixture(scope="module")
def host_of(built: Callable[[str], bytes]) -> Iterator[_HostOf]:
    """Return a host of a kind with the module of a language."""
    modules: dict[str, wasmtime.Module] = {}
    hosts: dict[tuple[str, str], Any] = {}

    def find(language: str, kind: str) -> Host:
        if language not in modules:
            modules[language] = compile_module(h.engine(), built(language), LIMITS)[0]
        if (language, kind) not in hosts:
            hosts[language, kind] = h.HOSTS[kind](h.engine(), modules[language], LIMITS)
        found: Host = hosts[language, kind]
        return found

    yield find
    for host in hosts.values():
        host.close()


@pytest.fixture
def perform(host_of: _HostOf, tmp_path: Path) -> Iterator[_Perform]:
    databases: list[SqliteDatabase] = []

    def run(language: str, kind: str, handler: str, payload: bytes) -> Left:
        database = SqliteDatabase(tmp_path / f"{len(databases)}.db", CONFIG)
        databases.append(database)
        given = Run(payload, env=ENV, capabilities=Neighbours(), sql=database)
        database.begin_event()
        code, error = host_of(language, kind).run(handler, given)
        if error:
            given.writes.clear()
            given.effects.clear()
        return Left(code, error, dict(given.writes), list(given.effects), list(given.logs))

    yield run
    for database in databases:
        database.close()


_CASES = [(language, handler) for language, cases in EXPECTED.items() for handler in cases]


@pytest.mark.parametrize("language", BUILDS)
def test_each_sample_is_taken_as_it_was_built(language: str, built: Callable[[str], bytes]) -> None:
    handlers = set(check(built(language), LIMITS).handlers)
    assert handlers >= set(EXPECTED[language]) | set(ENDS[language])


@pytest.mark.parametrize(("language", "handler"), _CASES)
def test_a_sample_leaves_what_the_abi_says_on_every_host(
    language: str, handler: str, perform: _Perform
) -> None:
    for name, payload in PAYLOADS.items():
        left = [perform(language, kind, handler, payload) for kind in h.HOSTS]
        assert left[0] == left[1] == left[2], name
        expected = EXPECTED[language][handler](payload)
        if expected is not None:
            assert left[0] == expected, name


@pytest.mark.parametrize(
    ("language", "handler"), [(lang, handler) for lang, cases in ENDS.items() for handler in cases]
)
def test_a_sample_that_fails_does_so_alike_on_every_host(
    language: str, handler: str, perform: _Perform
) -> None:
    code, traps, line = ENDS[language][handler]
    for name, payload in PAYLOADS.items():
        left = [perform(language, kind, handler, payload) for kind in h.HOSTS]
        assert left[0] == left[1] == left[2], name
        assert (left[0].code, bool(left[0].error)) == (code, traps), name
        assert not line or any(line in text for _, _, text in left[0].logs), (name, left[0].logs)


@pytest.mark.parametrize("language", ["AssemblyScript", "Rust"])
def test_rows_of_the_sdks_come_back_as_the_abi_says(language: str, perform: _Perform) -> None:
    for payload in (b"", b'{"celsius":21.5}', b"x" * 65_536):
        left = [perform(language, kind, "sql", payload) for kind in h.HOSTS]
        assert left[0] == left[1] == left[2]
        assert (left[0].code, left[0].error) == (0, "")
        rows = f'{{"n":{len(payload)},"s":"it\'s","x":20}}'
        assert info(rows) in left[0].logs


@pytest.mark.parametrize("language", ["AssemblyScript", "Rust", "C"])
def test_metrics_are_json_but_no_array(language: str, perform: _Perform) -> None:
    for payload, taken in ((b'{"a":1}', True), (b"3", True), (b"[1]", False), (b"no", False)):
        left = [perform(language, kind, "metrics_of_payload", payload) for kind in h.HOSTS]
        assert left[0] == left[1] == left[2]
        assert left[0].effects == ([Metric(payload.decode())] if taken else [])
        assert (left[0].code == 0) is taken


def test_an_api_call_is_answered_as_the_sdks_read_it(perform: _Perform) -> None:
    left = [perform("Rust", kind, "api", b"") for kind in h.HOSTS]
    assert left[0] == left[1] == left[2]
    answer = json.loads(left[0].logs[-1][2])
    assert answer["StatusCode"] == 200
    assert [effect.event_type for effect in left[0].effects] == ["hello"]
    refused = [perform("AssemblyScript", kind, "api", b"") for kind in h.HOSTS]
    assert refused[0] == refused[1] == refused[2]
    assert refused[0].effects == []
    assert any('"StatusCode":404' in text for _, _, text in refused[0].logs)


# Transactions and calls of the samples, for the chain that they name.
_CHAIN = ChainFile(
    [
        Chain(
            4690,
            "iotex-testnet",
            calls=[Call("0xb73eE6EB5b1984c78CCcC49eA7Ad773E71d74F51", result="0x57")],
        )
    ]
)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("language", BUILDS)
def test_what_the_workbench_records_of_a_sample_is_met_by_the_next_run(
    language: str, host: str, built: Callable[[str], bytes]
) -> None:
    handlers = [*EXPECTED[language], *ENDS[language], "sql", "chance", "transaction", "contract"]
    runs: list[list[Any]] = []
    for _ in range(2):
        chains = SimulatedChains(_CHAIN, "chain.json", DEFAULT_SEED)
        bench = Workbench(built(language), host=host, env=ENV, schema=CONFIG, chains=chains)
        trials = [Trial(name, b"{}") for name in handlers if name in bench.handlers]
        runs.append([describe(outcome) for outcome in bench.perform(trials)])
        bench.close()
    assert runs[0] == runs[1]
    by_name = {left["handler"]: left for left in runs[0]}
    if language != "C":
        assert (by_name["transaction"]["code"], by_name["transaction"]["error"]) == (0, "")
        assert by_name["transaction"]["effects"][0]["kind"] == "Transaction"
    if language == "AssemblyScript":
        assert by_name["contract"]["code"] == 0


@pytest.mark.parametrize("language", ["AssemblyScript", "Rust"])
def test_rows_of_the_sdks_are_the_same_on_a_server(
    language: str, host_of: _HostOf, postgres: PostgresServer, tmp_path: Path
) -> None:
    database = Backend(postgres.dsn).database(tmp_path, CONFIG)
    for size in (0, 7):
        given = Run(b"x" * size, sql=database)
        database.begin_event()
        assert host_of(language, "raw").run("sql", given) == (0, "")
        assert info(f'{{"n":{size},"s":"it\'s","x":20}}') in given.logs
        database.undo_event()
    database.close()
