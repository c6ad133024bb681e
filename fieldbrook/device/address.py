"""The address of a node, and the check of its certificate."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from fieldbrook.device.errors import DeviceError

_PORTS = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883}
_EXAMPLE = "give one like https://node.example:8888 or mqtts://node.example:8883"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a node. `path` is a prefix of a proxy, for HTTP only."""

    host: str
    port: int
    path: str = ""
    mqtt: bool = False
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        scheme = ("mqtt" if self.mqtt else "http") + ("s" if self.tls else "")
        return f"{scheme}://{self.host}:{self.port}{self.path}"


def read_address(
    url: str, ca: str | None = None, certificate: str | None = None, key: str | None = None
) -> Address:
    """Read the URL of a node: `http://`, `https://`, `mqtt://` or `mqtts://`.

    Args:
        url: the URL; the default ports are 80, 443, 1883 and 8883.
        ca: a PEM file of the certificate authorities to trust; None for those of the system.
        certificate: a PEM file with a certificate of the device, if the node asks for one.
        key: the PEM file of the certificate's key, unless `certificate` contains it.

    Raises:
        DeviceError: the URL is not one of these, or a file cannot be used.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
        host = parts.hostname or ""
    except (ValueError, KeyError):
        host = ""
    if not host or parts.username or parts.query or parts.fragment:
        raise DeviceError(f"{url!r} is not the address of a node: {_EXAMPLE}")
    is_mqtt, path = parts.scheme.startswith("mqtt"), parts.path.rstrip("/")
    if is_mqtt and path:
        raise DeviceError(f"{url!r}: an address of MQTT has no path")
    tls = _tls(ca, certificate, key) if parts.scheme.endswith("s") else None
    return Address(host=host, port=port, path=path, mqtt=is_mqtt, tls=tls)


def _tls(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise DeviceError(f"cannot use the certificates: {reason_of(error)}") from None
    return context


def reason_of(error: Exception) -> str:
    """Return a short text for a network error."""
    for name in ("verify_message", "reason", "strerror"):
        text = getattr(error, name, None)
        if isinstance(text, str) and text:
            return text
    return str(error) or type(error).__name__
