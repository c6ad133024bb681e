"""The registry as a service: calls of its commands, and their encoding between processes.

Commands are the methods of `RegistryWriter` that are marked with `@command`. Arguments and
results travel as msgpack. Both sides take their types from the signatures of these methods.
"""

from __future__ import annotations

import inspect
import typing
from functools import cache
from typing import Any, Protocol

import msgspec

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.registry.audit import AuditRow
from fieldbrook.storage.registry.commands.change import COMMANDS
from fieldbrook.storage.registry.reader import RegistryReader, RegistrySnapshot
from fieldbrook.storage.registry.writer import (
    Deployed,
    IssuedKey,
    Module,
    OperatorDraft,
    RegistryWriter,
)

__all__ = [
    "COMMANDS",
    "Deployed",
    "IssuedKey",
    "Module",
    "OperatorDraft",
    "RegistryClient",
    "RegistryReader",
    "RegistrySnapshot",
    "RegistryWriter",
    "decode_result",
    "encode_result",
    "execute",
]

AUDIT = "audit"

_encode = msgspec.msgpack.Encoder().encode


class RegistryClient(Protocol):
    """The connection of the management interface to the writer, in whichever process it runs."""

    async def call(self, op: str, **args: Any) -> Any:
        """Run one of `COMMANDS` and return its result after the commit is on disk.

        Raises:
            NodeError: the error of the command, or the writer cannot be reached.
        """


class _Signature(typing.NamedTuple):
    arguments: type[msgspec.Struct]
    result: msgspec.msgpack.Decoder[Any]


@cache
def _signature(op: str) -> _Signature:
    if op not in COMMANDS:
        raise StoreError(reason=f"the registry knows no command {op!r}")
    method = getattr(RegistryWriter, op)
    hints = typing.get_type_hints(method)
    fields: list[Any] = [
        (name, hints[name]) if p.default is p.empty else (name, hints[name], p.default)
        for name, p in inspect.signature(method).parameters.items()
        if name != "self"
    ]
    arguments = msgspec.defstruct(op, fields, kw_only=True, forbid_unknown_fields=True)
    return _Signature(arguments, msgspec.msgpack.Decoder(hints["return"]))


def execute(writer: RegistryWriter, op: str, args: dict[str, Any]) -> Any:
    """Run the command `op` with decoded, unchecked arguments.

    Every command also accepts the argument `audit`: a row of the audit log, which is written
    in the transaction of the change.

    Returns:
        A record, records, or a number, for `encode_result`.

    Raises:
        NodeError: the error of the command.
        StoreError: there is no such command, or its arguments have other names or types.
    """
    given = {name: value for name, value in args.items() if name != AUDIT}
    try:
        row = msgspec.convert(args.get(AUDIT), AuditRow | None)
        arguments = msgspec.convert(given, _signature(op).arguments)
    except msgspec.ValidationError as error:
        raise StoreError(reason=f"registry command {op}: {error}") from error
    with writer.audited(row):
        return getattr(writer, op)(**msgspec.structs.asdict(arguments))


def encode_result(result: Any) -> bytes:
    """Encode a result of `execute`."""
    return _encode(result)


def decode_result(op: str, data: bytes) -> Any:
    """Decode the result of the command `op` from the bytes of `encode_result`."""
    return _signature(op).result.decode(data)
