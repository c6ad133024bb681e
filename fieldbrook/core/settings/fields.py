"""The fields of a struct: the values that each accepts, and the conversion to its type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect, structs

_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "off", "f", "false", "n", "no"})
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]++(?:_[0-9]++)*+(?:\.0++)?")


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a field of a struct.

    `kind` is its type without None, and `type` the whole annotation.
    """

    type: Any
    kind: inspect.Type
    is_optional: bool
    is_required: bool
    default: Any
    description: str

    @property
    def allowed(self) -> str:
        """A text with the accepted values, e.g. `must be true or false`; "" for any text or
        list."""
        match self.kind:
            case inspect.LiteralType():
                return f"must be one of {', '.join(_choices(self.type))}"
            case inspect.BoolType():
                return "must be true or false"
            case inspect.IntType(ge=least, le=most):
                return f"must be a whole number from {least} to {most}"
            case inspect.FloatType(ge=least, le=most):
                return f"must be a number from {least} to {most}"
            case inspect.StrType(min_length=int(least), max_length=int(most)):
                return f"must be a string of {least} to {most} characters"
            case inspect.VarTupleType(min_length=int(least), max_length=int(most)):
                return f"must be a list of {least} to {most} strings"
        return ""


@cache
def fields_of(struct: type[msgspec.Struct]) -> Mapping[str, Field]:
    """Return the fields of a struct by name, from its annotations."""
    return {info.name: _field(info) for info in structs.fields(struct)}


def _field(info: structs.FieldInfo) -> Field:
    kind = inspect.type_info(info.type)
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    notes = getattr(info.type, "__metadata__", ())
    return Field(
        type=info.type,
        kind=next(kind for kind in kinds if not isinstance(kind, inspect.NoneType)),
        is_optional=len(kinds) > 1,
        is_required=info.required,
        default=info.default,
        description=next((note for note in notes if isinstance(note, str)), ""),
    )


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the values of the `Literal` in an annotation, in their order; `inspect` would sort
    them."""
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return parts
    return next(filter(None, map(_choices, parts)), ())


def read_value(field: Field, value: Any) -> Any:
    """Convert a value of a source to the type of a field.

    Texts from flags and variables become numbers and booleans: ` 20_000 ` and `20000.0` are whole
    numbers, `Yes` and `on` are true. Likewise 1 becomes true, and 5.0 becomes 5, if the field
    requires it.

    Raises:
        ValueError: the field does not accept the value; the text has the accepted values.
    """
    try:
        return msgspec.convert(_typed(field.kind, value), field.type, dec_hook=_path)
    except ValueError:
        raise ValueError(field.allowed or "must be a string") from None


def _typed(kind: inspect.Type, value: Any) -> Any:
    """Convert a value of another type if possible; return any other value unchanged, so that
    `convert` refuses it."""
    match kind, value:
        case inspect.StrType(), str():
            value.encode()  # raises an error if a variable is not UTF-8
        case inspect.BoolType(), str():
            return value.lower() in _TRUE if value.lower() in _TRUE | _FALSE else value
        case inspect.BoolType(), int() | float() if value in (0, 1):
            return bool(value)
        case inspect.IntType(), str() if _WHOLE_NUMBER.fullmatch(value.strip()):
            return int(value.partition(".")[0])
        case inspect.IntType(), float() if value.is_integer():
            return int(value)
        case inspect.FloatType(), str() if value.strip().isascii():
            return float(value)
    return value


def _path(_type: type, value: Any) -> Path:
    if not isinstance(value, str | Path) or value == "":
        raise ValueError
    return Path(value)
