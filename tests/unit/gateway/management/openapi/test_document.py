"""The OpenAPI document has the declarations of the routes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec

from fieldbrook.core.errors import ProjectNameConflictError
from fieldbrook.gateway.management.framework.route import Auth, Call, Route, Stream
from fieldbrook.gateway.management.openapi import document as openapi
from fieldbrook.gateway.management.openapi import page as openapi_page
from fieldbrook.gateway.management.prefixes import PREFIXES
from fieldbrook.gateway.management.route_table import ROUTES

DOCUMENT = openapi.describe(ROUTES, PREFIXES, "1.2.3")


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
    ]


def operation(method: str, path: str) -> Any:
    return DOCUMENT["paths"][path][method.lower()]


def test_every_route_is_described_and_so_is_the_event_endpoint() -> None:
    shapes = {(method.upper(), re.sub(r"{[^}]+}", "{}", path)) for method, path, _ in operations()}
    declared = {(route.method, re.sub(r"{[^}]+}", "{}", route.pattern)) for route in ROUTES}
    assert shapes == declared | {("POST", "/event/{}")}


def test_no_two_operations_share_a_name_and_no_two_paths_a_shape() -> None:
    names = [each["operationId"] for _, _, each in operations()]
    assert len(names) == len(set(names))
    shapes = [re.sub(r"{[^}]+}", "{}", path) for path in DOCUMENT["paths"]]
    assert len(shapes) == len(set(shapes))


def test_every_reference_leads_somewhere() -> None:
    found = re.findall(r'"#/components/([^/"]+)/([^"]+)"', json.dumps(DOCUMENT))
    assert found
    assert [pair for pair in found if pair[1] not in DOCUMENT["components"][pair[0]]] == []


def test_the_parameters_of_a_path_are_those_in_it() -> None:
    for _, path, each in operations():
        described = {p["name"] for p in each.get("parameters", ()) if p["in"] == "path"}
        assert described == set(re.findall(r"{([^}]+)}", path)), path


def test_a_body_has_the_names_on_the_wire_and_its_ids_are_strings_of_digits() -> None:
    body = operation("POST", "/strategy/x/{projectName}")["requestBody"]
    assert body["required"] is True
    reference = body["content"]["application/json"]["schema"]["$ref"]
    schema = DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]]
    assert schema["properties"]["appletID"]["type"] == "string"
    assert re.fullmatch(schema["properties"]["appletID"]["pattern"], "1234567890123456789")
    assert {"appletID", "eventType", "handler"} <= set(schema["required"])


def test_what_is_required_must_not_be_empty() -> None:
    schema = DOCUMENT["components"]["schemas"]["Login"]
    assert schema["properties"]["username"]["minLength"] == 1


def test_an_upload_is_a_form_with_a_file_and_info() -> None:
    content = operation("POST", "/applet/x/{projectName}")["requestBody"]["content"]
    form = content["multipart/form-data"]["schema"]
    assert form["required"] == ["file", "info"]
    assert form["properties"]["info"] == {"$ref": "#/components/schemas/AppletInfo"}
    content = operation("POST", "/resource/inspect")["requestBody"]["content"]
    form = content["multipart/form-data"]["schema"]
    assert (form["required"], list(form["properties"])) == (["file"], ["file"])


def test_a_list_in_a_query_is_a_list_of_ids() -> None:
    parameters = operation("GET", "/strategy/x/{projectName}/datalist")["parameters"]
    applets = next(each for each in parameters if each["name"] == "appletID")
    assert applets["in"] == "query"
    assert applets["schema"]["type"] == "array"


def test_success_is_what_the_handler_returns() -> None:
    def statuses(method: str, path: str) -> list[str]:
        return [status for status in operation(method, path)["responses"] if status.startswith("2")]

    assert statuses("POST", "/project") == ["201"]
    assert statuses("GET", "/project") == ["200"]
    assert statuses("DELETE", "/project/x/{projectName}") == ["204"]
    follows = operation("GET", "/applet_log/{projectName}")["responses"]["200"]["content"]
    assert set(follows) == {"application/json", "text/event-stream"}


def test_an_answer_has_the_names_on_the_wire_and_its_ids_are_strings() -> None:
    content = operation("GET", "/strategy/x/{projectName}/datalist")["responses"]["200"]["content"]
    assert content["application/json"]["schema"] == {"$ref": "#/components/schemas/StrategyPage"}
    strategy = DOCUMENT["components"]["schemas"]["StrategyReply"]
    assert strategy["properties"]["strategyID"]["type"] == "string"
    assert "dead" in strategy["required"]
    assert "warnings" not in strategy["required"]


class Described(msgspec.Struct, frozen=True):
    """The answer of a route."""

    name: str
    note: str | msgspec.UnsetType = msgspec.UNSET


async def read_one(call: Call[None, None]) -> Described | Stream:
    """Read one."""
    return Described("one")


async def read_all(call: Call[None, None]) -> list[Described]:
    """Read all."""
    return []


def test_a_struct_that_a_route_returns_is_its_described_answer() -> None:
    routes = [Route("GET", "/event", "One", read_one), Route("GET", "/kv", "All", read_all)]
    document = openapi.describe(routes, PREFIXES, "1.2.3")
    content = [
        document["paths"][path]["get"]["responses"]["200"]["content"] for path in ("/event", "/kv")
    ]
    reference = {"$ref": "#/components/schemas/Described"}
    assert content[0]["application/json"]["schema"] == reference
    assert "text/event-stream" in content[0]
    assert content[1]["application/json"]["schema"] == {"type": "array", "items": reference}
    schema = document["components"]["schemas"]["Described"]
    assert (list(schema["properties"]), schema["required"]) == (["name", "note"], ["name"])


def test_an_error_has_the_eight_keys_and_a_key_of_the_catalogue() -> None:
    conflict = DOCUMENT["components"]["responses"]["409"]
    body = conflict["content"]["application/json"]["schema"]["allOf"]
    assert ProjectNameConflictError.key in body[1]["properties"]["key"]["enum"]
    error = DOCUMENT["components"]["schemas"]["Error"]
    assert set(error["required"]) == set(ProjectNameConflictError(what="x").body("1"))


def test_only_routes_for_anybody_are_without_a_token() -> None:
    for route in ROUTES:
        found = [
            each
            for method, path, each in operations()
            if method.upper() == route.method
            and re.sub(r"{[^}]+}", "{}", path) == re.sub(r"{[^}]+}", "{}", route.pattern)
        ]
        assert (found[0]["security"] == []) == (route.auth is Auth.ANYBODY), route.pattern


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_every_operation_and_fetches_nothing() -> None:
    page = _Page()
    page.feed(openapi_page.render(DOCUMENT))
    for _, path, each in operations():
        assert path in page.text
        assert each["summary"] in page.text
    assert {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe"} == set()
    targets = [attrs["href"] or "" for tag, attrs in page.tags if tag == "a"]
    ids = {f"#{attrs['id']}" for _, attrs in page.tags if attrs.get("id")}
    assert [target for target in targets if target not in ids] == ["/srv-applet-mgr"]


def test_what_a_document_says_does_not_become_part_of_the_page() -> None:
    document = json.loads(json.dumps(DOCUMENT))
    document["info"]["title"] = "<script>alert(1)</script>"
    assert "<script" not in openapi_page.render(document)


def test_every_answer_says_what_it_has() -> None:
    schemas = DOCUMENT["components"]["schemas"]

    def is_bare(schema: dict[str, Any]) -> bool:
        if "$ref" in schema:
            return is_bare(schemas[schema["$ref"].rpartition("/")[2]])
        if several := [*schema.get("oneOf", ()), *schema.get("anyOf", ())]:
            return any(map(is_bare, several))
        if schema.get("type") == "array":
            return is_bare(schema["items"])
        return not schema.get("properties") if schema.get("type") == "object" else not schema

    bare = [
        f"{method.upper()} {path} {status}"
        for method, path, each in operations()
        for status, answer in each["responses"].items()
        for kind, media in answer.get("content", {}).items()
        if status.startswith("2") and kind == "application/json" and is_bare(media["schema"])
    ]
    assert bare == []


def test_an_answer_that_has_several_forms_is_one_of_them() -> None:
    content = operation("GET", "/kv/{projectName}")["responses"]["200"]["content"]
    forms = [
        form["$ref"].rpartition("/")[2] for form in content["application/json"]["schema"]["oneOf"]
    ]
    assert forms == ["KeyList", "StoredValue", "PairPage"]
