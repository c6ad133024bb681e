"""Texts in settings: lists, addresses and MQTT topic filters."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

_FIRST_PRINTABLE = 0x20


def listed(text: str) -> tuple[str, ...]:
    """Return the words of a list separated by commas, in lower case."""
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def listed_as_is(value: str | None) -> list[str]:
    """Return the words of a list separated by commas, with unchanged case."""
    return [word.strip() for word in (value or "").split(",") if word.strip()]


def networks_in(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return the networks in a list of addresses and networks, separated by commas.

    Raises:
        ValueError: a word is neither an address nor a network.
    """
    return tuple(ipaddress.ip_network(word, strict=False) for word in listed(text))


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` into host and port; an IPv6 host must be in brackets.

    Raises:
        ValueError: the text is not of that form.
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed):
        raise ValueError("must be host:port, e.g. broker.example:1883 or [::1]:1883")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65_535):
        raise ValueError("must be host:port with a port of 1 to 65535")
    return host[1:-1] if bracketed else host, int(port)


def why_no_base_url(url: str) -> str:
    """Return why a text is not an address to which paths can be appended; "" if it is one."""
    form = "must be like https://node.example or https://example.com/node"
    if not (url.isascii() and url.isprintable()) or " " in url:
        return form
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return form
    if parts.scheme not in ("http", "https") or not host:
        return form
    if "@" in parts.netloc or parts.query or parts.fragment or url.endswith(("?", "#")):
        return f"{form}, without a user, query or fragment"
    return ""


def why_no_device_topic(topic_filter: str) -> str:
    """Return why a text is not a valid filter of `mqtt_device_topics`; "" if it is one.

    The topics of events stay closed, regardless of the filters.
    """
    levels = topic_filter.split("/")
    if any(ord(letter) < _FIRST_PRINTABLE for letter in topic_filter):
        return "a topic filter has no control characters"
    if levels[0].startswith("$"):
        return "topics that begin with $ are the server's own"
    if any(("+" in level or "#" in level) and len(level) > 1 for level in levels):
        return "+ and # stand for whole levels"
    if "#" in levels[:-1]:
        return "# can only be the last level"
    return ""
