"""Decodes a log's arguments by the ABI of its event, with web3.

The result is JSON. Integers become decimal strings, because they have up to 256 bits. Addresses
and bytes become lower-case hexadecimal, tuples become objects with the names of their members, and
arrays stay arrays. An indexed argument of a dynamic, array or tuple type becomes its hash, because
the log contains only the hash.

The import of web3 takes half a second and 40 MB. Therefore only a process that decodes logs
imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fieldbrook.chain.blocks.abi_size import Parameter, is_safe_to_decode, shapes
from fieldbrook.chain.blocks.logs import Log
from fieldbrook.chain.libraries import preserve_recursion_limit

with preserve_recursion_limit():
    from eth_abi.exceptions import DecodingError
    from web3 import Web3
    from web3.exceptions import Web3Exception

DOES_NOT_FIT = "the log does not fit the declaration of its event"
# The name of every event in web3, which fails if an event is named like an attribute of web3, such
# as `abi`.
_NAME = "Event"


def make_decoder(declaration: str) -> Callable[[Log], dict[str, Any]]:
    """Make the decoder for the logs of an event.

    Args:
        declaration: the event's ABI as JSON, as `EventAbi` of management writes it.

    Returns:
        A function from a log to `{"event": signature, "args": {name: value}}`. If the log does
        not fit the declaration, `args` is null and `argsError` gives the reason.

    Raises:
        ValueError: the types nest more arrays than monitors allow.
    """
    given = msgspec.json.decode(declaration)
    parts = msgspec.convert(given["inputs"], list[Parameter])
    plain = shapes([part for part in parts if not part.indexed])
    inputs = _completed(given["inputs"])
    signature = given["name"] + _event(inputs).signature.removeprefix(_NAME)
    event = _event([_as_logged(part) for part in inputs])
    topic, own_topic = Web3.keccak(text=signature), Web3.keccak(text=event.signature)

    def read(log: Log) -> dict[str, Any]:
        unread = {"event": signature, "args": None, "argsError": DOES_NOT_FIT}
        given_log = _as_web3(log)
        if given_log["topics"][:1] != [topic] or not is_safe_to_decode(plain, given_log["data"]):
            return unread
        given_log["topics"][0] = own_topic
        try:
            found = event.process_log(given_log)
        except (DecodingError, Web3Exception, ValueError, OverflowError, RecursionError):
            return unread
        return {"event": signature, "args": _members(inputs, found["args"])}

    return read


def _event(inputs: list[dict[str, Any]]) -> Any:
    abi = {"type": "event", "anonymous": False, "name": _NAME, "inputs": inputs}
    return Web3().eth.contract(abi=[abi]).events[_NAME]()


def _as_logged(part: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter as the log encodes it: indexed arrays, tuples and bytes are hashes.

    web3 would read an indexed array or tuple of fixed length as the values themselves.
    """
    if part["indexed"] and part["type"].startswith(("tuple", "string")):
        return {**part, "type": "bytes32", "components": []}
    if part["indexed"] and (part["type"] == "bytes" or part["type"].endswith("]")):
        return {**part, "type": "bytes32", "components": []}
    return part


def _completed(parameters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complete parameters, and members of tuples, with all keys that web3 requires."""
    return [
        {
            **part,
            "name": part.get("name") or f"arg{number}",
            "indexed": bool(part.get("indexed")),
            "components": _completed(part.get("components", [])),
        }
        for number, part in enumerate(parameters)
    ]


def _as_web3(log: Log) -> Any:
    """Convert a log to web3's form; fields that web3 only passes through get placeholders."""
    return {
        "address": log.address,
        "topics": [bytes.fromhex(topic[2:]) for topic in log.topics],
        "data": bytes.fromhex(log.data[2:]),
        **dict.fromkeys(("blockNumber", "logIndex", "transactionIndex"), 0),
        **dict.fromkeys(("blockHash", "transactionHash"), b""),
    }


def _members(parts: list[dict[str, Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    return {part["name"]: _json(part, values[part["name"]]) for part in parts}


def _json(part: dict[str, Any], value: Any) -> Any:
    if part["indexed"] and isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Mapping):
        return _members(part["components"], value)
    if isinstance(value, list | tuple):
        return [_json(part, item) for item in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if part["type"].startswith("address"):  # web3 returns EIP-55 capitals
        return value.lower()
    return value if isinstance(value, bool) else str(value)
