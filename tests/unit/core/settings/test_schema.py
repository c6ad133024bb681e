"""Values of settings: defaults, and refused values."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings, load
from fieldbrook.core.settings.chain import read_chain


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 32)])
def test_there_is_one_http_gateway_for_every_two_cores_the_process_may_use(
    cores: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)), raising=False)
    assert Settings().http_processes == processes


@pytest.mark.parametrize(
    ("cores", "threads", "beside"), [(1, 0, 0), (4, 0, 3), (1, 3, 2), (8, 1, 0)]
)
def test_handlers_of_a_project_may_use_all_cores_or_as_many_threads_as_set(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int, beside: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)), raising=False)
    assert Settings(handler_threads=threads).look_ahead_threads == beside


def test_a_number_of_http_gateways_that_is_set_counts_whatever_the_cores() -> None:
    assert Settings(http_gateways=5).http_processes == 5


def test_a_known_chain_needs_no_more_than_its_name_and_an_endpoint() -> None:
    by_name = read_chain({"name": "ethereum-mainnet", "endpoint": "https://e/key"})
    assert (by_name.id, by_name.confirmations, by_name.poll_ms) == (1, 12, 12_000)
    assert by_name.endpoints == ("https://e/key",)
    by_id = read_chain({"id": 4690, "endpoints": ["https://a", "wss://b"]})
    assert (by_id.name, by_id.confirmations) == ("iotex-testnet", 0)
    own = read_chain({"id": 1, "name": "mine", "endpoint": "https://e", "poll_ms": 50})
    assert (own.name, own.poll_ms, own.confirmations) == ("mine", 50, 12)
    other = read_chain({"id": 31337, "name": "dev", "endpoint": "http://e"})
    assert (other.confirmations, other.poll_ms, other.websocket) == (0, 3_000, None)
    assert "key" not in repr(by_name)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"id": 5, "name": "ethereum-mainnet", "endpoint": "https://e"}, "has the id 1"),
        ({"name": "solana-devnet", "endpoint": "https://e"}, "not an EVM chain"),
        ({"name": "ethereum-mainnet"}, "endpoints"),
        ({"name": "ethereum-mainnet", "endpoints": []}, "endpoints"),
        ({"name": "ethereum-mainnet", "endpoints": ["ftp://e"]}, "endpoints"),
        ({"name": "ethereum-mainnet", "endpoint": "https://e", "websocket": "https://e"}, "websoc"),
        ({"name": "ethereum-mainnet", "endpoint": "https://e", "confirmations": -1}, "confirm"),
        ({"name": "ethereum-mainnet", "endpoint": "https://e", "poll_ms": 1}, "poll_ms"),
        ({"name": ["x"], "endpoint": "https://e", "id": 7}, "name"),
        ({"name": "unknown", "endpoint": "https://e"}, "id is missing"),
        ({"id": 1, "endpoint": "https://e\n"}, "endpoints must be URLs"),
        ({"id": 1, "endpoint": "https://"}, "endpoints must be URLs"),
        ({"id": 1, "endpoint": "https://e", "endpoints": ["https://e"]}, "cannot both be given"),
        ({"id": 1, "endpoint": "https://e", "websocket": ""}, "websocket must be a URL"),
        ({"id": 1, "endpoint": "https://e", "priority_fee": ""}, "priority_fee must be a whole"),
        ({"id": 1, "endpoint": "https://e", "poll": 50}, "unknown key; known are id, name, endp"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_chain(value)


def test_every_wrong_key_of_every_chain_is_named() -> None:
    first = {"id": 1, "name": "", "endpoint": "https://e", "poll_ms": 1, "block_tag": "newest"}
    with pytest.raises(SettingsError) as refused:
        load(chains=[first, {"id": 5, "name": "dev"}])
    assert str(refused.value) == (
        "chains = (not shown) (from --chains): "
        "chain 1: name must be a string of 1 to 64 characters; "
        "chain 1: block_tag must be one of latest, safe, finalized; "
        "chain 1: poll_ms must be a whole number from 50 to 3600000; "
        "chain 2: endpoints is missing; "
        'must be a list like [{"id": 4690, "name": "iotex-testnet", "endpoint": "https://..."}]'
    )


def test_a_copy_with_other_values_keeps_the_rest() -> None:
    first = load(http_port="1234", prover="http://prover.example")
    second = first.changed(dashboard_port=3001)
    assert (second.http_port, second.dashboard_port, first.dashboard_port) == (1234, 3001, 3000)
    assert (second.warnings, second.sources) == (first.warnings, first.sources)
    with pytest.raises(AttributeError):
        first.http_port = 1  # type: ignore[misc]


@pytest.mark.parametrize("dsn", ["host=db password=hidden", "mysql://node:hidden@db/fieldbrook"])
def test_a_dsn_that_is_none_is_refused_without_showing_it(dsn: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(postgres_dsn=dsn)
    assert "postgres_dsn = (not shown)" in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_dsn_is_in_no_text_of_the_settings() -> None:
    settings = load(postgres_dsn="postgresql://node:hidden@db/fieldbrook")
    assert "hidden" not in repr(settings)
    assert "hidden" not in str(settings)


def test_a_dsn_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match=r"pip install 'fieldbrook\[postgres\]'"):
        load(postgres_dsn="postgresql://node:hidden@db/fieldbrook")


@pytest.mark.parametrize("value", ["https://studio.example", "a@b", "a.example/x", "a:99999"])
def test_a_domain_that_no_message_can_have_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="wallet_domains.*studio.example or localhost:3000"):
        load(wallet_domains=f"a.example,{value}")
    assert load(wallet_domains="*, a.example:8443,[::1]:3000").wallet_domains


@pytest.mark.parametrize("name", ["default_chain", "wallet_chain"])
def test_a_chain_that_a_setting_chooses_must_be_one_of_the_chains(name: str) -> None:
    chains = ({"id": 5, "name": "dev", "endpoint": "http://127.0.0.1:8545"},)
    known: dict[str, Any] = {"chains": chains, name: "5"}
    assert getattr(load(**known), name) == 5
    with pytest.raises(SettingsError, match="must be the id of one of the chains"):
        load(**{**known, name: "7"})


@pytest.mark.parametrize(
    "topics",
    [
        "",
        "test1, mqtt_test",
        "commands/#",
        "commands/+/now",
        "+/status",
        "a/b/c, d",
        "über/+",
        "#",
        "a b",
    ],
)
def test_filters_of_open_topics_are_taken(topics: str) -> None:
    assert load(mqtt_device_topics=topics).mqtt_device_topics == topics


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        ("a/#/b", "# can only be the last level"),
        ("a#", "stand for whole levels"),
        ("a/b+", "stand for whole levels"),
        ("$SYS/a", "the server's own"),
        ("a\nb", "no control characters"),
    ],
)
def test_a_filter_of_open_topics_that_is_none_is_refused_in_words(topics: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=f"mqtt_device_topics = .*{reason}"):
        load(mqtt_device_topics=topics)


def test_device_topics_are_refused_where_an_external_broker_decides_about_them() -> None:
    with pytest.raises(SettingsError, match=r"mqtt_device_topics .* an external broker"):
        load(mqtt_device_topics="out", mqtt_broker="broker:1883")


def test_a_quota_is_a_number_or_no_limit() -> None:
    settings = load(quota_projects="", quota_bytes="0", quota_cron_jobs="7")
    limits = settings.quotas.limits
    assert (limits["projects"], limits["bytes"], limits["cron_jobs"]) == (None, 0, 7)
    with pytest.raises(SettingsError, match="quota_projects.*whole number from 0"):
        load(quota_projects="-1")


@pytest.mark.parametrize(
    "url",
    [
        *("node.example", "ftp://node.example", "https://", "https://a b", "https://node:port"),
        *("https://user@node.example", "https://node.example/?a", "https://n\u00f6de.example"),
    ],
)
def test_a_public_url_to_which_no_path_can_be_appended_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"public_url = .*must be like https://node\.example"):
        load(public_url=url)


def test_a_public_url_has_no_slash_at_its_end() -> None:
    assert load(public_url="https://node.example:8443/").public_url == "https://node.example:8443"
    assert load(public_url="").public_url is None
