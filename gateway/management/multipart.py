"""Parse multipart bodies of uploads."""

from __future__ import annotations

from email.message import Message

from tornado import httputil

from fieldbrook.core.errors import BadRequestError, FieldError
from fieldbrook.gateway.management.framework.route import Form

# A boundary has at most 70 characters. The time of Python's parser for header parameters grows with
# the square of their number.
_CONTENT_TYPE_LIMIT = 512


def parse_form(content_type: str, body: bytes) -> Form:
    """Parse a multipart body into `file`, `info` and `cache`; each may be sent as a file or as
    text.

    Other parts are ignored. A body of another content type gives an empty form.

    Raises:
        BadRequestError: the body is not well-formed, or the Content-Type is too long.
    """
    arguments: dict[str, list[bytes]] = {}
    files: dict[str, list[httputil.HTTPFile]] = {}
    if len(content_type) > _CONTENT_TYPE_LIMIT:
        reason = f"the Content-Type has more than {_CONTENT_TYPE_LIMIT} characters"
        raise BadRequestError(FieldError("body", reason, "body"))
    head = Message()
    head["Content-Type"] = content_type
    if head.get_content_type() == "multipart/form-data":
        boundary = (head.get_boundary() or "").encode("latin-1", "replace")
        try:
            if not boundary:
                raise httputil.HTTPInputError("multipart boundary not found")
            parts = _without_preamble(body, b"--" + boundary)
            httputil.parse_multipart_form_data(boundary, parts, arguments, files)
        except (httputil.HTTPInputError, UnicodeDecodeError) as error:
            raise BadRequestError(FieldError("body", str(error), "body")) from None
    file = files.get("file", [None])[0]
    info, cache = (
        files[name][0].body if name in files else arguments.get(name, [None])[0]
        for name in ("info", "cache")
    )
    if file is not None:
        return Form(file.body, file.filename, info, cache)
    return Form(arguments.get("file", [None])[0], "", info, cache)


def _without_preamble(body: bytes, delimiter: bytes) -> bytes:
    """Return the body without the preamble that may precede the first delimiter (RFC 2046,
    5.1.1)."""
    if body.startswith(delimiter):
        return body
    at = body.find(b"\r\n" + delimiter)
    return body[at + 2 :] if at >= 0 else body
