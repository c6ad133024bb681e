"""Render the OpenAPI document as one HTML page without scripts or external resources."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from typing import Any

from fieldbrook.gateway import replies

Json = dict[str, Any]

POLICY = f"{replies.POLICY}; style-src 'unsafe-inline'"

_STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f23; background: #fff; }
code, pre { font: 0.875rem/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .6rem; background: #f4f5f7; }
summary { cursor: pointer; padding: .2rem 0; }
details { border-bottom: 1px solid #dde1e6; }
details > :not(summary) { margin-left: 1.2rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
b { display: inline-block; min-width: 4.2rem; }
nav a { margin-right: .8rem; }
@media (prefers-color-scheme: dark) { body { color: #e4e7eb; background: #15181c; }
  pre { background: #22262c; } details { border-color: #333941; } a { color: #8ab4f8; } }
"""


def render(document: Json) -> str:
    """Render the page; `document` is the result of `document.describe`."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            groups[operation["tags"][0]].append(_operation(method, path, operation))
    tags = sorted(groups)
    info = document["info"]
    servers = ", ".join(f"<code>{escape(server['url'])}</code>" for server in document["servers"])
    links = "".join(f'<a href="#{escape(tag)}">{escape(tag)}</a> ' for tag in tags)
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(info['title'])} {escape(info['version'])}</title>",
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
            f"<p>{escape(info['description'])}</p>",
            f"<p>Paths are below {servers}. For programs: ",
            '<a href="/srv-applet-mgr">the OpenAPI document</a>.</p>',
            f"<nav>{links}<a href='#schemas'>schemas</a></nav>",
            *(f'<h2 id="{escape(tag)}">{escape(tag)}</h2>\n{"".join(groups[tag])}' for tag in tags),
            '<h2 id="schemas">schemas</h2>',
            *_schemas(document["components"]["schemas"]),
            "</body></html>\n",
        )
    )


def _operation(method: str, path: str, operation: Json) -> str:
    head = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}"
    return f"<details><summary>{head}</summary>{''.join(_details(operation))}</details>\n"


def _details(operation: Json) -> Iterator[str]:
    for paragraph in operation["description"].split("\n\n"):
        yield f"<p>{escape(paragraph)}</p>"
    parameters = operation.get("parameters", ())
    if parameters:
        rows = "".join(
            f"<tr><td><code>{escape(each['name'])}</code>{'*' if each.get('required') else ''}</td>"
            f"<td>{each['in']}</td><td>{_brief(each['schema'])}</td></tr>"
            for each in parameters
        )
        yield f"<table>{rows}</table>"
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body, {escape(kind)}: {_brief(body.get('schema', {}))}</p>"
    for status, answer in operation["responses"].items():
        if "$ref" not in answer:
            kinds = ", ".join(
                f"{escape(kind)} {_brief(body.get('schema', {}))}"
                for kind, body in answer.get("content", {}).items()
            )
            yield f"<p>{status}: {kinds or escape(answer['description'])}</p>"
    failures = ", ".join(status for status, a in operation["responses"].items() if "$ref" in a)
    yield f"<p>Failures: {failures}</p>"


def _brief(schema: Json) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    several = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    if several:
        return " or ".join(_brief(each) for each in several)
    if schema.get("type") == "array":
        return f"a list of {_brief(schema.get('items', {}))}"
    if schema.get("type") == "object" and "properties" in schema:
        parts = (f"<code>{escape(k)}</code> {_brief(v)}" for k, v in schema["properties"].items())
        return ", ".join(parts)
    shown = {key: value for key, value in schema.items() if key != "items"}
    return f"<code>{escape(json.dumps(shown))}</code>" if shown else "any"


def _schemas(schemas: Json) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        text = escape(json.dumps(schema, indent=2))
        yield (
            f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
            f"<pre>{text}</pre></details>"
        )
