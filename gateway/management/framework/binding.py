"""Bind request data to typed values: bodies, queries and ids in paths.

A body is bound to a msgspec struct. Keys are case-insensitive and unknown keys are ignored. A
field without a default is required, and its value must not be zero or empty. One answer reports
all wrong fields.

Source: interface document, 1.3 and 1.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from fieldbrook.core.bounded_json import TooDeepError, from_json
from fieldbrook.core.errors import BadRequestError, FieldError

MISSING = "missing required field"

JSON_LIMIT_BYTES = 1 << 20
"""The longest body of a request without a file, in bytes."""
_ID_LIMIT = 1 << 63
# Binding runs on the event loop: more items would delay all other requests.
_ITEMS_LIMIT = 10_000  # in one array
_ALL_ITEMS_LIMIT = 20_000  # in all arrays of a body, which may be nested
_T = TypeVar("_T", bound=msgspec.Struct)


class Sfid(int):
    """An identifier: a string of decimal digits in JSON, never a number. It is bound to an int."""


def json_key(name: str) -> str:
    """Return the JSON key of a struct's field: `account_id` is `accountID`, `from_` is `from`."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join("ID" if part == "id" else part.capitalize() for part in rest)


Text = Annotated[str, msgspec.Meta(max_length=256)]
Timestamp = Annotated[datetime, msgspec.Meta(tz=True)]
RowLimit = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list: `size` rows (-1 = all, 0 = the default) from `offset` on."""

    size: Annotated[int, msgspec.Meta(ge=-1)] = 10
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        """Replace a size of 0 by the default: clients send 0 when they have no size."""
        if self.size == 0:
            (default,) = (f.default for f in msgspec.structs.fields(type(self)) if f.name == "size")
            msgspec.structs.force_setattr(self, "size", default)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct; cached, because looking them up takes longer than binding
    them."""
    return msgspec.structs.fields(kind)


class _Errors(list[FieldError]):
    """The errors of a request, and the total number of array items so far."""

    items = 0


class _InvalidError(Exception):
    """A value does not have the declared type; the message is sent to the client."""


def bind_body(body: bytes, kind: type[_T], at: str = "") -> _T:
    """Bind a JSON body to a struct; an empty body counts as an empty object.

    Args:
        at: the name of the part that holds the JSON, if it is not the whole body. It becomes the
            prefix of field names in errors, such as `info.appletName`.

    Raises:
        BadRequestError: the body is not JSON or not an object, or fields are missing or wrong.
    """
    try:
        value = from_json(body, msgspec.json.decode) if body.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(FieldError(at or "body", f"not JSON: {error}", "body")) from None
    except TooDeepError as error:
        raise BadRequestError(FieldError(at or "body", str(error), "body")) from None
    errors = _Errors()
    bound = _bind_struct(value, kind, at, errors)
    if bound is None:
        raise BadRequestError(*errors)
    return bound


def bind_query(arguments: Mapping[str, Sequence[str]], kind: type[_T]) -> _T:
    """Bind a query string to a struct; a list repeats its key.

    An empty value counts as absent, except for fields of type `str | None`, which distinguish the
    two.

    Raises:
        BadRequestError: parameters are missing or wrong.
    """
    errors: list[FieldError] = []
    values: dict[str, Any] = {}
    for field in _fields(kind):
        name = field.encode_name
        blank = field.type == (str | None)
        given = [text for text in arguments.get(name, ()) if text or blank]
        if not given:
            if field.required:
                errors.append(FieldError(name, MISSING, "query"))
        elif _is_list(field.type):
            (item,) = get_args(field.type)
            named = [(f"{name}[{n}]", text) for n, text in enumerate(given)]
            values[field.name] = [_bind_text(text, item, at, errors) for at, text in named]
        else:
            values[field.name] = _bind_text(given[0], field.type, name, errors)
    if errors:
        raise BadRequestError(*errors)
    return kind(**values)


def _bind_text(text: str, kind: Any, at: str, errors: list[FieldError]) -> Any:
    """Return the value of a query parameter; None after an error was added to `errors`."""
    try:
        return _from_text(text, kind)
    except _InvalidError as error:
        errors.append(FieldError(at, str(error), "query"))
        return None


def path_id(name: str, text: str) -> int:
    """Parse the id in a path.

    Raises:
        BadRequestError: the text is not decimal digits, or does not fit into 63 bits.
    """
    try:
        return _sfid(text)
    except _InvalidError as error:
        raise BadRequestError(FieldError(name, str(error), "path")) from None


def _bind_struct(value: object, kind: type[_T], at: str, errors: _Errors) -> _T | None:
    if not isinstance(value, dict):
        errors.append(FieldError(at or "body", f"expected an object, got {_kind(value)}", "body"))
        return None
    given = {key.casefold(): item for key, item in value.items()}
    before = len(errors)
    values: dict[str, Any] = {}
    for field in _fields(kind):
        name = f"{at}.{field.encode_name}" if at else field.encode_name
        item = given.get(field.encode_name.casefold())
        if item is not None:
            item = _bind_value(item, field.type, name, errors)
            if item is None:
                continue
        if not item and field.required:
            errors.append(FieldError(name, MISSING, "body"))
        elif item is not None:
            values[field.name] = item
    return kind(**values) if len(errors) == before else None


def _bind_value(value: object, kind: Any, name: str, errors: _Errors) -> Any:
    """Return the value as `kind`; None after an error was added to `errors`."""
    kind = _member(_without_none(kind), value)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _bind_struct(value, kind, name, errors)
    if get_origin(kind) is tuple:
        return _bind_tuple(value, get_args(kind), name, errors)
    if _is_list(kind):
        if not isinstance(value, list):
            errors.append(FieldError(name, f"expected an array, got {_kind(value)}", "body"))
            return None
        if len(value) > _ITEMS_LIMIT:
            errors.append(FieldError(name, f"more than {_ITEMS_LIMIT} items", "body"))
            return None
        errors.items += len(value)
        if errors.items > _ALL_ITEMS_LIMIT:
            reason = f"all arrays together have more than {_ALL_ITEMS_LIMIT} items"
            errors.append(FieldError(name, reason, "body"))
            return None
        (item_kind,) = get_args(kind)
        before = len(errors)
        items = []
        for n, item in enumerate(value):
            items.append(_bind_value(item, item_kind, f"{name}[{n}]", errors))
            if len(errors) - before >= BadRequestError.fields_limit:
                break  # further errors are not reported, and each needs more memory than its item
        return items if len(errors) == before else None
    try:
        return _leaf(value, kind)
    except _InvalidError as error:
        errors.append(FieldError(name, str(error), "body"))
        return None


def _bind_tuple(
    value: object, kinds: tuple[Any, ...], name: str, errors: _Errors
) -> tuple[Any, ...] | None:
    if not isinstance(value, list) or len(value) != len(kinds):
        given = f"one of {len(value)}" if isinstance(value, list) else _kind(value)
        reason = f"expected an array of {len(kinds)}, got {given}"
        errors.append(FieldError(name, reason, "body"))
        return None
    before = len(errors)
    items = [
        _bind_value(item, kind, f"{name}[{n}]", errors)
        for n, (item, kind) in enumerate(zip(value, kinds, strict=True))
    ]
    return tuple(items) if len(errors) == before else None


def _leaf(value: object, kind: Any) -> Any:
    if kind is Sfid:
        if not isinstance(value, str):
            raise _InvalidError(f"expected an id as a string, got {_kind(value)}")
        return _sfid(value)
    if get_origin(kind) is Literal and isinstance(value, str):
        return _choice(value, get_args(kind))
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _InvalidError(str(error)) from None


def _from_text(text: str, kind: Any) -> Any:
    kind = _without_none(kind)
    if kind is Sfid:
        return _sfid(text)
    if get_origin(kind) is Literal:
        return _choice(text, get_args(kind))
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _InvalidError(str(error)) from None


def _sfid(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise _InvalidError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if len(text) > 20 or int(text) >= _ID_LIMIT:
        raise _InvalidError(f'strconv.ParseUint: parsing "{text[:40]}": value out of range')
    return int(text)


def _choice(text: str, choices: tuple[str, ...]) -> str:
    """Match the input without regard to case; return the choice as it is declared."""
    for choice in choices:
        if text.upper() == choice.upper():
            return choice
    raise _InvalidError(f"expected one of {', '.join(choices)}, got {text[:40]!r}")


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    others = [member for member in get_args(kind) if member is not type(None)]
    return others[0] if len(others) == 1 else kind


def _member(kind: Any, value: object) -> Any:
    """Return the member of a union of a list and a struct that matches the value."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    lists = [member for member in get_args(kind) if _is_list(member)]
    structs = [
        member
        for member in get_args(kind)
        if isinstance(member, type) and issubclass(member, msgspec.Struct)
    ]
    if not lists or not structs:
        return kind
    return structs[0] if isinstance(value, dict) else lists[0]


def _kind(value: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
