"""Errors in the answers of a chain's endpoints.

If no endpoint answers at all, the code raises `ChainUnavailableError` instead.
"""

from __future__ import annotations

from typing import Any

from fieldbrook.core.errors import ChainUnavailableError


class ChainError(Exception):
    """Base class."""


class MalformedAnswerError(ChainError):
    """An endpoint's answer has the wrong form or contradicts other answers."""


class IncompleteAnswerError(MalformedAnswerError):
    """An endpoint's answer lacks data that must exist, perhaps because the endpoint lags."""


class RpcError(ChainError):
    """An endpoint understood a request and answered it with an error, e.g. a call that reverts.

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
"""All errors that a request to a chain can raise."""
