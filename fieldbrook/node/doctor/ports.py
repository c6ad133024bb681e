"""Checks of the network: the ports, and the certificate of the ports with TLS."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from fieldbrook.core.errors import SettingsError
from fieldbrook.core.findings import Finding
from fieldbrook.core.settings import Settings
from fieldbrook.security import tls

_LOOK_S = 2.0


def ports(settings: Settings, *, running: bool) -> Iterator[Finding]:
    """Yield a finding for each port: it must be free, or served by the running node."""
    places = {"http_port": (settings.bind, settings.http_port)}
    if settings.event_port is not None:
        places["event_port"] = (settings.bind, settings.event_port)
    if settings.mqtt_broker is None:
        places["mqtt_port"] = (settings.bind, settings.mqtt_port)
    places["dashboard_port"] = (settings.dashboard_bind, settings.dashboard_port)
    for name, (address, port) in places.items():
        yield _port(name, address, port, running=running)


def _port(name: str, address: str, port: int, *, running: bool) -> Finding:
    facts = {"address": address, "port": port}
    if running:
        if _answers(address, port):
            return Finding(name, "ok", f"{port}, the node listens", facts)
        text = f"nothing listens on {port}, though a node runs: look at `fieldbrook status`"
        return Finding(name, "failed", f"{text}, and whether it has other settings", facts)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((address, port))
    except OSError as error:
        flag = f"--{name.replace('_', '-')}"
        if error.errno == errno.EADDRINUSE:
            text = f"another program uses {port} (`ss -ltnp` names it): end it, or choose {flag}"
        elif error.errno == errno.EACCES:
            text = f"this user may not use {port}: choose {flag} above 1023, or grant the right"
        else:
            text = f"{port} on {address}: {error.strerror}"
        return Finding(name, "failed", text, facts)
    return Finding(name, "ok", f"{port}, free", facts)


def _answers(address: str, port: int) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104
    try:
        socket.create_connection((host, port), _LOOK_S).close()
    except OSError:
        return False
    return True


def certificate(settings: Settings) -> Finding:
    """Check whether the TLS files of the settings match, and report when the certificate
    expires."""
    try:
        identity, warnings = tls.examine(settings)
    except SettingsError as error:
        return Finding("certificate", "failed", str(error))
    if identity is None:
        text = "none: devices send tokens in clear text; `fieldbrook cert` makes one to try"
        public = settings.bind not in ("127.0.0.1", "::1", "localhost")
        return Finding("certificate", "warning" if public else "ok", text)
    end = tls.expiry_of(identity)
    facts = {"file": str(identity.certificate), "expires": end.isoformat()}
    if warnings:
        return Finding("certificate", "warning", "; ".join(warnings), facts)
    return Finding("certificate", "ok", f"{identity.certificate}, until {end:%Y-%m-%d}", facts)
