"""Certificates of an authority for tests, and nodes that use them."""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from fieldbrook.security.certificates import Authority
from tests.support.nodes import RunningNode
from tests.support.tools import LIMIT_S

NAMES = ("localhost", "127.0.0.1")


class Files(NamedTuple):
    """The paths of the certificate files."""

    authority: Authority
    ca: Path
    certificate: Path
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--tls-certificate", str(self.certificate), "--tls-key", str(self.key))

    def renew(self) -> None:
        """Replace the files by new ones, like a renewal."""
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
    """A node whose HTTP ports use TLS."""

    files: Files

    def __init__(self, folder: Path, *flags: str) -> None:
        self.files = make_files(folder / "tls")
        super().__init__(folder / "node", *self.files.flags, *flags)

    def connection(self, port: int) -> http.client.HTTPConnection:
        context = ssl.create_default_context(cafile=self.files.ca)
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=LIMIT_S, context=context)

    def serves(self) -> str:
        """Return the serial number of the certificate at the event port."""
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


def key_changes(secret: bytes, count: int) -> tuple[bytes, bytes]:
    """Changes of the keys of the sender that has this secret (RFC 8446, 4.6.3).

    The suite is TLS_AES_256_GCM_SHA384, and nothing may have been sent with the secret.

    Returns:
        The records, and the secret after them.
    """
    made = []
    for _ in range(count):
        key, nonce = _derive(secret, b"key", 32), _derive(secret, b"iv", 12)
        inner = b"\x18\x00\x00\x01\x01\x16"  # KeyUpdate, of one byte, in a handshake record
        head = struct.pack(">BHH", 23, 0x0303, len(inner) + 16)
        made.append(head + AESGCM(key).encrypt(nonce, inner, head))
        secret = _derive(secret, b"traffic upd", SHA384.digest_size)
    return b"".join(made), secret


def _derive(secret: bytes, label: bytes, length: int) -> bytes:
    label = b"tls13 " + label
    info = struct.pack(">HB", length, len(label)) + label + b"\x00"
    return HKDFExpand(SHA384(), length, info).derive(secret)


class RawTls:
    """A client whose TLS 1.3 records are made one by one, and are sent by the caller."""

    def __init__(self, port: int, files: Files, log: Path) -> None:
        """Connect and shake hands. `log` is a file for the keys, which is removed."""
        context = ssl.create_default_context(cafile=files.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(log)
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT_S)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        while True:
            with suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                break
            self.socket.sendall(self._out.read())
            self._in.write(self.socket.recv(1 << 16))
        self.socket.sendall(self._out.read())
        suite = self._tls.cipher()
        assert suite is not None
        assert suite[0] == "TLS_AES_256_GCM_SHA384", "`key_updates` knows this suite only"
        (self._secret,) = [
            bytes.fromhex(line.split()[2])
            for line in log.read_text().splitlines()
            if line.startswith("CLIENT_TRAFFIC_SECRET_0")
        ]
        log.unlink()

    def records(self, data: bytes, size: int) -> bytes:
        """Return records with `size` bytes of data each."""
        for at in range(0, len(data), size):
            self._tls.write(data[at : at + size])
        return self._out.read()

    def key_updates(self, count: int) -> bytes:
        """Return changes of this client's keys, each of which requests a change of the server's
        keys (RFC 8446, 4.6.3). They must be the first records of the client."""
        made, self._secret = key_changes(self._secret, count)
        return made

    def is_disconnected(self) -> bool:
        """Read until the server ends the connection; return False if it is silent for 5 s."""
        self.socket.settimeout(5)
        with suppress(ConnectionError):
            try:
                while self.socket.recv(1 << 16):
                    pass
            except TimeoutError:
                return False
        return True
