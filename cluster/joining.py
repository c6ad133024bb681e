"""Joining a cluster: the steps of the new host, and the steps of a host of the cluster.

The new host first requests the certificate of the cluster's authority. The join token contains the
digest of this certificate, so the host detects a wrong cluster before it sends the token. Then it
connects again and checks the certificate of the other side. It receives a certificate of its own,
the cluster's keys and the list of hosts.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook import __version__
from fieldbrook.cluster import hosts_file
from fieldbrook.cluster.identity import (
    CERTIFICATE,
    KEY,
    SHARED_FILES,
    Identity,
    digest,
    read_token,
)
from fieldbrook.cluster.links.lines import LINE_BYTES, LineError, receive, send
from fieldbrook.core.cluster.membership import QUORUM_HOSTS, Host, Membership
from fieldbrook.core.errors import SettingsError

log = logging.getLogger(__name__)

SHARED_SECRETS = ("token.key", "operator.key")
_LIMIT_S = 10.0
FORMED_S = 1.0
"""How long a host delays its answer to a host that waits for the cluster to form. The waiting host
notices a request to stop only after this time."""
_RETRY_S = 0.2
_CLOSE_S = 1.0


# ---------------------------------------------------------------- the new host


def join(data: Path, address: tuple[str, int], token: str, host: Host) -> Membership:
    """Join a cluster with an empty data folder, and return the cluster's list of hosts.

    Args:
        data: the data folder.
        address: the address of any host of the cluster.
        token: a join token of the cluster.
        host: this host.

    Raises:
        SettingsError: the cluster refuses this host or cannot be reached. Then the data folder
            is unchanged.
    """
    return asyncio.run(_join(data, address, token, host))


async def _join(data: Path, address: tuple[str, int], token: str, host: Host) -> Membership:
    wanted = read_token(token)
    first = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    first.check_hostname, first.verify_mode = False, ssl.CERT_NONE
    found = await ask(address, first, {"op": "authority"})
    authority = str(found.get("authority", "")).encode()
    if digest(authority) != wanted.authority:
        raise SettingsError(
            reason=f"the host at {address[0]}:{address[1]} does not belong to the cluster of the "
            "join token"
        )
    trusting = ssl.create_default_context(cadata=authority.decode())
    question = {
        "op": "join",
        "token": token,
        "version": __version__,
        "host": msgspec.to_builtins(host),
    }
    answer = await ask(address, trusting, question)
    if "refused" in answer:
        raise SettingsError(reason=f"the cluster refuses this host: {answer['refused']}")
    identity = Identity(data)
    for name, content in answer["files"].items():
        if name not in (*SHARED_FILES, CERTIFICATE, KEY):
            raise SettingsError(reason=f"the cluster has sent an unknown file {name!r}")
        identity.store_received(name, base64.b64decode(content))
    for name in SHARED_SECRETS:
        if name in answer["secrets"]:
            path = data / "secrets" / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(base64.b64decode(answer["secrets"][name]))
    joined = msgspec.convert(answer["membership"], Membership)
    joined = msgspec.structs.replace(joined, me=host.name)
    hosts_file.save(data, joined)
    return joined


def await_forming(data: Path, known: Membership, stops: Callable[[], bool]) -> Membership:
    """Wait until the cluster has enough hosts, and return its list of hosts.

    Args:
        data: the data folder.
        known: the list of hosts so far.
        stops: returns whether to stop waiting; then the list so far is returned.
    """
    return asyncio.run(_await_forming(data, known, stops))


async def _await_forming(data: Path, known: Membership, stops: Callable[[], bool]) -> Membership:
    context = Identity(data).client_context()
    told, failed = 0, ""
    while not known.formed and not stops():
        if len(known.hosts) != told:
            told = len(known.hosts)
            wanted = QUORUM_HOSTS
            log.info("%d of %d hosts have joined; this host waits for the others", told, wanted)
        founder = known.hosts[0]
        question = {"op": "hosts", "more_than": len(known.hosts)}
        try:
            answer = await ask((founder.address, founder.port), context, question)
        except SettingsError as error:
            if str(error) != failed:
                failed = str(error)
                log.info("%s", failed)
            await asyncio.sleep(_RETRY_S)
            continue
        known = msgspec.structs.replace(
            msgspec.convert(answer["membership"], Membership), me=known.me
        )
        hosts_file.save(data, known)
    return known


async def ask(
    address: tuple[str, int], context: ssl.SSLContext, question: dict[str, Any]
) -> dict[str, Any]:
    """Send a request to a host, and return its answer.

    Raises:
        SettingsError: the host cannot be reached, or does not answer.
    """
    host, port = address
    try:
        async with asyncio.timeout(_LIMIT_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, limit=LINE_BYTES
            )
        try:
            send(writer, question)
            return await receive(reader, _LIMIT_S)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(_CLOSE_S):
                    await writer.wait_closed()
    except (OSError, LineError) as error:
        reason = str(error) or type(error).__name__
        raise SettingsError(reason=f"host {host}:{port} does not answer: {reason}") from error


# ---------------------------------------------------------------- the cluster


def admit(
    data: Path, known: Membership, question: dict[str, Any]
) -> tuple[dict[str, Any], Membership]:
    """Answer the request of a host that wants to join.

    Args:
        data: the data folder of this host.
        known: the list of hosts.
        question: the request of the new host.

    Returns:
        The answer, and the new list of hosts; after a refusal the same list.
    """
    identity = Identity(data)
    try:
        token, host = str(question["token"]), msgspec.convert(question["host"], Host)
        version = str(question["version"])
    except (KeyError, msgspec.ValidationError) as error:
        return {"refused": f"its request is malformed: {error}"}, known
    refused = identity.why_not(token) or known.why_not(host)
    if not refused and version != __version__:
        refused = f"it runs fieldbrook {version}, but the cluster runs {__version__}"
    if refused:
        return {"refused": refused}, known
    joined = known.joined(host)
    issued = identity.issue(host.name, host.address)
    files = {**identity.shared(), CERTIFICATE: issued.certificate, KEY: issued.key}
    kept = {
        name: (data / "secrets" / name).read_bytes()
        for name in SHARED_SECRETS
        if (data / "secrets" / name).exists()
    }
    return {
        "files": _encoded(files),
        "secrets": _encoded(kept),
        "membership": msgspec.to_builtins(joined),
    }, joined


def _encoded(files: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in files.items()}
