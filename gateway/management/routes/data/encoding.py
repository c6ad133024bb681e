"""Stored bytes in JSON: as text if they are UTF-8, else as base64."""

from __future__ import annotations

import base64
import binascii
from typing import Literal

from fieldbrook.core.errors import BadRequestError, FieldError

Encoding = Literal["text", "base64"]


def decode(text: str, encoding: Encoding, field: str, at: str = "query") -> bytes:
    """The bytes that a text of a request stands for.

    Args:
        text: what the client sent.
        encoding: how it was encoded.
        field: the name of the field, for the error.
        at: where the field is: `query` or `body`.

    Raises:
        BadRequestError: it is not base64, or has characters that UTF-8 cannot encode.
    """
    try:
        return text.encode() if encoding == "text" else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        what = "base64" if encoding == "base64" else "text"
        raise BadRequestError(FieldError(field, f"not {what}: {error}", at)) from None


def encode(data: bytes, wanted: Encoding) -> tuple[str, Encoding]:
    """Bytes as text and its encoding: the wanted one if it can represent them, else base64."""
    if wanted == "text":
        try:
            return data.decode(), "text"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(data).decode(), "base64"
