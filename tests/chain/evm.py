"""A real EVM chain in a process of its own, and what tests do with it."""

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
    """`abi` and `bytecode` of a contract."""
    return json.loads((_HERE / "contracts" / f"{name}.json").read_text())


def topic(signature: str) -> str:
    """The first topic of an event, e.g. of `Transfer(address,address,uint256)`."""
    return "0x" + keccak256(signature.encode()).hex()


def word(number: int) -> str:
    """A number as a topic."""
    return f"0x{number:064x}"


class RefusedError(Exception):
    """The chain's node answered with an error."""


def started(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """A process whose words nobody reads."""
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
        """The result of a call."""
        (result,) = self.batch([(method, *params)])
        return result

    def batch(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results of calls, each a method and its parameters, in one request."""
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
        """Send a transaction of the first account; its hash, once it is in a block."""
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
        """Empty blocks."""
        self.rpc(f"{self.own}_mine", hex(blocks))

    def fund(self, address: str, wei: int) -> None:
        """Have an account own so much."""
        self.rpc(f"{self.own}_setBalance", address, hex(wei))

    def reorganise(self, depth: int) -> None:
        """Put other blocks in the place of the last ones, without what was in them."""
        self._look_different()
        self.rpc("anvil_reorg", depth, [])
        self.rpc("anvil_dropAllTransactions")  # else those that vanished wait for the next block

    def kept(self, tx_hash: str) -> Any:
        """What `send_again` needs of a transaction, which may vanish."""
        return self.rpc("eth_getRawTransactionByHash", tx_hash)

    def send_again(self, kept: Any) -> None:
        """Send a transaction that has vanished: the same bytes, so it has the same hash."""
        self.rpc("eth_sendRawTransaction", kept)

    def _look_different(self) -> None:
        # Else empty blocks of the same second are the very same ones again.
        self.rpc(f"{self.own}_setCoinbase", "0x" + os.urandom(20).hex())

    @property
    def height(self) -> int:
        return int(self.rpc("eth_blockNumber"), 16)

    def logs(self, **query: Any) -> list[Any]:
        """The logs there are, from the first block on."""
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
        """The data of a call."""
        types = [entry["type"] for entry in self._functions[function]["inputs"]]
        selector = keccak256(f"{function}({','.join(types)})".encode())[:4]
        return "0x" + (selector + encode(types, arguments)).hex()

    def call(self, function: str, *arguments: Any, mined: bool = True) -> str:
        """Send a transaction that calls a function; its hash."""
        return self.evm.send(self.address, self.data(function, *arguments), mined=mined)
