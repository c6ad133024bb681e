"""Finds the address of a client behind a reverse proxy (the setting `trusted_proxies`)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from fieldbrook.core.settings.values import networks_in
from fieldbrook.gateway.listening.listener import peer_of


class Proxies:
    """The reverse proxies whose `X-Forwarded-For` is trusted."""

    def __init__(self, listed: str = "") -> None:
        """Parse the value of the setting: addresses and networks, separated by commas."""
        self._networks = networks_in(listed)

    def client(self, peer: str, forwarded: Sequence[str]) -> str:
        """Return the address of the client.

        Args:
            peer: the address of the connection.
            forwarded: the header fields `X-Forwarded-For`, to which each proxy appends the address
                of its connection.

        Returns:
            The last address that is not a proxy's; the addresses before it may be forged. It is
            `peer` if the peer is no proxy, or if the header has no address of a client.
        """
        if not self.includes(peer):
            return peer
        for word in reversed(",".join(forwarded).split(",")):
            address = word.strip()
            try:
                ipaddress.ip_address(address)
            except ValueError:
                break
            if not self.includes(address):
                return address
        return peer

    def holder(self, peer: str) -> str:
        """Return the holder of a connection's share (`peer_of`); "" for a proxy, which forwards
        requests of many clients."""
        return "" if self.includes(peer) else peer_of(peer)

    def includes(self, address: str) -> bool:
        """Return whether an address belongs to a proxy."""
        if not self._networks:
            return False
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        plain = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(plain in network for network in self._networks)
