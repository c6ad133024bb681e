"""Certificates of the tests' own authority, and nodes that serve with them."""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from fieldbrook.security.certificates import Authority
from tests.support.nodes import RunningNode
from tests.support.tools import LIMIT_S

NAMES = ("localhost", "127.0.0.1")


class Files(NamedTuple):
    """Where the files of a trial are."""

    authority: Authority
    ca: Path
    certificate: Path
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--tls-certificate", str(self.certificate), "--tls-key", str(self.key))

    def renew(self) -> None:
        """Other files in their place, as a renewal leaves them."""
        for path, content in zip(
            (self.certificate, self.key), self.authority.issue(NAMES), strict=True
        ):
            draft = path.with_suffix(".new")
            draft.touch(0o600)
            draft.write_bytes(content)
            draft.replace(path)


def make_files(folder: Path, days: int = 30) -> Files:
    folder.mkdir(exist_ok=True)
    authority = Authority()
    issued = authority.issue(NAMES, days)
    files = Files(authority, folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")
    files.ca.write_bytes(authority.certificate)
    files.certificate.write_bytes(issued.certificate)
    files.key.touch(0o600)
    files.key.write_bytes(issued.key)
    return files


class TlsNode(RunningNode):
    """A node whose HTTP is https."""

    files: Files

    def __init__(self, folder: Path, *flags: str) -> None:
        self.files = make_files(folder / "tls")
        super().__init__(folder / "node", *self.files.flags, *flags)

    def connection(self, port: int) -> http.client.HTTPConnection:
        context = ssl.create_default_context(cafile=self.files.ca)
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=LIMIT_S, context=context)

    def serves(self) -> str:
        """The serial number of the certificate that the event port shows."""
        return shown_at(self.http_port, self.files.ca)


def shown_at(port: int, ca: Path) -> str:
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection(("127.0.0.1", port), LIMIT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        shown = connection.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])
