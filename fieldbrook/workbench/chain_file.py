"""File format of simulated chains: their answers to applets that run without a node.

The file is JSON: `{"chains": [CHAIN, ...], "default_chain": ID}`, where `default_chain` is
optional. In a chain every field except `id` is optional:

    {"id": 4690, "name": "iotex-testnet",
     "operators": {"default": "0x..."},
     "balances": {"0x...": "1000000000000000000"},
     "calls": [{"to": "0x...", "data": "0x...", "result": "0x..."}],
     "transactions": [{"to": "0x...", "value": "0", "data": "0x...", "hash": "0x..."}]}

`docs/how-to/applets.md` describes the format for authors of applets; `simulated_chain` uses it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.bounded_json import from_json
from fieldbrook.core.networks import BY_ID
from fieldbrook.security.operator_keys import eip55
from fieldbrook.system.regular_file import read_regular_file
from fieldbrook.workbench.files import Json

FILE_LIMIT_BYTES = 64 << 20
_HEX_DIGITS = set("0123456789abcdefABCDEF")
_HASH = re.compile(r"0x[0-9a-fA-F]{64}\Z", re.ASCII)


class ChainSourceError(Exception):
    """A chain file or an endpoint of a chain is invalid; the text has the place and the reason."""


class Call(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A contract's answer to a call.

    Without `data` the entry answers every call of the contract. Several entries for the same call
    are used in order, and the last one is repeated.
    """

    to: str
    data: str | None = None
    result: str | None = None
    error: str | None = None


class Sent(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A transaction that the chain accepts once, or always refuses if the entry has an `error`.

    An entry without `value`, `data` or `operator` matches any. A missing `hash`, `transaction`
    or `receipt` is generated.
    """

    to: str
    value: str | None = None
    data: str | None = None
    operator: str | None = None
    hash: str | None = None
    transaction: Json | UnsetType | None = UNSET
    receipt: Json | UnsetType | None = UNSET
    error: str | None = None


class Chain(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One chain.

    Without `transactions` every transaction is accepted. Without `balances` every operator has
    enough funds. Without `operators`, every name is valid for an operator.
    """

    id: int
    name: str = ""
    operators: dict[str, str] | None = None
    balances: dict[str, str] | None = None
    calls: list[Call] = []
    transactions: list[Sent] | None = None


class ChainFile(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """All chains of a workbench.

    `default_chain` is the id of the chain for calls that name none, like a node's setting.
    """

    chains: list[Chain]
    default_chain: int | None = None


def read_chains(path: Path) -> ChainFile:
    """Read the chains of a file.

    Raises:
        ChainSourceError: the file is not JSON or invalid; the text names the place.
        OSError: the file cannot be read or is too large, see `read_regular_file`.
    """
    content = read_regular_file(path, FILE_LIMIT_BYTES)
    try:
        file = msgspec.convert(from_json(content), ChainFile)
        _check(file)
    except (ValueError, RecursionError) as error:
        raise ChainSourceError(f"{path}: {error}") from None
    return file


def write_chains(path: Path, file: ChainFile) -> None:
    """Write chains to a file."""
    path.write_text(json.dumps(msgspec.to_builtins(file), ensure_ascii=False, indent=2) + "\n")


def add_chains(file: ChainFile, chain_ids: Sequence[int]) -> None:
    """Add a chain without any answers for each id that the file does not have yet."""
    known = {chain.id for chain in file.chains}
    for chain_id in chain_ids:
        if chain_id not in known:
            network = BY_ID.get(chain_id)
            file.chains.append(Chain(chain_id, network.name if network is not None else ""))


def _check(file: ChainFile) -> None:
    """Normalise the addresses, hexadecimal data and amounts of a file.

    Raises:
        ValueError: a value is invalid, or an entry contradicts itself; the text names the place.
    """
    known: set[int] = set()
    for at, chain in enumerate(file.chains):
        place = f"$.chains[{at}]"
        if not 0 < chain.id < 1 << 63 or chain.id in known:
            raise ValueError(f"the id must be a number of its own above 0 - at `{place}.id`")
        known.add(chain.id)
        _check_accounts(chain, place)
        for n, call in enumerate(chain.calls):
            _check_call(call, f"{place}.calls[{n}]")
        for n, sent in enumerate(chain.transactions or ()):
            _check_sent(sent, f"{place}.transactions[{n}]")
    if file.default_chain is not None and file.default_chain not in known:
        raise ValueError(f"there is no chain {file.default_chain} - at `$.default_chain`")


def _check_accounts(chain: Chain, place: str) -> None:
    if chain.operators is not None:
        chain.operators = {
            name: _address(address, f"{place}.operators.{name}")
            for name, address in chain.operators.items()
        }
    if chain.balances is not None:
        chain.balances = {
            _address(address, f"{place}.balances"): _wei(wei, f"{place}.balances.{address}")
            for address, wei in chain.balances.items()
        }


def _check_call(call: Call, place: str) -> None:
    call.to = _address(call.to, f"{place}.to")
    call.data = _hex(call.data, f"{place}.data")
    call.result = _hex(call.result, f"{place}.result")
    if (call.result is None) == (call.error is None):
        raise ValueError(f"it needs either result or error - at `{place}`")


def _check_sent(sent: Sent, place: str) -> None:
    sent.to = _address(sent.to, f"{place}.to")
    sent.data = _hex(sent.data, f"{place}.data")
    if sent.value is not None:
        sent.value = _wei(sent.value, f"{place}.value")
    if sent.hash is not None and not _HASH.match(sent.hash):
        raise ValueError(f"{sent.hash[:80]!r} is not 0x and 64 digits - at `{place}.hash`")


def _address(text: str, place: str) -> str:
    digits = text.removeprefix("0x")
    if len(digits) != 40 or not _is_hex(digits):
        raise ValueError(f"{text[:80]!r} is not 0x and 40 digits - at `{place}`")
    return eip55(bytes.fromhex(digits))


def _hex(text: str | None, place: str) -> str | None:
    if text is None:
        return None
    digits = text.removeprefix("0x")
    if len(digits) % 2 or not _is_hex(digits):
        raise ValueError(f"{text[:80]!r} is not hexadecimal - at `{place}`")
    return f"0x{digits.lower()}"


def _is_hex(digits: str) -> bool:
    return not set(digits) - _HEX_DIGITS


def _wei(text: str, place: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= 78):
        raise ValueError(f"{text[:80]!r} is not a decimal number - at `{place}`")
    return str(int(text))
