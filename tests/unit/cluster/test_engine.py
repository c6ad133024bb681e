"""The replication engine: a real nats-server."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.cluster import engine as engines
from fieldbrook.cluster.engine import Address, Engine, Tls
from fieldbrook.core.errors import EngineUnreachableError, SettingsError
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.endpoint import endpoint_in, write_endpoint

LISTEN = Address("10.0.0.1", 8887)
TLS = Tls(Path("host.pem"), Path("host-key.pem"), Path("ca.pem"))


def alone(folder: Path) -> Engine:
    return Engine(folder, "h1", "c1", Address("127.0.0.1", 0), [], None, 1 << 30)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = alone(tmp_path / "engine")
    yield engine
    engine.stop()


def listeners(configuration: dict[str, Any]) -> list[str]:
    """Return all addresses on which the server listens with a configuration."""
    found = []
    for key, value in configuration.items():
        if isinstance(value, dict):
            found += listeners(value)
        elif key in ("listen", "http", "https", "port", "http_port", "https_port", "profile"):
            found.append(value)
    return found


def test_only_engines_of_other_hosts_connect_from_outside_and_by_tls(tmp_path: Path) -> None:
    others = [Address("10.0.0.2", 8887), Address("fd00::3", 8887)]
    made = Engine(tmp_path, "h1", "c1", LISTEN, others, TLS, 1 << 30).configuration()
    assert sorted(listeners(made)) == ["10.0.0.1:8887", "127.0.0.1:-1", "127.0.0.1:-1"]
    assert not {"mqtt", "websocket", "leafnodes", "gateway"} & set(made)
    cluster = made["cluster"]
    assert cluster["routes"] == ["nats-route://10.0.0.2:8887", "nats-route://[fd00::3]:8887"]
    assert cluster["tls"]["verify"] is True
    assert cluster["tls"]["ca_file"] == "ca.pem"
    assert made["jetstream"]["sync_interval"] == "always"


def test_a_host_alone_listens_on_the_loopback_only(tmp_path: Path) -> None:
    assert listeners(alone(tmp_path).configuration()) == ["127.0.0.1:-1", "127.0.0.1:-1"]


def test_it_starts_syncs_each_record_and_starts_again(engine: Engine, tmp_path: Path) -> None:
    for _ in range(2):
        endpoint = engine.start()
        runs = engine.is_running, engine.pid is not None
        assert endpoint.host == "127.0.0.1"
        assert engine.status("jsz?config=true")["config"]["sync_always"] is True
        connection = Connection(lambda at=endpoint: at, "test")  # type: ignore[misc]
        assert "error" not in connection.request("$JS.API.INFO", None, 5.0)
        connection.close()
        engine.stop()
        assert (runs, engine.is_running, engine.pid) == ((True, True), False, None)
    file = tmp_path / "engine/nats-server.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_engine_that_does_not_sync_each_record_is_refused_and_ended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SYNC", "2m")
    with pytest.raises(EngineUnreachableError, match="sync_interval"):
        engine.start()
    assert not engine.is_running


def test_an_engine_that_ends_at_once_names_its_log(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SYNC", "nonsense")
    with pytest.raises(EngineUnreachableError, match=r"nats-server\.log"):
        engine.start()
    assert (tmp_path / "engine/nats-server.log").stat().st_size


def test_an_engine_whose_monitoring_does_not_answer_is_ended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(page: str) -> dict[str, Any]:
        raise EngineUnreachableError(reason=f"no {page}")

    monkeypatch.setattr(engine, "status", fails)
    with pytest.raises(EngineUnreachableError, match="no jsz"):
        engine.start()
    assert not engine.is_running


def test_a_missing_program_is_reported(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="pip install"):
        engine.start()


def test_processes_of_the_host_find_the_engine_by_a_file_of_its_own(
    engine: Engine, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    find = endpoint_in(run_dir)
    with pytest.raises(EngineUnreachableError):
        find()
    endpoint = engine.start()
    write_endpoint(run_dir, endpoint)
    assert find() == endpoint
    assert stat.S_IMODE((run_dir / "engine").stat().st_mode) == 0o600
    connection = Connection(find, "test")
    assert json.dumps(connection.request("$JS.API.INFO", None, 5.0))
    connection.close()
