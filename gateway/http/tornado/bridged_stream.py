"""The stream of a TLS connection that Tornado serves."""

from __future__ import annotations

from fieldbrook.gateway.http.tls.bridge import LocalEnd
from fieldbrook.gateway.http.tornado.request_stream import RequestStream, set_unsent_limit


class BridgedStream(RequestStream):
    """The stream that Tornado uses on the local end of a bridge."""

    def limit_unsent(self, limit_bytes: int) -> None:
        """See `RequestStream`."""
        end = self.socket
        if isinstance(end, LocalEnd) and end.outside and end.outside.transport:
            set_unsent_limit(end.outside.transport.get_extra_info("socket"), limit_bytes)

    def evict(self) -> None:
        """See `RequestStream`."""
        end = self.socket
        if isinstance(end, LocalEnd) and end.outside is not None:
            end.outside.abort()
        super().evict()

    def close_fd(self) -> None:
        """See `RequestStream`."""
        end = self.socket
        if isinstance(end, LocalEnd):
            end.outside = None
        super().close_fd()

    def set_nodelay(self, value: bool) -> None:
        """Do nothing: a local socket has no Nagle delay."""
