"""Generate the OpenAPI 3.1 document from the declarations that also serve the requests.

Methods, paths, authority, bodies and queries come from the routes. Successful answers come from
the return types of the handlers: a struct or a list of structs.
Failures come from the error classes.

Source: the OpenAPI Specification 3.1.1; interface document, 1.1 to 1.5.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from fieldbrook.gateway.management.framework.binding import Sfid
from fieldbrook.gateway.management.framework.generations import generations
from fieldbrook.gateway.management.framework.route import (
    Auth,
    Download,
    NoContent,
    PlainText,
    Route,
    Stream,
)
from fieldbrook.gateway.management.openapi import events as openapi_events
from fieldbrook.gateway.management.openapi import failures

Json = dict[str, Any]

_COMPONENT = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{([^{}]++)\}")
_SFID: Json = {
    "type": "string",
    "pattern": "^[0-9]{1,19}$",
    "description": "an id: decimal digits, as a string",
}
_NUMBERS = frozenset(
    {"place", "version"}
)  # path parameters that are numbers, without the ending "ID"

_SECURITY: dict[Auth, list[Json]] = {
    Auth.ANYBODY: [],
    Auth.ACCOUNT: [{"token": []}, {"tokenInQuery": []}],
    Auth.ADMIN: [{"token": []}, {"tokenInQuery": []}],
    Auth.SETUP: [{"setupCode": []}, {"token": []}, {"tokenInQuery": []}],
}
_SCHEMES: Json = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token from a login, or an access key of an account (w3b_...).",
    },
    "tokenInQuery": {"type": "apiKey", "in": "query", "name": "authorization"},
    "setupCode": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Setup-Code",
        "description": "The code that the node prints at its first start. It is valid until there "
        "is an administrator.",
    },
    "publisher": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of a publisher, with or without the scheme Bearer.",
    },
}


def describe(routes: Sequence[Route], prefixes: Sequence[str], version: str) -> Json:
    """Generate the document.

    Args:
        routes: the declarations; of two with the same method and path shape the first one is used,
            as for requests.
        prefixes: the prefixes of all paths.
        version: the version of the node.
    """
    names = _path_names(routes)
    identifiers = _operation_ids(routes)
    paths: Json = {}
    for route in routes:
        item = paths.setdefault(names[_shape(route)], {})
        item.setdefault(route.method.lower(), _operation(route, names, identifiers))
    paths.update(openapi_events.paths())
    errors = dict(failures.responses())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fieldbrook",
            "version": version,
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": prefix} for prefix in prefixes],
        "tags": [{"name": tag} for tag in sorted({_tag(route) for route in routes} | {"event"})],
        "paths": paths,
        "components": {
            "schemas": {**_components(routes), "Error": failures.ERROR, **openapi_events.SCHEMAS},
            "responses": errors,
            "headers": {
                "X-Meta": {
                    "description": "The node and the operation: srv-applet-mgr@VERSION/OPERATION.",
                    "schema": {"type": "string"},
                },
                "Warning": {
                    "description": "The request succeeded, but the result may not be as expected: "
                    "for example, the module does not export the handler of a strategy. The "
                    "header may occur more than once.",
                    "schema": {"type": "string"},
                },
            },
            "securitySchemes": _SCHEMES,
        },
    }


_INTRODUCTION = (
    "A successful POST is answered 201; other requests are answered 200 with a body or 204 "
    "without one. A request body is parsed as JSON whatever its Content-Type. Keys are "
    "case-insensitive, unknown keys are ignored, and required values must not be zero or empty. "
    "A list in a query repeats its key. A wrong method is answered 405 and an unknown path 404, "
    "both with plain text. The node also has / (204), /liveness, /readiness, /metrics and /version."
)

# ---------------------------------------------------------------- paths


def _shape(route: Route) -> str:
    return _PARAMETER.sub("{}", route.pattern)


def _path_names(routes: Iterable[Route]) -> dict[str, str]:
    """Return the path of each shape of a route.

    The document may contain a shape only once, but the methods of one path may name its
    parameters differently. Such names are joined by `_or_`.
    """
    names: dict[str, list[list[str]]] = {}
    for route in routes:
        given = _PARAMETER.findall(route.pattern)
        joined = names.setdefault(_shape(route), [[] for _ in given])
        for known, name in zip(joined, given, strict=True):
            if name not in known:
                known.append(name)
    paths = {}
    for shape, joined in names.items():
        path = shape
        for known in joined:
            path = path.replace("{}", f"{{{'_or_'.join(known)}}}", 1)
        paths[shape] = path
    return paths


def _operation_ids(routes: Sequence[Route]) -> dict[tuple[str, str], str]:
    """Return a unique operation id per route, because the generations of routes share operation
    names."""
    often = Counter(route.operation for route in routes)
    return {
        (route.method, route.pattern): route.operation
        if often[route.operation] == 1
        else "_".join((route.operation, *(part.strip("{}") for part in route.segments)))
        for route in routes
    }


def _tag(route: Route) -> str:
    return route.segments[0]


# ---------------------------------------------------------------- operations


def _operation(
    route: Route,
    names: dict[str, str],
    identifiers: dict[tuple[str, str], str],
) -> Json:
    summary, _, more = (inspect.getdoc(route.handler) or route.operation).partition("\n\n")
    authority = f"Authority: {route.auth.value}."
    if route.group is not None and route.auth in (Auth.ACCOUNT, Auth.ADMIN):
        authority += f" An access key needs {route.permission.name} on {route.group}."
    description = "\n\n".join(filter(None, (" ".join(more.split()), authority)))
    parameters = [
        *_path_parameters(route, names[_shape(route)]),
        *_query_parameters(route),
    ]
    body = _request_body(route)
    return {
        "operationId": identifiers[route.method, route.pattern],
        "summary": " ".join(summary.split()),
        "description": description,
        "tags": [_tag(route)],
        "x-generations": list(generations(route)) or ["ours"],
        "security": _SECURITY[route.auth],
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": body} if body else {}),
        "responses": {**_success(route), **_failures(route)},
    }


def _path_parameters(route: Route, path: str) -> Iterator[Json]:
    given = _PARAMETER.findall(route.pattern)
    for joined, name in zip(_PARAMETER.findall(path), given, strict=True):
        number = name.endswith("ID") or name in _NUMBERS
        schema = _SFID if number else {"type": "string", "minLength": 1}
        note = {} if joined == name else {"description": f"here: {name}"}
        yield {"name": joined, "in": "path", "required": True, **note, "schema": schema}


def _query_parameters(route: Route) -> Iterator[Json]:
    if route.query is None:
        return
    schema = _own_schema(route.query)
    for name, field in schema.get("properties", {}).items():
        yield {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": field,
        }


def _request_body(route: Route) -> Json | None:
    if route.upload:
        return _upload(route)
    if route.body is None:
        return None
    return {
        "required": any(field.required for field in msgspec.structs.fields(route.body)),
        "content": {"application/json": {"schema": _reference(route.body)}},
    }


def _upload(route: Route) -> Json:
    """The form of an upload: a module, and the other fields of its route."""
    info: Json = {} if route.body is None else {"info": _reference(route.body)}
    needed: Json = (
        {"required": ["file", *info]}
        if route.method == "POST"
        else {"anyOf": [{"required": ["file"]}, {"required": ["info"]}]}
    )
    form = {
        "type": "object",
        "properties": {
            "file": {
                "type": "string",
                "contentMediaType": "application/wasm",
                "description": "the module",
            },
            **info,
        },
        **needed,
    }
    encoding = {"file": {"contentType": "application/wasm"}}
    if info:
        encoding["info"] = {"contentType": "application/json"}
    return {
        "required": True,
        "content": {"multipart/form-data": {"schema": form, "encoding": encoding}},
    }


# ---------------------------------------------------------------- answers


def _success(route: Route) -> Json:
    """The successful answers, from the handler's return type, as `ManagementHandler` sends them."""
    created = "201" if route.method == "POST" else "200"
    answers: Json = {}
    for kind in _members(route.answer):
        if kind in (type(None), NoContent):
            answers["204"] = {"description": HTTPStatus.NO_CONTENT.phrase}
            if kind is NoContent:
                answers["204"]["headers"] = {"Warning": {"$ref": "#/components/headers/Warning"}}
            continue
        status = "200" if kind in _CONTENT else created
        answer = answers.setdefault(
            status, {"description": HTTPStatus(int(status)).phrase, "content": {}}
        )
        if kind in _CONTENT:
            answer["content"].update(_CONTENT[kind])
        else:
            _add_json(answer["content"], _json_schema(kind))
    for answer in answers.values():
        headers = answer.setdefault("headers", {})
        headers["X-Meta"] = {"$ref": "#/components/headers/X-Meta"}
    return answers


def _add_json(content: Json, schema: Json) -> None:
    """Add the schema of a JSON answer; an answer with several forms is one of them."""
    known = content.setdefault("application/json", {"schema": schema})["schema"]
    if known is not schema:
        forms = known.get("oneOf", [known])
        content["application/json"]["schema"] = {"oneOf": [*forms, schema]}


# One event of a stream, with the names of its fields (HTML, 9.2.6); `data` is JSON.
_SERVER_SENT: Json = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}
_CONTENT: dict[Any, Json] = {
    Download: {"text/plain": {}},
    Stream: {"text/event-stream": {"schema": _SERVER_SENT}},
    PlainText: {"text/plain": {"schema": {"type": "string"}}},
}


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _json_schema(kind: Any) -> Json:
    if get_origin(kind) is list:
        return {"type": "array", "items": _json_schema(get_args(kind)[0])}
    return _reference(kind)


def _replies(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Return the structs of an answer, which may be a union or contain lists of structs."""
    for member in _members(kind):
        found = get_args(member)[0] if get_origin(member) is list else member
        if isinstance(found, type) and issubclass(found, msgspec.Struct):
            yield found


def _failures(route: Route) -> Json:
    statuses = {400, 429, 500, 503}
    if route.auth is not Auth.ANYBODY or route.body is not None:
        statuses |= {401, 403}
    if route.auth is not Auth.ANYBODY or route.body is not None or "{" in route.pattern:
        statuses.add(404)
    if route.method != "GET":
        statuses |= {409, 413}
    return {
        str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)
    }


# ---------------------------------------------------------------- schemas


def _components(routes: Iterable[Route]) -> Json:
    """The schemas of all bodies and replies by name; required body fields must not be empty."""
    replies = _schemas({reply for route in routes for reply in _replies(route.answer)})
    bodies = _schemas({route.body for route in routes} - {None})
    for schema in bodies.values():
        _require_content(schema)
    return {**replies, **bodies}


def _schemas(kinds: Iterable[Any]) -> Json:
    _, schemas = msgspec.json.schema_components(
        sorted(kinds, key=str), schema_hook=_schema_of, ref_template=_COMPONENT
    )
    return {name: _without_titles(schema) for name, schema in schemas.items()}


def _own_schema(kind: Any) -> Json:
    """Return the schema of a struct itself, not a reference to it."""
    schema: Json = _schemas([kind])[kind.__name__]
    _require_content(schema)
    return schema


def _reference(kind: Any) -> Json:
    (schema,), _ = msgspec.json.schema_components(
        [kind], schema_hook=_schema_of, ref_template=_COMPONENT
    )
    return dict(schema)


def _schema_of(kind: type) -> Json:
    if kind is Sfid:
        return dict(_SFID)
    raise NotImplementedError  # tells msgspec that the hook does not handle the type


def _without_titles(schema: Any) -> Any:
    """Remove the titles of schemas, because they repeat the schemas' names."""
    if isinstance(schema, dict):
        return {
            key: _without_titles(value)
            for key, value in schema.items()
            if key != "title" or not isinstance(value, str)
        }
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    return schema


def _require_content(schema: Json) -> None:
    """Add to a schema that required fields must not be zero or empty; see `binding`."""
    for name in schema.get("required", ()):
        field = schema["properties"][name]
        if field.get("type") == "string" and "enum" not in field:
            field.setdefault("minLength", 1)
        elif field.get("type") == "array":
            field.setdefault("minItems", 1)
        elif field.get("type") == "integer" and field.get("minimum") == 0:
            field["minimum"] = 1
