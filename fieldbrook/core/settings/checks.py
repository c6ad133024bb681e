"""Checks of settings beyond their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fieldbrook.core.clock import zone_of
from fieldbrook.core.host_port import read_host_port
from fieldbrook.core.settings.chain import Chain, read_chains
from fieldbrook.core.settings.fields import read_value
from fieldbrook.core.settings.schema import settings_fields
from fieldbrook.core.settings.values import (
    listed,
    listed_as_is,
    networks_in,
    split_address,
    why_no_base_url,
    why_no_device_topic,
)

_ADDRESS = re.compile("0x[0-9a-f]{40}")


def read_setting(name: str, value: Any, others: Mapping[str, Any]) -> Any:
    """Convert a value from a source to the type of a setting, and check it.

    Args:
        name: the setting.
        value: the value in the form of a flag, a variable or the settings file.
        others: the given and valid values of the settings before this one.

    Raises:
        ValueError: the value is refused; each argument is a reason. There is none if a value of
            `chains` has another form.
    """
    field = settings_fields()[name]
    if field.is_optional and value == "":
        return None
    if name == "chains":
        return _check_chains(read_chains(value))
    if name == "log_level" and isinstance(value, str):
        value = value.upper()
    converted = read_value(field, value)
    return converted if converted is None else _checked(name, converted, others)


def _checked(name: str, value: Any, others: Mapping[str, Any]) -> Any:
    match name:
        case "cron_timezone":
            zone_of(value)
        case "dashboard_hosts":
            _check_host_names(value)
        case "default_chain" | "wallet_chain":
            if value not in [chain.id for chain in others.get("chains", ())]:
                raise ValueError("must be the id of one of the chains")
        case "mqtt_broker":
            split_address(value)
        case "mqtt_device_topics":
            _check_topic_filters(value, others.get("mqtt_broker"))
        case "otlp_endpoint":
            if not value.startswith(("http://", "https://")):
                raise ValueError("must be like http://127.0.0.1:4318/v1/traces")
            _require("opentelemetry", "a library", "otel")
        case "otlp_headers":
            _check_header_fields(value)
        case "postgres_dsn":
            if not value.startswith(("postgres://", "postgresql://")):
                raise ValueError("must be like postgresql://USER:PASSWORD@HOST/DATABASE")
            _require("psycopg", "a library", "postgres")
        case "public_url":
            if reason := why_no_base_url(value):
                raise ValueError(reason)
            return value.rstrip("/")
        case "trusted_proxies":
            networks_in(value)
        case "wallet_domains":
            _check_hosts(value)
        case "wallet_whitelist":
            if not all(word == "*" or _ADDRESS.fullmatch(word) for word in listed(value)):
                raise ValueError("must be addresses (0x and 40 hexadecimal digits), or *")
    return value


def _check_chains(chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
    if chains:
        _require("web3", "libraries", "chains")
    if len({chain.id for chain in chains}) < len(chains):
        raise ValueError("each chain must have an id of its own")
    if len({chain.name for chain in chains}) < len(chains):
        raise ValueError("each chain must have a name of its own")
    return chains


def _check_hosts(value: str) -> None:
    for word in listed(value):
        if word != "*" and read_host_port(word) is None:
            raise ValueError(
                f"{word!r}: must be a host with its port where that is not 80 or 443, "
                "e.g. studio.example or localhost:3000, or *"
            )


def _check_host_names(value: str) -> None:
    for word in listed(value):
        found = read_host_port(word.removeprefix("*."))
        if found is None or found.host != word.removeprefix("*."):
            raise ValueError(f"{word!r}: must be a host name without a port")


def _check_topic_filters(value: str, broker: str | None) -> None:
    filters = [part.strip() for part in value.split(",") if part.strip()]
    for topic_filter in filters:
        reason = why_no_device_topic(topic_filter)
        if reason:
            raise ValueError(f"{topic_filter!r}: {reason}")
    if filters and broker is not None:
        raise ValueError(
            "applies to the node's own port only; an external broker (mqtt_broker) has its own "
            "access list"
        )


def _check_header_fields(value: str) -> None:
    for word in listed_as_is(value):
        name, is_pair, content = word.partition("=")
        if not (name.strip().isascii() and is_pair and content.isprintable()):
            raise ValueError("must be NAME=VALUE, separated by commas")


def _require(module: str, what: str, extra: str) -> None:
    """Refuse a setting whose library is not installed."""
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise ValueError(f"needs {what}: pip install 'fieldbrook[{extra}]'")
