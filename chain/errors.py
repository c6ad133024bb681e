"""What can go wrong between the node and a chain's endpoints, beside that none answers."""

from __future__ import annotations

from typing import Any


class ChainError(Exception):
    """Base class."""


class MalformedAnswerError(ChainError):
    """An endpoint's answer that is not of the form it must have, or does not fit others."""


class IncompleteAnswerError(MalformedAnswerError):
    """An answer that lacks what there must be. Its endpoint may only be a little behind."""


class RpcError(ChainError):
    """An endpoint understood a request and refused it, e.g. a call that reverts.

    Args:
        code: the number of JSON-RPC or of the node (3 for a revert with a reason).
        text: its words, without the endpoint's address.
        data: what came with it, e.g. the ABI-encoded reason of a revert.
    """

    def __init__(self, code: int, text: str, data: Any = None) -> None:
        super().__init__(text)
        self.code, self.text, self.data = code, text, data


class TooManyResultsError(RpcError):
    """A query for logs that must be split into smaller ones."""
