"""The base of the handlers that send files: `documentation.py` and `dashboard.py`."""

from __future__ import annotations

from tornado import web

from fieldbrook.gateway import replies

HTML_TYPE = "text/html; charset=utf-8"
FILE_TYPES = {
    ".html": HTML_TYPE,
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".wat": replies.TEXT_TYPE,
    "": replies.TEXT_TYPE,
}
"""Content types by the suffix of a file's name."""


@web.stream_request_body
class StaticHandler(web.RequestHandler):
    """Answers GET and HEAD with security headers; bodies are dropped, errors are plain text."""

    def set_default_headers(self) -> None:
        """Called by Tornado for every answer, errors included."""
        self.clear_header("Server")
        tls, host = self.request.protocol == "https", self.request.host_name
        for name, value in replies.security_headers(tls=tls, host=host).items():
            self.set_header(name, value)

    def data_received(self, chunk: bytes) -> None:
        """Called by Tornado for each part of a body, which is dropped."""

    def compute_etag(self) -> str | None:
        """Return None, because the handler that sends a file sets its tag."""
        return None

    def send(self, status: int, kind: str, body: bytes) -> None:
        """Send a whole answer."""
        self.set_status(status)
        self.set_header("Content-Type", kind)
        self.finish(body)

    def is_unchanged(self, tag: str) -> bool:
        """Set the header `ETag`; if the client has this content, answer 304 and return True."""
        self.set_header("ETag", f'"{tag}"')
        if not self.check_etag_header():
            return False
        self.set_status(304)
        self.finish()
        return True

    def not_found(self) -> None:
        """Answer 404 with plain text."""
        self.send(404, replies.TEXT_TYPE, b"404 page not found\n")

    def write_error(self, status_code: int, **_: object) -> None:
        """Answer other methods and malformed paths with plain text."""
        if status_code == 405:
            self.set_header("Allow", "GET, HEAD")
        self.set_header("Content-Type", replies.TEXT_TYPE)
        self.finish(f"{self._reason}\n")
