"""Reading a log by the declaration of its event, with web3.

What comes out is JSON: whole numbers as decimal strings (they have up to 256 bits), addresses
and bytes in hexadecimal and lower case, tuples as objects by the names of their members, arrays
as arrays. An indexed argument that is longer than a topic is its hash, which is all that the
log has.

web3 takes half a second and 40 MB: only a process that reads logs so imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fieldbrook.chain.blocks.abi_walk import Parameter, is_plain, shapes
from fieldbrook.chain.blocks.logs import Log
from fieldbrook.chain.rpc.libraries import recursion_kept

with recursion_kept():
    from eth_abi.exceptions import DecodingError
    from web3 import Web3
    from web3.exceptions import Web3Exception

DOES_NOT_FIT = "the log does not fit the declaration of its event"


def make_decoder(declaration: str) -> Callable[[Log], dict[str, Any]]:
    """What reads the logs of an event.

    Args:
        declaration: JSON, as `EventAbi` of management writes it.

    Returns:
        A function from a log to `{"event": signature, "args": {name: value}}`; `args` is null
        and `argsError` says why for a log that only begins like one of this event.

    Raises:
        ValueError: its types are nested more deeply than a monitor's may be.
    """
    given = msgspec.json.decode(declaration)
    parts = msgspec.convert(given["inputs"], list[Parameter])
    plain = shapes([part for part in parts if not part.indexed])
    inputs = _whole(given["inputs"])
    signature = _event(given["name"], inputs).signature
    event = _event(given["name"], [_as_in_topic(part) for part in inputs])
    topic, own_topic = Web3.keccak(text=signature), Web3.keccak(text=event.signature)

    def read(log: Log) -> dict[str, Any]:
        unread = {"event": signature, "args": None, "argsError": DOES_NOT_FIT}
        given_log = _as_web3(log)
        if given_log["topics"][:1] != [topic] or not is_plain(plain, given_log["data"]):
            return unread
        given_log["topics"][0] = own_topic
        try:
            found = event.process_log(given_log)
        except (DecodingError, Web3Exception, ValueError, OverflowError, RecursionError):
            return unread
        return {"event": signature, "args": _members(inputs, found["args"])}

    return read


def _event(name: str, inputs: list[dict[str, Any]]) -> Any:
    abi = {"type": "event", "anonymous": False, "name": name, "inputs": inputs}
    return Web3().eth.contract(abi=[abi]).events[name]()


def _as_in_topic(part: dict[str, Any]) -> dict[str, Any]:
    """A parameter as it stands in a log: an indexed array or tuple is a hash, whatever its
    length. web3 takes one of a fixed length for the values themselves."""
    if part["indexed"] and part["type"].startswith(("tuple", "string")):
        return {**part, "type": "bytes32", "components": []}
    if part["indexed"] and (part["type"] == "bytes" or part["type"].endswith("]")):
        return {**part, "type": "bytes32", "components": []}
    return part


def _whole(parameters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parameters of which each has all that web3 looks for, members of tuples too."""
    return [
        {
            **part,
            "name": part.get("name") or f"arg{number}",
            "indexed": bool(part.get("indexed")),
            "components": _whole(part.get("components", [])),
        }
        for number, part in enumerate(parameters)
    ]


def _as_web3(log: Log) -> Any:
    """What web3 wants to see of a log; of what it only hands through, anything."""
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
    if part["type"].startswith("address"):  # web3 gives it the capitals of EIP-55
        return value.lower()
    return value if isinstance(value, bool) else str(value)
