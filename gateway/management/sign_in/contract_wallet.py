"""Signatures of wallets that are contracts: the chain is asked whether one is good.

Source: EIP-1271.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from fieldbrook.actors.project.chains import CALL
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.chain_client import ask_chain

IsGood = Callable[[int, str, bytes, bytes], Awaitable[bool]]
"""Whether on a chain (its id) the wallet at an address (0x…) takes a signature (second) as
its own of a digest (first); False for any chain but the one whose contracts may sign in.

Raises:
    UnavailableError: the chain cannot be asked.
"""

_MAGIC = bytes.fromhex("1626ba7e")  # isValidSignature(bytes32,bytes), which also answers it


class ContractWallets:
    """Asks the process of one chain. On another chain the same address may be somebody
    else's contract, and an account is known by its address alone.

    Args:
        run_dir: the folder of the sockets.
        chain: the one to ask; None: no contract signs in.
    """

    def __init__(self, run_dir: Path, chain: Chain | None) -> None:
        self._run_dir = run_dir
        self._chain = chain

    async def __call__(self, chain_id: int, address: str, digest: bytes, signature: bytes) -> bool:
        """See `IsGood`."""
        if self._chain is None or chain_id != self._chain.id:
            return False
        call = {"to": address, "data": "0x" + encode_question(digest, signature).hex()}
        try:
            result = await ask_chain(self._run_dir, chain_id, {CALL: json.dumps(call).encode()})
        except TransactionRefusedError:  # it reverts
            return False
        return bool(result == _MAGIC + bytes(28))


async def no_contract(_chain_id: int, _address: str, _digest: bytes, _signature: bytes) -> bool:
    """An `IsGood` for a node whose settings name no chain."""
    return False


def encode_question(digest: bytes, signature: bytes) -> bytes:
    """The call `isValidSignature(digest, signature)` in the contract ABI's encoding."""
    padded = signature + bytes(-len(signature) % 32)
    return _MAGIC + digest + (64).to_bytes(32) + len(signature).to_bytes(32) + padded
