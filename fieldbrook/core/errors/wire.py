"""Errors as values between processes: the name of the class, and its details."""

from __future__ import annotations

# This import makes sure that every class is defined before the tree is read below.
from fieldbrook.core.errors.base import NodeError
from fieldbrook.core.errors.node import InternalError


def _tree(cls: type[NodeError]) -> list[type[NodeError]]:
    return [cls, *(sub for direct in cls.__subclasses__() for sub in _tree(direct))]


_BY_NAME: dict[str, type[NodeError]] = {cls.__name__: cls for cls in _tree(NodeError)}


def to_wire(error: NodeError) -> tuple[str, dict[str, str | int]]:
    """Convert an error to a value that msgpack can encode: the class's name and its details."""
    return type(error).__name__, error.details


def from_wire(name: str, details: dict[str, str | int]) -> NodeError:
    """Make the error that `to_wire` encoded; an unknown name becomes an `InternalError`."""
    cls = _BY_NAME.get(name)
    return InternalError() if cls is None else cls(**details)
