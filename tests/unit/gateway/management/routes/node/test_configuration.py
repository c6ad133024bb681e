"""Public information about the node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fieldbrook.core.model import ADMIN
from fieldbrook.core.settings import Settings, load
from fieldbrook.gateway.management.sign_in.wallet import WalletPolicy
from tests.support.management import V0, serving, started

DASHBOARD = f"{V0}/configuration/dashboard"
LISTED = WalletPolicy(whitelist=frozenset({"*"}))


def test_before_the_setup_the_dashboard_is_told_where_the_code_is_and_not_after_it(
    tmp_path: Path,
) -> None:
    server, context = started(tmp_path)
    settings = Settings(data=tmp_path, http_port=81, event_port=82, mqtt_port=83)
    with serving(replace(context, settings=settings)) as server.port:
        assert server.send("GET", DASHBOARD).json == {
            "version": "0.0.9",
            "setup": True,
            "setupCodeIn": str(tmp_path / "secrets" / "setup-code"),
            "walletSignIn": False,
            "ports": {"http": 81, "mqtt": 83, "event": 82},
            "tls": False,
            "chains": [{"id": 4690, "name": "iotex-testnet"}],
            "cluster": False,
        }
        server.account("root", ADMIN)
        now = server.send("GET", DASHBOARD).json
        assert now["setup"] is False
        assert "setupCodeIn" not in now
    server.writer.close()


def test_ports_that_are_not_there_are_absent_and_the_public_address_is_given(
    tmp_path: Path,
) -> None:
    server, context = started(tmp_path)
    settings = load(mqtt_broker="broker.example:1883", public_url="https://node.example/a/")
    with serving(replace(context, settings=settings)) as server.port:
        found = server.send("GET", DASHBOARD).json
        assert found["ports"] == {"http": 8888}
        assert found["publicURL"] == "https://node.example/a"
    server.writer.close()


def test_wallets_may_sign_in_when_some_are_listed_or_have_an_account(tmp_path: Path) -> None:
    server, context = started(tmp_path)
    with serving(replace(context, wallets=LISTED)) as server.port:
        assert server.send("GET", DASHBOARD).json["walletSignIn"] is True
    with serving(context) as server.port:
        assert server.send("GET", DASHBOARD).json["walletSignIn"] is False
        server.account("0x" + "ab" * 20)
        assert server.send("GET", DASHBOARD).json["walletSignIn"] is True
    server.writer.close()
