"""Verifies signatures of contract wallets by asking the wallet's contract on the chain.

Source: EIP-1271.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from fieldbrook.actors.project.chains import CALL
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.chain_client import call_chain

ContractSignatureCheck = Callable[[int, str, bytes, bytes], Awaitable[bool]]
"""Verifies a contract wallet's signature.

Called with the chain id, the wallet's address (0x…), the digest and the signature. Returns
whether the wallet accepts the signature; False for every chain except the one whose contracts may
sign in.

Raises:
    UnavailableError: the chain is unavailable.
"""

# The selector of isValidSignature(bytes32,bytes), which is also the answer of a contract.
_MAGIC = bytes.fromhex("1626ba7e")


class ContractWallets:
    """Asks the process of one chain whether a contract wallet accepts a signature.

    Only one chain is used, because an account is identified only by its address, and on another
    chain the same address may be the contract of another owner.

    Args:
        run_dir: the folder of the sockets.
        chain: the chain of the contracts; with None, no contract wallet can sign in.
    """

    def __init__(self, run_dir: Path, chain: Chain | None) -> None:
        self._run_dir = run_dir
        self._chain = chain

    async def __call__(self, chain_id: int, address: str, digest: bytes, signature: bytes) -> bool:
        """See `ContractSignatureCheck`."""
        if self._chain is None or chain_id != self._chain.id:
            return False
        call = {"to": address, "data": "0x" + encode_question(digest, signature).hex()}
        try:
            result = await call_chain(self._run_dir, chain_id, {CALL: json.dumps(call).encode()})
        except TransactionRefusedError:  # the call reverted
            return False
        return bool(result == _MAGIC + bytes(28))


async def no_contract(_chain_id: int, _address: str, _digest: bytes, _signature: bytes) -> bool:
    """A `ContractSignatureCheck` that accepts no signature."""
    return False


def encode_question(digest: bytes, signature: bytes) -> bytes:
    """Encode the call `isValidSignature(digest, signature)` by the contract ABI."""
    padded = signature + bytes(-len(signature) % 32)
    return _MAGIC + digest + (64).to_bytes(32) + len(signature).to_bytes(32) + padded
