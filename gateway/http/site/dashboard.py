"""The dashboard: its page and the files of the page, on the dashboard port.

All files are read into memory when the node starts, so the path of a request never reaches the
disk. They are served below `/ui/<digest of all of them>/`, where a browser caches them for a year.
The page itself, `index.html`, is requested each time. The page names its files as `"/ui/app.js"`,
and the node inserts the digest. Modules import each other by relative addresses. The modules that
every page needs are served as one file (`first_module.py`). Scripts that are not modules, and the
style sheets that the page names, are inserted into the page, because a browser needs them before it
draws anything.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import logging
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self

from tornado import httputil, routing

import fieldbrook
from fieldbrook.core.errors import SettingsError
from fieldbrook.gateway import replies
from fieldbrook.gateway.http.site.first_module import join
from fieldbrook.gateway.http.site.static_files import FILE_TYPES, StaticHandler
from fieldbrook.gateway.management.prefixes import PREFIXES

log = logging.getLogger(__name__)

PACKAGED = Path(fieldbrook.__file__).parent / "dashboard"
"""The folder of the files in a clone and in a wheel."""

PAGES = ("/", "/setup", "/signin", "/projects", "/node")
"""The addresses of pages, all answered with `index.html`."""

PAGE_FOLDERS = ("/projects/", "/node/")
"""Every address that begins with one of these is also the address of a page."""

_POLICY = (
    "default-src 'none'; script-src 'self'{}; style-src 'self'{}; img-src 'self' data:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_OTHER_HOST = (
    b"the dashboard has another name: use localhost or an address of this node, or add the name "
    b"to the setting dashboard_hosts\n"
)
_STREAMS = frozenset(f"{prefix}/stream" for prefix in PREFIXES)
_PREFIX = "/ui/"
_WITH_MORE = "|".join(f"{re.escape(prefix)}.*" for prefix in (*PAGE_FOLDERS, _PREFIX))
DASHBOARD_PATHS = f"(?:{'|'.join(map(re.escape, PAGES))}|{_WITH_MORE})"
"""Pattern of every path that `DashboardHandler` serves."""

_PAGE = "index.html"
_ENTRY = "app.js"
# Elements of the page, and what they become in the page that is sent.
_SCRIPT = re.compile(rb'<script src="/ui/([\w/.]+)"></script>')
_SHEET = re.compile(rb'<link rel="stylesheet" href="/ui/([\w/.]+)">')
_DIGITS = 12
_SUFFIXES = frozenset({".html", ".js", ".css", ".svg", ".wat", ""})  # the same as in setup.cfg
_KEPT = "public, max-age=31536000, immutable"
_SIZE_LIMIT = 8 << 20


class ServedFile:
    """A file to be sent: its type, its compressed bytes, and the digest of the bytes.

    The file is compressed at its first use, because compressing all files would take longer than
    the rest of a start of the gateway. Every browser accepts gzip, so the uncompressed bytes are
    not kept afterwards.
    """

    __slots__ = ("_gzipped", "_plain", "digest", "kind")

    def __init__(self, kind: str, body: bytes) -> None:
        self.kind = kind
        self.digest = hashlib.sha256(body).hexdigest()
        self._plain = body
        self._gzipped = b""

    @property
    def gzipped(self) -> bytes:
        """The compressed bytes of the file."""
        if not self._gzipped:
            self._gzipped = gzip.compress(self._plain, 9, mtime=0)
            self._plain = b""
        return self._gzipped

    @property
    def body(self) -> bytes:
        """The bytes of the file."""
        return gzip.decompress(self._gzipped) if self._gzipped else self._plain


class Dashboard:
    """The page and its files, in memory."""

    def __init__(self, folder: Path, *, reread: bool = False) -> None:
        """Read all files of a folder that a browser can use.

        Args:
            folder: the folder with `index.html`.
            reread: whether the folder is read again for each page, for developers.

        Raises:
            SettingsError: the folder cannot be read, or holds more than 8 MiB of files.
        """
        self._folder = folder
        self._reread = reread
        self._site = _read(folder)

    @classmethod
    def of(cls, folder: Path | None) -> Self:
        """Return the dashboard in a developer's folder, which is read again for each page; with
        None, the dashboard of the package."""
        return cls(PACKAGED) if folder is None else cls(folder, reread=True)

    def page(self) -> ServedFile:
        """Return the page, `index.html`."""
        if self._reread:
            try:
                self._site = _read(self._folder)
            except SettingsError as error:
                log.warning("%s", error)
        return self._site.page

    def file(self, path: str) -> ServedFile | None:
        """Return the file at the path of a request; None if there is none."""
        return self._site.files.get(path)

    @property
    def policy(self) -> str:
        """Return the value of the header `Content-Security-Policy`, which restricts the page."""
        return self._site.policy


def is_page(path: str) -> bool:
    """Return whether the path of a request is the address of a page."""
    return path in PAGES or path.startswith(PAGE_FOLDERS)


class _Site(NamedTuple):
    """The page, its policy, and the files by the path of their requests."""

    page: ServedFile
    policy: str
    files: dict[str, ServedFile]


def _read(folder: Path) -> _Site:
    try:
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
        names = sorted(name for name in names if is_served(folder, name))
        if sum((folder / name).stat().st_size for name in names) > _SIZE_LIMIT:
            raise SettingsError(reason=f"the dashboard in {folder} is larger than 8 MiB")
        contents = {name: (folder / name).read_bytes() for name in names}
        page = contents.pop(_PAGE)
    except (OSError, KeyError) as error:
        raise SettingsError(reason=f"the dashboard in {folder} cannot be read: {error}") from error
    page, scripts = _with_contents(page, contents, _SCRIPT, b"script")
    page, sheets = _with_contents(page, contents, _SHEET, b"style")
    policy = _POLICY.format(scripts, sheets)
    modules = {name: contents.pop(name) for name in list(contents) if name.endswith(".js")}
    contents |= _joined(modules) if _ENTRY in modules else modules
    every = hashlib.sha256(page)
    for name, body in contents.items():
        every.update(f"{name} {len(body)} ".encode() + body)
    prefix = f"{_PREFIX}{every.hexdigest()[:_DIGITS]}/"
    page = page.replace(b'"/ui/', f'"{prefix}'.encode())
    files = {prefix + name: _served(name, body) for name, body in contents.items()}
    return _Site(_served(_PAGE, page), policy, files)


def _with_contents(
    page: bytes, contents: dict[str, bytes], element: re.Pattern[bytes], tag: bytes
) -> tuple[bytes, str]:
    """Move the files that elements of the page name into the page.

    Returns:
        The page, and the digests of these files for its policy.
    """
    digests = ""

    def with_content(match: re.Match[bytes]) -> bytes:
        nonlocal digests
        name = match[1].decode()
        content = contents.pop(name, None)
        if content is None:
            return match[0]
        if b"</" in content:
            raise SettingsError(reason=f"the dashboard's file {name} has '</', which may end it")
        digests += f" 'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"
        return b"<%s>%s</%s>" % (tag, content, tag)

    return element.sub(with_content, page), digests


def _joined(modules: dict[str, bytes]) -> dict[str, bytes]:
    try:
        texts = {name: body.decode() for name, body in modules.items()}
    except UnicodeDecodeError as error:
        raise SettingsError(reason=f"a module of the dashboard is not UTF-8: {error}") from error
    return {name: text.encode() for name, text in join(texts, _ENTRY).items()}


def is_served(folder: Path, name: str) -> bool:
    """Return whether a file is for browsers; hidden files, type declarations and build files are
    not."""
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") or part == "node_modules" for part in path.parts)
    return not hidden and path.suffix in _SUFFIXES and (folder / name).is_file()


def _served(name: str, body: bytes) -> ServedFile:
    return ServedFile(FILE_TYPES[PurePosixPath(name).suffix], body)


class FromOtherHost(routing.Matcher):
    """Matches requests for the dashboard's stream whose `Host` may not be used for the dashboard.

    Only the dashboard port refuses them. Programs use the stream at other ports, with any host
    name.
    """

    def __init__(self, is_dashboard_host: Callable[[str], bool]) -> None:
        self._is_dashboard_host = is_dashboard_host

    def match(self, request: httputil.HTTPServerRequest) -> dict[str, Any] | None:
        """See `routing.Matcher`."""
        # Routes are matched with the decoded path.
        path = urllib.parse.unquote(request.path, errors="replace")
        if path not in _STREAMS or self._is_dashboard_host(request.headers.get("Host", "")):
            return None
        return {}


class OtherHostHandler(StaticHandler):
    """Answers 421 if `Host` may not be used for the dashboard."""

    def prepare(self) -> None:
        """Called by Tornado before the method."""
        self.send(421, replies.TEXT_TYPE, _OTHER_HOST)


class DashboardHandler(StaticHandler):
    """Serves the pages and their files."""

    def initialize(self, dashboard: Dashboard, is_dashboard_host: Callable[[str], bool]) -> None:
        """Tornado's constructor hook."""
        self._dashboard = dashboard
        self._is_dashboard_host = is_dashboard_host

    def prepare(self) -> None:
        """Answer 421 if `Host` may not be used for the dashboard."""
        if not self._is_dashboard_host(self.request.headers.get("Host", "")):
            self.send(421, replies.TEXT_TYPE, _OTHER_HOST)

    def set_default_headers(self) -> None:
        """Called by Tornado for every answer, errors included."""
        super().set_default_headers()
        self.set_header("Cross-Origin-Opener-Policy", "same-origin")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")

    def get(self) -> None:
        """Send a page or a file."""
        path = self.request.path
        if is_page(path):
            self._send_file(self._dashboard.page(), "no-cache")
            return
        file = self._dashboard.file(path)
        if file is None:
            self.not_found()
        else:
            self._send_file(file, _KEPT)

    head = get

    def _send_file(self, file: ServedFile, caching: str) -> None:
        gzipped = accepts_gzip(self.request.headers.get("Accept-Encoding", ""))
        self.set_header("Content-Security-Policy", self._dashboard.policy)
        self.set_header("Cache-Control", caching)
        self.set_header("Vary", "Accept-Encoding")
        if self.is_unchanged(f"{file.digest}-gzip" if gzipped else file.digest):
            return
        if gzipped:
            self.set_header("Content-Encoding", "gzip")
        self.send(200, file.kind, file.gzipped if gzipped else file.body)


def accepts_gzip(header: str) -> bool:
    """Return whether a client accepts gzip, by its header `Accept-Encoding` (RFC 9110, 12.5.3)."""
    for part in header.split(","):
        name, _, parameters = part.partition(";")
        if name.strip().lower() in ("gzip", "x-gzip"):
            weight = parameters.strip().lower().removeprefix("q=")
            return weight.strip("0.") != "" or weight == ""
    return False
