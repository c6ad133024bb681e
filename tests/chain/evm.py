"""A real EVM chain in a process of its own, and operations of tests on it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import urllib.request
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from eth_abi.abi import encode

from fieldbrook.security.keccak import keccak256
from tests.support.nodes import until
from tests.support.tools import LIMIT_S, free_port, npm_installed

CHAIN_ID = 31337
_HERE = Path(__file__).parent
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@cache
def contract(name: str) -> Any:
    """Return `abi` and `bytecode` of a contract."""
    return json.loads((_HERE / "contracts" / f"{name}.json").read_text())


def topic(signature: str) -> str:
    """Return the first topic of an event, e.g. of `Transfer(address,address,uint256)`."""
    return "0x" + keccak256(signature.encode()).hex()


def word(number: int) -> str:
    """Return a number as a topic."""
    return f"0x{number:064x}"


class RefusedError(Exception):
    """The chain's node answered with an error."""


def started(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """Start a process whose output is discarded."""
    none = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=none, stdout=none, stderr=none, **more)


class Evm:
    """Anvil on a port of its own: a block per transaction, unlocked accounts."""

    own = "anvil"
    """How the names of its own methods begin."""

    def __init__(self, *flags: str, chain_id: int = CHAIN_ID, port: int = 0) -> None:
        self.port = port or free_port()
        self.chain_id = chain_id
        self.process = self._begin(flags)
        until(self._answers, "the chain answers")
        self.accounts: list[str] = self.rpc("eth_accounts")
        self.account = self.accounts[0]

    def _begin(self, flags: Sequence[str]) -> subprocess.Popen[bytes]:
        system, machine = platform.system().lower(), platform.machine()
        package = f"anvil-{system}-{_MACHINES.get(machine, machine)}"
        anvil = npm_installed(_HERE / "js") / "@foundry-rs" / package / "bin" / "anvil"
        chain_id = str(self.chain_id)
        return started(
            [str(anvil), "--port", str(self.port), "--chain-id", chain_id, "--silent", *flags]
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rpc(self, method: str, *params: Any) -> Any:
        """Return the result of a JSON-RPC call."""
        (result,) = self.batch([(method, *params)])
        return result

    def batch(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send several calls in one request, each a method and its parameters; return the
        results."""
        body = [
            {"jsonrpc": "2.0", "id": n, "method": method, "params": params}
            for n, (method, *params) in enumerate(calls)
        ]
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), kind)  # noqa: S310
        with _OPENER.open(request, timeout=LIMIT_S) as reply:
            answers = json.load(reply)
        for answer in answers:
            if "error" in answer:
                raise RefusedError(answer["error"])
        return [answer["result"] for answer in answers]

    def send(self, to: str | None, data: str, *, mined: bool = True, **more: Any) -> str:
        """Send a transaction of the first account; return its hash when it is in a block."""
        made = {"from": self.account, "data": data, "gas": hex(25_000_000), **more}
        if to is not None:
            made["to"] = to
        tx_hash: str = self.rpc("eth_sendTransaction", made)
        if mined:
            until(lambda: self.rpc("eth_getTransactionReceipt", tx_hash), "it is in a block")
        return tx_hash

    def deploy(self, name: str = "Beacon") -> Contract:
        """Put a contract on the chain."""
        receipt = self.rpc("eth_getTransactionReceipt", self.send(None, contract(name)["bytecode"]))
        return Contract(self, receipt["contractAddress"], contract(name)["abi"])

    def mine(self, blocks: int = 1) -> None:
        """Mine empty blocks."""
        self.rpc(f"{self.own}_mine", hex(blocks))

    def fund(self, address: str, wei: int) -> None:
        """Set the balance of an account."""
        self.rpc(f"{self.own}_setBalance", address, hex(wei))

    def reorganise(self, depth: int) -> None:
        """Replace the last blocks by others, without the transactions of the old ones."""
        self._look_different()
        self.rpc("anvil_reorg", depth, [])
        self.rpc("anvil_dropAllTransactions")  # or the next block would have them

    def kept(self, tx_hash: str) -> Any:
        """Return what `send_again` needs of a transaction that may be removed later."""
        return self.rpc("eth_getRawTransactionByHash", tx_hash)

    def send_again(self, kept: Any) -> None:
        """Send a removed transaction again: the same bytes, so it has the same hash."""
        self.rpc("eth_sendRawTransaction", kept)

    def _look_different(self) -> None:
        # Else empty blocks of the same second are the very same ones again.
        self.rpc(f"{self.own}_setCoinbase", "0x" + os.urandom(20).hex())

    @property
    def height(self) -> int:
        return int(self.rpc("eth_blockNumber"), 16)

    def logs(self, **query: Any) -> list[Any]:
        """Return all logs of the chain, from the first block on."""
        found: list[Any] = self.rpc("eth_getLogs", {"fromBlock": "0x0", **query})
        return found

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the chain ended"
        try:
            return int(self.rpc("eth_chainId"), 16) == self.chain_id
        except OSError:
            return False


class Contract:
    """A contract on a chain."""

    def __init__(self, evm: Evm, address: str, abi: list[Any]) -> None:
        self.evm, self.address = evm, address
        self._functions = {entry["name"]: entry for entry in abi if entry["type"] == "function"}

    def data(self, function: str, *arguments: Any) -> str:
        """Return the data of a call."""
        types = [entry["type"] for entry in self._functions[function]["inputs"]]
        selector = keccak256(f"{function}({','.join(types)})".encode())[:4]
        return "0x" + (selector + encode(types, arguments)).hex()

    def call(self, function: str, *arguments: Any, mined: bool = True) -> str:
        """Send a transaction that calls a function; return its hash."""
        return self.evm.send(self.address, self.data(function, *arguments), mined=mined)
