"""The report of an examination: a finding for each check, and settings for the endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fieldbrook.core.findings import Finding, State
from fieldbrook.core.networks import Network


@dataclass(slots=True)
class Report:
    """All findings about one endpoint.

    Attributes:
        endpoint: the public part of the endpoint's address.
        has_secrets: whether the address has further parts, which may be a key.
        chain_id: the chain id that the endpoint reports; None if it reports none.
        network: the known chain with this id, if any.
        findings: one for each check, in the order of the checks.
        websocket: the public part of the WebSocket's address; None if no subscription works.
        log_range: the most blocks of a log query; None if the endpoint needs no smaller limit
            than the node's default.
        block_ms: the time between two blocks; None if it is not known.
        final_behind: the distance from the newest block to the finalized one, in blocks; None if
            the endpoint reports no finalized block.
    """

    endpoint: str
    has_secrets: bool
    chain_id: int | None = None
    network: Network | None = None
    findings: list[Finding] = field(default_factory=list)
    websocket: str | None = None
    log_range: int | None = None
    block_ms: int | None = None
    final_behind: int | None = None

    def add(self, check: str, state: State, text: str, **facts: Any) -> None:
        """Add a finding."""
        self.findings.append(Finding(check, state, text, facts))

    @property
    def is_usable(self) -> bool:
        """Whether no check failed."""
        return all(finding.state != "failed" for finding in self.findings)

    def settings(self) -> dict[str, Any]:
        """Return the entry of the setting `chains` that fits the endpoint."""
        if self.network is not None:
            entry: dict[str, Any] = {"name": self.network.name}
        else:
            entry = {"id": self.chain_id, "name": f"chain-{self.chain_id}"}
        entry["endpoints"] = [self._address(self.endpoint)]
        if self.websocket is not None:
            entry["websocket"] = self._address(self.websocket)
        if self.network is None and self.block_ms is not None:
            entry["poll_ms"] = min(max(1_000, self.block_ms), 60_000)
        if self.log_range is not None:
            entry["log_range"] = self.log_range
        return entry

    def toml(self) -> str:
        """Return the entry as lines of a settings file."""
        lines = ["[[chains]]"]
        for key, value in self.settings().items():
            text = f'["{value[0]}"]' if isinstance(value, list) else _toml(value)
            lines.append(f"{key} = {text}")
        if self.final_behind:
            later = f"{self.final_behind:,} blocks later"
            lines.append(f'# block_tag = "finalized"  # reports a block when it is final, {later}')
        if self.has_secrets:
            lines.append("# ... stands for the rest of the address: it may be a key")
        return "\n".join(lines)

    def _address(self, public: str) -> str:
        return f"{public}/..." if self.has_secrets else public


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
