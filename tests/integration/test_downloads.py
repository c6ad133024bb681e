"""Downloads and long answers that their clients do not read."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from fieldbrook.core.clock import now_ms
from fieldbrook.gateway.management import base_handler, management_handler, responses
from fieldbrook.gateway.management.framework.workers import ANSWERS_BYTES, DOWNLOADS_OF_ONE
from tests.support.applets import TALLY
from tests.support.management import V0, Server, User
from tests.support.nodes import PREFIX, RunningNode, StartNode, parts, until
from tests.support.tools import LIMIT_S, own_memory

_SIZE = 9 << 20


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ask(port: int, request: str, token: str, body: bytes = b"") -> socket.socket:
    """Send a request on a connection with small buffers."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    connection.settimeout(LIMIT_S)
    connection.connect(("127.0.0.1", port))
    head = f"{request} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def status(connection: socket.socket) -> int:
    return int(connection.recv(100).split()[1])


@pytest.mark.thorough
def test_unread_downloads_of_an_account_are_limited_and_take_little_memory(
    start_module_node: StartNode, opened: ExitStack
) -> None:
    node: RunningNode = start_module_node()
    module = TALLY + b"\n;; " + os.urandom(_SIZE // 2).hex().encode()
    node.create_project("mine")
    path = f"/resource/data/{node.deploy('mine', module)['resourceID']}"
    administrator = node.token
    node.call("POST", "/register/admin", {"username": "dev", "password": "dev-password-1"})
    login = {"username": "dev", "password": "dev-password-1"}
    node.token = node.call("PUT", "/login", login, token="").json["token"]
    node.create_project("theirs")
    theirs = f"/resource/data/{node.deploy('theirs', module)['resourceID']}"
    gateway = parts(node)["fb-http:0"]
    before = own_memory(gateway)
    answers: Counter[int] = Counter()
    for _ in range(4 * DOWNLOADS_OF_ONE):
        connection = ask(node.http_port, f"GET {PREFIX}{theirs}", node.token)
        opened.callback(connection.close)
        answers[status(connection)] += 1
    assert answers == {200: DOWNLOADS_OF_ONE, 429: 3 * DOWNLOADS_OF_ONE}
    refused = node.call("POST", "/project/x/theirs/export", {"data": False})
    assert refused.status == 429
    assert f"{DOWNLOADS_OF_ONE} downloads of the account" in refused.json["desc"]
    assert list((node.data / "uploads").iterdir()) == []
    assert own_memory(gateway) - before < _SIZE
    node.token = administrator
    assert node.call("GET", path).body == module
    assert node.call("GET", "/liveness").status == 200


@pytest.mark.thorough
def test_unread_answers_of_an_account_are_limited_and_free_their_memory(
    start_module_node: StartNode, opened: ExitStack
) -> None:
    node: RunningNode = start_module_node()
    administrator = node.token
    node.call("POST", "/register/admin", {"username": "eve", "password": "eve-password-1"})
    login = {"username": "eve", "password": "eve-password-1"}
    node.token = node.call("PUT", "/login", login, token="").json["token"]
    node.create_project("long")
    applet_id = node.deploy("long", TALLY)["appletID"]
    path = f"/kv/long?appletID={applet_id}&key=a"
    # In an answer each of these characters takes six.
    assert node.call("PUT", path, {"value": "<" * 1_000_000}).status == 200
    size = len(node.call("GET", path).body)
    assert size > 6_000_000
    gateway = parts(node)["fb-http:0"]
    before = own_memory(gateway)
    most = ANSWERS_BYTES // 2 // size
    answers: Counter[int] = Counter()
    for _ in range(2 * most):
        connection = ask(node.http_port, f"GET {PREFIX}{path}", node.token)
        opened.callback(connection.close)
        answers[status(connection)] += 1
    assert answers[200] <= most + 1
    assert answers[429] >= most - 1
    assert own_memory(gateway) - before < ANSWERS_BYTES
    refused = node.call("GET", path)
    assert refused.status == 429
    assert "long answers wait for their readers" in refused.json["desc"]
    assert node.call("GET", path, token=administrator).status == 200
    assert node.call("GET", "/project").status == 200, "short answers are not limited"
    opened.close()
    until(lambda: node.call("GET", path).status == 200, "the clients are gone")


def test_a_download_that_is_not_read_ends_and_frees_its_place_and_its_file(
    ada: User, server: Server, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "_DOWNLOAD_PIECE_LIMIT_S", 0.05)
    ada.project()
    ada.applet()
    (module,) = (server.folder / "modules").glob("*.wasm")
    module.write_bytes(os.urandom(_SIZE))
    for _ in range(DOWNLOADS_OF_ONE):
        path = f"{V0}/project/x/NftMinter/export"
        connection = ask(server.port, f"POST {path}", ada.token, b'{"data":false}')
        opened.callback(connection.close)
        assert status(connection) == 200
    uploads = str(server.folder / "uploads")
    until(lambda: not open_files(uploads), "the exported files are closed")

    monkeypatch.undo()  # this client reads, on a machine that may be slow

    def has_place() -> bool:
        return ada("POST", "/project/x/NftMinter/export", {"data": False}).status == 200

    until(has_place, "a place is free")


def test_a_download_ends_when_the_login_of_its_caller_does(
    ada: User, server: Server, opened: ExitStack
) -> None:
    ada.project()
    ada.applet()
    (module,) = (server.folder / "modules").glob("*.wasm")
    module.write_bytes(os.urandom(_SIZE))
    path = f"{V0}/project/x/NftMinter/export"
    connection = ask(server.port, f"POST {path}", ada.token, b'{"data":false}')
    opened.callback(connection.close)
    assert status(connection) == 200
    server.writer.end_logins(ada.account.account_id)
    received = 0
    with suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            received += len(data)
    assert received < _SIZE


def test_a_download_ends_when_the_token_of_its_caller_expires(
    ada: User, server: Server, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada.project()
    ada.applet()
    (module,) = (server.folder / "modules").glob("*.wasm")
    module.write_bytes(os.urandom(_SIZE))
    monkeypatch.setattr(management_handler, "_TRUSTED_MS", 0)
    path = f"{V0}/project/x/NftMinter/export"
    connection = ask(server.port, f"POST {path}", ada.token, b'{"data":false}')
    opened.callback(connection.close)
    assert status(connection) == 200
    a_year_later = now_ms() + 365 * 86_400_000
    monkeypatch.setattr(base_handler, "now_ms", lambda: a_year_later)
    received = 0
    with suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            received += len(data)
    assert received < _SIZE


def open_files(folder: str) -> list[str]:
    """Return the files of a folder that this process has open, including removed ones."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            target = str(each.readlink())
        except OSError:
            continue  # closed in the meantime
        if target.startswith(folder):
            found.append(target)
    return found
