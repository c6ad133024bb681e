"""TypeScript types of the management interface, dashboard/api.d.ts, for scripts/reference.py.

They are made from the OpenAPI document, so that `tsc` compares the requests and answers in the
dashboard's code with the declarations of the routes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fieldbrook import __version__
from fieldbrook.gateway.management.openapi.document import describe
from fieldbrook.gateway.management.prefixes import PREFIXES
from fieldbrook.gateway.management.route_table import ROUTES

Json = dict[str, Any]

_MADE = (
    "// Made by scripts/reference.py from the OpenAPI document: bodies and answers of all routes.\n"
    "export as namespace Api;\n"
)
_HEAD = (Path(__file__).parent / "request_types.d.ts").read_text("utf-8")
_OWN = {"Routes", *re.findall(r"^(?:export )?(?:type|interface) (\w++)", _HEAD, re.MULTILINE)}
_NAME = re.compile(r"[A-Za-z_$][\w$]*+", re.ASCII)
_SIMPLE = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def api_types() -> str:
    """Return the content of the whole file.

    Raises:
        ValueError: a name is used twice, or a schema has an unexpected form.
    """
    document = describe(ROUTES, PREFIXES, __version__)
    parts, schemas = [_MADE, _HEAD], document["components"]["schemas"]
    if taken := _OWN & schemas.keys():
        raise ValueError(
            f"a body or an answer is called {', '.join(taken)}, as a type of this file"
        )
    for name, schema in sorted(schemas.items()):
        parts += [*_comment(schema, ""), f"export type {name} = {type_of(schema)};\n"]
    parts.append("/** By method and path below the prefix. */\nexport interface Routes {")
    for path, item in sorted(document["paths"].items()):
        for method, operation in item.items():
            parts += _route(f"{method.upper()} {path}", operation)
    return "\n".join([*parts, "}\n"])


def type_of(schema: Json) -> str:
    """Return the TypeScript type of a schema, on one line.

    Raises:
        ValueError: the schema has an unexpected form.
    """
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(dict.fromkeys(type_of(each) for each in schema[several]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(type_of({**schema, "type": each}) for each in kind)
    if kind == "array":
        return _array(schema)
    if kind == "object":
        return _object(schema)
    if kind is None:
        return "any"
    if kind not in _SIMPLE:
        raise ValueError(f"a schema of type {kind!r}")
    return _SIMPLE[kind]


def _array(schema: Json) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(type_of(each) for each in schema['prefixItems'])}]"
    item = type_of(schema.get("items", {}))
    return f"({item})[]" if " | " in item else f"{item}[]"


def _object(schema: Json) -> str:
    fields, more = schema.get("properties", {}), schema.get("additionalProperties")
    if not fields:
        return f"Record<string, {type_of(more) if isinstance(more, dict) else 'any'}>"
    required = schema.get("required", ())
    return _fields((name, name in required, type_of(field)) for name, field in fields.items())


def _fields(fields: Iterator[tuple[str, bool, str]]) -> str:
    shown = [
        f"{name if _NAME.fullmatch(name) else json.dumps(name)}{'' if required else '?'}: {kind}"
        for name, required, kind in fields
    ]
    return f"{{ {'; '.join(shown)} }}"


def _route(name: str, operation: Json) -> list[str]:
    query = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    fields = (
        (each["name"], each.get("required", False), type_of(each["schema"])) for each in query
    )
    queried = _fields(fields) if query else "undefined"
    return [
        *_comment({"description": operation["summary"]}, "  "),
        f"  {json.dumps(name)}: {{",
        f"    query: {queried};",
        f"    body: {_body(operation.get('requestBody'))};",
        f"    answer: {_answer(operation['responses'])};",
        "  };",
    ]


def _body(body: Json | None) -> str:
    if body is None:
        return "undefined"
    content = body["content"]
    if "application/json" not in content:
        return "FormData" if "multipart/form-data" in content else "BodyInit"
    kind = type_of(content["application/json"]["schema"])
    return kind if body.get("required") else f"{kind} | undefined"


def _answer(responses: Json) -> str:
    kinds = []
    for status, response in responses.items():
        if status.startswith("2"):
            content = response.get("content", {})
            kinds += [
                type_of(media["schema"]) if kind == "application/json" else "Blob"
                for kind, media in content.items()
            ] or ["null"]
    return " | ".join(dict.fromkeys(kinds))


def _comment(schema: Json, indent: str) -> list[str]:
    text = " ".join(str(schema.get("description", "")).split()).replace("*/", "* /")
    return [f"{indent}/** {text} */"] if text else []
