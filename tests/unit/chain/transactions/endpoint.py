"""An endpoint of a chain that exists only in a test."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.request import unchanged
from fieldbrook.core.errors import ChainUnavailableError


class AnyEndpoint(abc.ABC):
    """The only endpoint of a chain. `answer` returns results in the form of the network."""

    async def call(
        self,
        method: str,
        params: list[Any],
        *,
        within_s: float | None = None,
        read: Callable[[Any], Any] = unchanged,
    ) -> Any:
        """Do the same as `ChainClient.call` with only one endpoint."""
        raw = await self.answer(method, params)
        try:
            return read(raw)
        except MalformedAnswerError as error:
            raise ChainUnavailableError(chain=1, reason=f"an endpoint answered: {error}") from None

    @abc.abstractmethod
    async def answer(self, method: str, params: list[Any]) -> Any:
        """Return the result of a request."""
