"""Stored bytes in JSON: as text if they are UTF-8, else as base64."""

from __future__ import annotations

import base64
import binascii
from typing import Literal

import msgspec

from fieldbrook.core.errors import BadRequestError, FieldError
from fieldbrook.core.host_calls import Shown

Encoding = Literal["text", "base64"]


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as text, or as base64 if they are not UTF-8. Only the first ones are shown (4 KiB in
    dry runs, 1 KiB in traces); `size` is the whole size in bytes."""

    value: str
    encoding: Encoding
    size: int


def decode(text: str, encoding: Encoding, field: str, at: str = "query") -> bytes:
    """Return the bytes that a text of a request encodes.

    Args:
        text: the text from the client.
        encoding: the encoding of the text.
        field: the name of the field, for the error.
        at: where the field is: `query` or `body`.

    Raises:
        BadRequestError: the text is not base64, or has characters that UTF-8 cannot encode.
    """
    try:
        return text.encode() if encoding == "text" else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        what = "base64" if encoding == "base64" else "text"
        raise BadRequestError(FieldError(field, f"not {what}: {error}", at)) from None


def encode(data: bytes, wanted: Encoding) -> tuple[str, Encoding]:
    """Return bytes as text and the encoding: the requested one if it can represent them, else
    base64."""
    if wanted == "text":
        try:
            return data.decode(), "text"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(data).decode(), "base64"


def shown_bytes(shown: Shown) -> Bytes:
    """Return the view of bytes of which only the first are known."""
    data = shown.data
    if shown.size > len(data):  # a text that is cut within a character must not become base64
        data = data.decode("utf-8", "ignore").encode() if _is_text(data) else data
    value, encoding = encode(data, "text")
    return Bytes(value=value, encoding=encoding, size=shown.size)


def _is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8, apart from an incomplete character at their end."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True
