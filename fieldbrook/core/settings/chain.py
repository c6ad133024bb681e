"""The settings of one chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fieldbrook.core import networks

HttpOrWebSocket = Annotated[str, Field(pattern=r"^(https?|wss?)://[^\s]+$")]
LATEST, FINALIZED = "latest", "finalized"


class Chain(BaseModel):
    """A chain that the node uses. Its endpoint URLs may hold keys and are never shown.

    When the name or the id is one of `networks`, the other one and the defaults of some other
    keys come from there. `endpoints` are tried in this order; `endpoint` is another way to write
    a single one. `websocket` announces new blocks, so that the node sees them before the next
    poll, and is the last endpoint.

    A block counts when it has `confirmations` blocks on top of it and is not newer than the
    endpoint's block `block_tag`. One request for logs covers at most `log_range` blocks.

    Transactions pay at most `max_fee_per_gas` wei per gas, and offer `priority_fee` at least.
    With the fees `legacy` they have a gas price, although blocks have a base fee. A transaction
    that no block has included for `reprice_s` seconds is signed again with higher fees.
    One that is reported is watched until its block has `finality` blocks on top of it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: int = Field(ge=1, lt=1 << 63)
    name: str = Field(min_length=1, max_length=64)
    endpoints: tuple[HttpOrWebSocket, ...] = Field(min_length=1, max_length=16, repr=False)
    websocket: str | None = Field(None, pattern=r"^wss?://[^\s]+$", repr=False)
    confirmations: int = Field(networks.DEFAULT_CONFIRMATIONS, ge=0, le=10_000)
    block_tag: Literal["latest", "safe", "finalized"] = "latest"
    finality: int = Field(networks.DEFAULT_FINALITY, ge=0, le=1_000_000)
    poll_ms: int = Field(networks.DEFAULT_POLL_MS, ge=50, le=3_600_000)
    log_range: int = Field(networks.DEFAULT_LOG_RANGE, ge=1, le=1_000_000)
    fees: Literal["auto", "legacy"] = "auto"
    priority_fee: int | None = Field(None, ge=0, lt=1 << 63)
    max_fee_per_gas: int = Field(networks.DEFAULT_MAX_FEE, ge=1, lt=1 << 63)
    reprice_s: int = Field(90, ge=1, le=86_400)

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses that requests may go to, the preferred one first."""
        last = (
            () if self.websocket is None or self.websocket in self.endpoints else (self.websocket,)
        )
        return (*self.endpoints, *last)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        given = dict(value)
        if "endpoint" in given and "endpoints" not in given:
            given["endpoints"] = [given.pop("endpoint")]
        try:
            if given.get("name") in networks.NOT_EVM:
                raise ValueError(f"{given['name']} is not an EVM chain; the node supports no other")
            network = networks.BY_NAME.get(given.get("name", "")) or networks.BY_ID.get(
                given.get("id", 0)
            )
        except TypeError:  # an unhashable name or id; the validation of the field reports it
            return given
        if network is None:
            if given.get("id") in networks.DEVELOPMENT_IDS:
                given.setdefault("confirmations", 0)
            return given
        if given.get("id", network.chain_id) != network.chain_id:
            raise ValueError(f"the chain {network.name} has the id {network.chain_id}")
        return {**network.defaults(), **given}
