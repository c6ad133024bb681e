"""Bodies of management requests: their form, their limits, and connections that send them."""

from __future__ import annotations

import http.client
import socket

import pytest

from fieldbrook.gateway.management.framework.binding import JSON_LIMIT_BYTES
from tests.support.management import (
    V0,
    Server,
    User,
)
from tests.support.tools import LIMIT_S


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_is_json_whatever_its_content_type_says(
    server: Server, ada: User, content_type: str
) -> None:
    headers = {"Authorization": ada.token, "Content-Type": content_type}
    reply = server.send("POST", f"{V0}/project", '{"NAME":"minter","unknown":[1]}', headers)
    assert (reply.status, reply.json["name"]) == (201, "minter")


def test_go_escapes_and_a_newline_end_every_body(ada: User) -> None:
    reply = ada("POST", "/project", {"name": "p", "description": "<a>&\u2028"})
    assert b'"description":"\\u003ca\\u003e\\u0026\\u2028"' in reply.body
    assert reply.body.endswith(b"}\n")
    assert reply.headers["Content-Type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    ("body", "field_"),
    [
        ("", "name"),
        ("{}", "name"),
        ('{"name":null}', "name"),
        ('{"name":""}', "name"),
        ('{"name":5}', "name"),
        ('{"name":["x"]}', "name"),
        ('{"name":"ok","envs":"x"}', "envs"),
        ('{"name":"ok","envs":[["k"]]}', "envs[0]"),
        ('{"name":"ok","description":5}', "description"),
        ("[]", "body"),
        ("5", "body"),
        ("not json", "body"),
        ('{"name":"x"', "body"),
        ('{"name":"\\ud800"}', "body"),
        ("[" * 200_000, "body"),
        (b"\xff\xfe", "body"),
    ],
)
def test_the_answer_to_an_invalid_body_names_the_field(
    server: Server, ada: User, body: str | bytes, field_: str
) -> None:
    reply = server.send("POST", f"{V0}/project", body, {"Authorization": ada.token})
    assert list(reply.fields) == [field_]
    assert reply.json["msg"] == "invalid parameters"
    assert reply.json["fields"][0]["in"] == "body"


def test_a_json_body_beyond_the_limit_is_refused(server: Server, ada: User) -> None:
    body = b'{"name":"' + b"x" * JSON_LIMIT_BYTES + b'"}'
    reply = server.send("POST", f"{V0}/project", body, {"Authorization": ada.token})
    assert (reply.status, reply.key) == (413, "RequestEntityTooLarge")


def test_a_chunked_body_beyond_the_limit_is_refused_too(server: Server, ada: User) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    chunks = (b"x" * 65_536 for _ in range(2 * JSON_LIMIT_BYTES // 65_536))
    headers = {"Authorization": ada.token, "Transfer-Encoding": "chunked"}
    connection.request("POST", f"{V0}/project", chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_a_refusal_reaches_a_client_that_is_still_sending(server: Server, ada: User) -> None:
    body = b"x" * (3 << 20)
    for path in ("/applet/none", "/project", "/nothing", "/liveness"):
        for token in (ada.token, "none"):
            reply = server.send("PUT", V0 + path, body, {"Authorization": token})
            assert reply.status in (401, 403, 404, 405, 413)


def test_a_client_that_asks_before_sending_is_refused_at_once(server: Server) -> None:
    for length in (10, 1 << 40):
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as connection:
            head = f"POST {V0}/applet/p HTTP/1.1\r\nHost: n\r\nContent-Length: {length}\r\n"
            connection.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert answer.count(b"HTTP/1.1") == 1


def test_connections_are_kept_for_the_next_request(server: Server, ada: User) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    for token, status in [("none", 401), (ada.token, 400), (ada.token, 400)]:
        connection.request("POST", f"{V0}/project", "{}", {"Authorization": token})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        assert not answer.will_close
    connection.close()
