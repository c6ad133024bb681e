"""Errors of a chain's endpoints. If no endpoint answers, see `ChainUnavailableError` instead."""

from __future__ import annotations

from typing import Any

from fieldbrook.core.errors import ChainUnavailableError


class ChainError(Exception):
    """Base class."""


class MalformedAnswerError(ChainError):
    """An endpoint's answer has the wrong form or contradicts other answers."""


class IncompleteAnswerError(MalformedAnswerError):
    """An endpoint's answer lacks data that must exist. The endpoint may only lag a little."""


class RpcError(ChainError):
    """An endpoint understood a request and refused it, e.g. a call that reverts.

    Args:
        code: the error code of JSON-RPC or of the node (3 for a revert with a reason).
        text: the error message, without the endpoint's address.
        data: the error's data, e.g. the ABI-encoded reason of a revert.
    """

    def __init__(self, code: int, text: str, data: Any = None) -> None:
        super().__init__(text)
        self.code, self.text, self.data = code, text, data


class UnknownBlockError(RpcError):
    """An endpoint refused a request about a block that it does not know."""


CHAIN_FAILURES = (ChainError, ChainUnavailableError)
