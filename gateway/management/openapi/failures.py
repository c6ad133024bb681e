"""Failures in the OpenAPI document: their schema, and the error classes by status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fieldbrook.core.errors import BadRequestError, NodeError

Json = dict[str, Any]

# The 8 keys of every failure (interface document, 1.3).
ERROR: Json = {
    "type": "object",
    "description": "A failure. Programs should compare `key`; the texts may change.",
    "properties": {
        "key": {"type": "string"},
        "code": {"type": "integer", "description": "status * 1000000 + 999000 + a number"},
        "msg": {"type": "string"},
        "desc": {"type": "string", "description": "what was wrong, with names and values"},
        "canBeTalk": {
            "type": "boolean",
            "description": "whether the error may be shown to end users",
        },
        "id": {"type": "string"},
        "sources": {"type": "array", "items": {"type": "string"}},
        "fields": {
            "type": ["array", "null"],
            "description": "the offending parameters, for badRequest",
            "items": {
                "type": "object",
                "properties": {
                    "field": {"type": "string"},
                    "msg": {"type": "string"},
                    "in": {"enum": ["path", "query", "header", "body"]},
                },
                "required": ["field", "msg", "in"],
            },
        },
    },
    "required": ["key", "code", "msg", "desc", "canBeTalk", "id", "sources", "fields"],
}


def responses() -> Iterator[tuple[str, Json]]:
    """Describe the failures with each status: the keys and codes of the error classes."""
    keys: dict[int, set[str]] = defaultdict(set)
    codes: dict[int, set[str]] = defaultdict(set)
    for error in _catalogue(NodeError):
        keys[error.status].add(error.key)
        codes[error.status].add(f"{error.key} {_code(error)}")
    keys[500].add("UnknownError")
    for status, known in sorted(keys.items()):
        body = {
            "allOf": [
                {"$ref": "#/components/schemas/Error"},
                {"properties": {"key": {"enum": sorted(known)}}},
            ]
        }
        headers = {}
        if status in (429, 503):
            seconds = {"schema": {"type": "integer"}, "description": "seconds"}
            headers = {"headers": {"Retry-After": seconds}}
        yield (
            str(status),
            {
                "description": f"{HTTPStatus(status).phrase}: {', '.join(sorted(codes[status]))}",
                **headers,
                "content": {"application/json": {"schema": body}},
            },
        )


def _catalogue(error: type[NodeError]) -> Iterator[type[NodeError]]:
    yield error
    for sub in error.__subclasses__():
        yield from _catalogue(sub)


def _code(error: type[NodeError]) -> int:
    if error.key == BadRequestError.key:
        return 400_000_000
    return error.status * 1_000_000 + 999_000 + error.number
