"""Findings of an examination: the state and the text of each check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `text` is for users, `facts` are for programs."""

    check: str
    state: State
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
