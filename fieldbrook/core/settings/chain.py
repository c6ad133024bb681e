"""The settings of one chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from fieldbrook.core import networks
from fieldbrook.core.settings.fields import fields_of, read_value

LATEST, FINALIZED = "latest", "finalized"
_MOST = (1 << 63) - 1
_WEBSOCKET = ("wss://", "ws://")
_HTTP_OR_WEBSOCKET = ("https://", "http://", *_WEBSOCKET)


class Chain(Struct, frozen=True, kw_only=True):
    """A chain that the node uses. Its endpoint URLs may hold keys and are never shown.

    Create it with `read_chain`, which checks the keys and adds the defaults of `networks`.

    If the name or the id is in `networks`, the other one and the defaults of some other keys are
    taken from there. `endpoints` are tried in this order; a single one may be given as `endpoint`.
    `websocket` announces new blocks, so that the node reads them before the next poll; it is also
    used as the last endpoint.

    A block is confirmed when `confirmations` later blocks exist and it is not newer than the
    endpoint's block `block_tag`. One request for logs covers at most `log_range` blocks.

    Transactions pay at most `max_fee_per_gas` wei per gas, and offer at least `priority_fee`.
    With the fees `legacy`, they have a gas price even if blocks have a base fee. A transaction
    that no block has included for `reprice_s` seconds is signed again with higher fees.
    A transaction that is reported is watched until `finality` later blocks exist.
    """

    id: Annotated[int, Meta(ge=1, le=_MOST)]
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    endpoints: Annotated[tuple[str, ...], Meta(min_length=1, max_length=16)]
    websocket: str | None = None
    confirmations: Annotated[int, Meta(ge=0, le=10_000)] = networks.DEFAULT_CONFIRMATIONS
    block_tag: Literal["latest", "safe", "finalized"] = "latest"
    finality: Annotated[int, Meta(ge=0, le=1_000_000)] = networks.DEFAULT_FINALITY
    poll_ms: Annotated[int, Meta(ge=50, le=3_600_000)] = networks.DEFAULT_POLL_MS
    log_range: Annotated[int, Meta(ge=1, le=1_000_000)] = networks.DEFAULT_LOG_RANGE
    fees: Literal["auto", "legacy"] = "auto"
    priority_fee: Annotated[int, Meta(ge=0, le=_MOST)] | None = None
    max_fee_per_gas: Annotated[int, Meta(ge=1, le=_MOST)] = networks.DEFAULT_MAX_FEE
    reprice_s: Annotated[int, Meta(ge=1, le=86_400)] = 90

    def __repr__(self) -> str:
        """Return every key except the addresses."""
        shown = (n for n in self.__struct_fields__ if n not in ("endpoints", "websocket"))
        return f"Chain({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses for requests, the preferred one first."""
        last = (
            () if self.websocket is None or self.websocket in self.endpoints else (self.websocket,)
        )
        return (*self.endpoints, *last)


def read_chains(given: Any) -> tuple[Chain, ...]:
    """Make chains from the value of the setting `chains`.

    Raises:
        ValueError: the value is refused. There is an argument for each wrong key of each chain, and
            none if the value is no list.
    """
    if not isinstance(given, list | tuple):
        raise ValueError  # noqa: TRY004 - a value of an operator, not of a caller
    chains: list[Chain] = []
    reasons: list[str] = []
    for number, entry in enumerate(given, 1):
        try:
            chains.append(read_chain(entry))
        except ValueError as error:
            reasons += [f"chain {number}: {reason}" for reason in error.args]
    if reasons:
        raise ValueError(*reasons)
    return tuple(chains)


def read_chain(given: Any) -> Chain:
    """Make a chain from its keys in the settings.

    Raises:
        ValueError: keys are missing or wrong. There is an argument for each such key, without its
            value.
    """
    if isinstance(given, Chain):
        return given
    given, fields = _complete(given if isinstance(given, Mapping) else {}), fields_of(Chain)
    values: dict[str, Any] = {}
    reasons: list[str] = []
    for name, field in fields.items():
        if name in given:
            try:
                values[name] = read_value(field, given[name])
            except ValueError as error:
                reasons.append(f"{name} {error}")
        elif field.is_required:
            reasons.append(f"{name} is missing")
    if not all(_is_url(url, _HTTP_OR_WEBSOCKET) for url in values.get("endpoints", ())):
        reasons.append("endpoints must be URLs of https, http, wss or ws, without blanks")
    websocket = values.get("websocket")
    if websocket is not None and not _is_url(websocket, _WEBSOCKET):
        reasons.append("websocket must be a URL of wss or ws, without blanks")
    if "endpoint" in given:
        reasons.append("endpoint and endpoints cannot both be given")
    if given.keys() - fields.keys() - {"endpoint"}:
        reasons.append(f"unknown key; known are {', '.join(fields)}")
    if reasons:
        raise ValueError(*reasons)
    return Chain(**values)


def _is_url(text: str, beginnings: tuple[str, ...]) -> bool:
    return text.startswith(beginnings) and text not in beginnings and text.split() == [text]


def _complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of a known chain, and convert `endpoint` to `endpoints`."""
    keys = dict(given)
    if "endpoint" in keys and "endpoints" not in keys:
        keys["endpoints"] = [keys.pop("endpoint")]
    try:
        if keys.get("name") in networks.NOT_EVM:
            raise ValueError(f"{keys['name']} is not an EVM chain; the node supports no other")
        network = networks.BY_NAME.get(keys.get("name", "")) or networks.BY_ID.get(
            keys.get("id", 0)
        )
    except TypeError:  # an unhashable name or id; the check of the key reports it
        return keys
    if network is None:
        if keys.get("id") in networks.DEVELOPMENT_IDS:
            keys.setdefault("confirmations", 0)
        return keys
    if keys.get("id", network.chain_id) != network.chain_id:
        raise ValueError(f"the chain {network.name} has the id {network.chain_id}")
    return {**network.defaults(), **keys}
