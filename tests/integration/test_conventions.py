"""Conventions of all management routes: paths, methods, CORS, paging, failures of the node."""

from __future__ import annotations

import pytest

from fieldbrook.gateway.management.prefixes import PREFIXES
from fieldbrook.storage.project.rows import NumberedRow
from tests.support.management import (
    V0,
    MemoryStore,
    Server,
    User,
)


@pytest.mark.parametrize("path", ["/nothing", f"{V0}/nothing", f"{V0}/project/a/b/c", V0, "/a%zz"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_404_in_plain_text(server: Server, method: str, path: str) -> None:
    reply = server.send(method, path)
    assert (reply.status, reply.body) == (404, b"404 page not found\n")
    assert reply.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/project", "GET, POST"),
        ("GET", "/login", "DELETE, PUT"),
        ("HEAD", "/resource", "GET"),
        ("DELETE", "/strategy/p/5", "GET, PUT"),
        ("POST", "/deploy/5/START", "PUT"),
    ],
)
def test_a_known_path_with_another_method_says_which_it_has(
    server: Server, method: str, path: str, allowed: str
) -> None:
    reply = server.send(method, V0 + path)
    assert (reply.status, reply.headers["Allow"]) == (405, allowed)
    assert reply.body == (b"" if method == "HEAD" else b"Method Not Allowed\n")


def test_a_method_http_does_not_have_is_405(server: Server) -> None:
    refused = server.send("BREW", f"{V0}/project")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, POST")
    assert server.send("BREW", "/").headers["Allow"] == "GET, HEAD"
    assert server.send("BREW", f"{V0}/nothing").status == 404


def test_a_query_that_is_not_utf_8_is_a_bad_request_or_no_token(server: Server, ada: User) -> None:
    assert server.send("GET", f"{V0}/project?authorization=%ff").status in (400, 401)
    assert ada("GET", "/project?name=%ff").json["total"] == 0


def test_both_prefixes_serve_the_same(ada: User, server: Server) -> None:
    ada.project()
    headers = {"Authorization": ada.token}
    bodies = {server.send("GET", f"{prefix}/project", headers=headers).body for prefix in PREFIXES}
    assert len(bodies) == 1


def test_a_trailing_slash_redirects_to_the_path_without(server: Server) -> None:
    reply = server.send("GET", f"{V0}/project/?size=1")
    assert (reply.status, reply.headers["Location"]) == (301, f"{V0}/project?size=1")
    assert server.send("POST", f"{V0}/project/", "{}").status == 307


@pytest.mark.parametrize(
    ("method", "sent", "meant"),
    [
        ("GET", "/Project", "/project"),
        ("GET", "//project?size=1", "/project?size=1"),
        ("GET", "/PROJECT/x//Demo/Data/", "/project/x/Demo/data"),
        ("POST", "/Strategy/X/Demo", "/strategy/x/Demo"),
        ("POST", "/Event/Demo?eventType=A", "/event/Demo?eventType=A"),
        ("POST", "/event/Demo/", "/event/Demo"),
    ],
)
def test_a_path_in_another_case_or_with_other_slashes_redirects_to_the_one_meant(
    server: Server, method: str, sent: str, meant: str
) -> None:
    reply = server.send(method, V0 + sent)
    # For doubled slashes the original answers 307, whatever the method.
    assert reply.status == (301 if method == "GET" and "//" not in sent else 307)
    assert reply.headers["Location"] == V0 + meant


@pytest.mark.parametrize("path", ["/projects", "/project/../project", "/Event/a/b", "/"])
def test_an_unknown_path_is_not_redirected(server: Server, path: str) -> None:
    reply = server.send("POST", V0 + path)
    assert (reply.status, reply.body) == (404, b"404 page not found\n")


def test_cors_headers_are_there_only_for_a_request_with_an_origin(
    server: Server, ada: User
) -> None:
    with_origin = {"Origin": "http://page.example", "Authorization": ada.token}
    reply = server.send("GET", f"{V0}/project", headers=with_origin)
    assert reply.headers["Access-Control-Allow-Origin"] == "*"
    assert "X-Meta" in reply.headers["Access-Control-Expose-Headers"]
    refused = server.send("GET", f"{V0}/project", headers={"Origin": "http://page.example"})
    assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (401, "*")
    without = server.send("GET", f"{V0}/project", headers={"Authorization": ada.token})
    assert "Access-Control-Allow-Origin" not in without.headers


def test_a_preflight_is_204_and_needs_no_token(server: Server) -> None:
    for path in (f"{V0}/project", "/", "/nothing"):
        reply = server.send("OPTIONS", path, headers={"Origin": "http://page.example"})
        assert (reply.status, reply.body) == (204, b"")
        assert "DELETE" in reply.headers["Access-Control-Allow-Methods"]
        assert "Authorization" in reply.headers["Access-Control-Allow-Headers"]
        bare = server.send("OPTIONS", path)
        assert (bare.status, bare.body) == (200, b"")


def test_every_answer_of_a_route_names_its_operation(ada: User) -> None:
    assert ada("GET", "/project").headers["X-Meta"] == "srv-applet-mgr@0.0.9/ListProject"
    assert ada("GET", "/project/none").headers["X-Meta"] == "srv-applet-mgr@0.0.9/GetProject"


@pytest.mark.parametrize("query", ["size=-2", "size=x", "offset=-1", "offset=1.5", "size=1e99"])
def test_bad_paging_is_refused(ada: User, query: str) -> None:
    reply = ada("GET", f"/project?{query}")
    assert reply.json["canBeTalk"] is False
    assert list(reply.fields) == [query.partition("=")[0]]
    assert reply.json["fields"][0]["in"] == "query"


def test_paging_gives_the_asked_for_part_of_a_list(ada: User) -> None:
    for number in range(12):
        ada.project(f"p{number}")
    assert len(ada("GET", "/project").json["data"]) == 10
    assert len(ada("GET", "/project?size=-1").json["data"]) == 12
    assert len(ada("GET", f"/project?size={10**15}").json["data"]) == 12
    assert ada("GET", "/project?size=0").json == ada("GET", "/project").json, "the default"
    part = ada("GET", "/project?size=5&offset=10").json
    assert (len(part["data"]), part["total"]) == (2, 12)
    assert ada("GET", f"/project?offset={10**15}").json == {"data": [], "total": 12}


def test_an_unexpected_error_is_answered_500_without_its_details(
    ada: User, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    project = ada.project()

    class Broken(MemoryStore):
        def logs(self, after: int, limit: int) -> list[NumberedRow]:
            raise RuntimeError("internal detail")

    server.stores[int(project["projectID"])] = Broken()
    reply = ada("GET", "/applet_log/NftMinter")
    assert (reply.status, reply.key, reply.json["code"]) == (500, "UnknownError", 500_000_000)
    assert b"internal detail" not in reply.body
    assert "internal detail" in caplog.text
    caplog.clear()


def test_an_error_of_the_store_is_answered_and_logged(
    ada: User, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.writer.close()
    reply = ada("GET", "/project")
    assert (reply.status, reply.key) == (500, "DatabaseError")
    assert "DatabaseError" not in caplog.text
    assert "GET /srv-applet-mgr/v0/project" in caplog.text
    caplog.clear()
