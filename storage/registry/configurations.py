"""Configurations of projects: the values that other parts of the node read from their JSON."""

from __future__ import annotations

import msgspec

from fieldbrook.core.model import CHAIN_RETRY, Config


class _Environment(msgspec.Struct):
    env: list[tuple[str, str]]


class _Chains(msgspec.Struct):
    unavailable: str


class _Spending(msgspec.Struct):
    per_day: str = msgspec.field(name="weiPerDay")


_decode_chains = msgspec.json.Decoder(_Chains).decode
_decode_spending = msgspec.json.Decoder(_Spending).decode
_decode_environment = msgspec.json.Decoder(_Environment).decode


def environment_of(config: Config | None) -> dict[str, str]:
    """Return the variables of a PROJECT_ENV; empty if the project has none."""
    return dict(_decode_environment(config.value).env) if config else {}


def retries_chains(config: Config | None) -> bool:
    """Return whether a PROJECT_CHAINS makes the node answer events with 503 while a chain is
    unavailable."""
    return config is not None and _decode_chains(config.value).unavailable == CHAIN_RETRY


def wei_per_day(config: Config | None) -> int | None:
    """Return the daily limit in wei of a PROJECT_SPENDING; None if the project has none."""
    return int(_decode_spending(config.value).per_day) if config else None
