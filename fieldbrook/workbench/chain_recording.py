"""Queries real chains for answers that a simulated chain lacks, to be kept in its file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import hex_bytes, quantity
from fieldbrook.chain.rpc.client import ChainClient
from fieldbrook.chain.rpc.endpoint_url import public_part
from fieldbrook.chain.rpc.transport import TransportError, make_transport
from fieldbrook.chain.transactions.chain_state import RESULT_LIMIT_BYTES, reason_of
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.wasm.run import EffectRefusedError
from fieldbrook.workbench.chain_file import ChainSourceError

QUERY_LIMIT_S = 2.0
"""Time limit of a query: the same as a node's limit for a chain while a handler runs."""
_START_LIMIT_S = 10.0
_RESULT_LIMIT = 2 + 2 * RESULT_LIMIT_BYTES  # characters


class ChainRecorder:
    """Connections to one endpoint for each chain.

    They only query: no transaction is ever sent to a chain.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        """Connect.

        Raises:
            ChainSourceError: an endpoint does not report the id of its chain, or two endpoints
                belong to the same chain.
        """
        self._runner = asyncio.Runner()
        self._clients: dict[int, ChainClient] = {}
        try:
            for url in urls:
                chain_id = self._runner.run(_chain_id(url))
                if chain_id in self._clients:
                    raise ChainSourceError(
                        f"{public_part(url)}: chain {chain_id} has an endpoint already"
                    )
                self._clients[chain_id] = ChainClient(chain_id, [url], limit_s=QUERY_LIMIT_S)
        except BaseException:
            self.close()
            raise

    @property
    def chain_ids(self) -> list[int]:
        """The ids of the chains that have an endpoint."""
        return list(self._clients)

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            self._runner.run(client.close())
        self._runner.close()

    def query(
        self, chain_id: int, method: str, fields: dict[str, Any]
    ) -> tuple[str | None, str | None]:
        """Query a chain on its newest block.

        Returns:
            (result in hexadecimal digits, None), or (None, reason) when the chain refuses.

        Raises:
            EffectRefusedError: the chain has no endpoint or does not answer, or its answer is
                invalid or too large.
        """
        client = self._clients.get(chain_id)
        if client is None:
            raise EffectRefusedError(f"chain {chain_id} has no endpoint to record from")
        try:
            result = self._runner.run(client.call(method, [fields, "latest"]))
        except RpcError as error:
            return None, reason_of(error)
        except (ChainUnavailableError, TimeoutError) as error:
            raise EffectRefusedError(f"chain {chain_id}: {error}") from None
        invalid = EffectRefusedError(f"chain {chain_id} answered {str(result)[:80]!r}")
        if isinstance(result, str) and len(result) > _RESULT_LIMIT:
            raise invalid
        try:
            return hex_bytes(result), None
        except MalformedAnswerError:
            raise invalid from None


async def _chain_id(url: str) -> int:
    transport = make_transport(url)
    try:
        async with asyncio.timeout(_START_LIMIT_S):
            answer = await transport.request("eth_chainId", [])
        return quantity(answer["result"])
    except TimeoutError:
        raise ChainSourceError(
            f"{public_part(url)}: no answer within {_START_LIMIT_S:g} s"
        ) from None
    except TransportError as error:
        raise ChainSourceError(f"{public_part(url)}: {error}") from None
    except (KeyError, TypeError, MalformedAnswerError):
        raise ChainSourceError(
            f"{public_part(url)}: its answer to eth_chainId is not a chain id"
        ) from None
    finally:
        await transport.close()
