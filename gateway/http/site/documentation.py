"""The documentation site at `/docs/` of the dashboard port.

`scripts/docs` builds the site and lists its files in `manifest.json`. A request is looked up in
that list, and a file is sent only when its content has the listed digest. Therefore paths that lead
out of the folder, symbolic links and other files in the folder are never served.

Source: docs/decisions/0039-documentation-site.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from pathlib import Path, PurePosixPath

import msgspec

import fieldbrook
from fieldbrook.gateway import replies
from fieldbrook.gateway.http.site.static_files import FILE_TYPES, HTML_TYPE, StaticHandler

log = logging.getLogger(__name__)

PACKAGED = Path(fieldbrook.__file__).parent / "site"
"""The folder into which `scripts/docs` and a wheel put the site."""

_NO_SITE = b"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fieldbrook: no documentation</title></head><body>
<h1>This node has no documentation site</h1>
<p>The site is built separately. In a clone of the repository, run <code>scripts/docs</code> and
reload this page; the node need not be restarted.</p>
</body></html>
"""
_NOT_FOUND = "404.html"
_TYPES = {
    **FILE_TYPES,
    **dict.fromkeys(
        (".c", ".cpp", ".h", ".ino", ".md", ".py", ".sh", ".sol", ".toml", ".ts", ".txt", ".wat"),
        replies.TEXT_TYPE,
    ),
}


class Manifest(msgspec.Struct, frozen=True):
    """The content of a built site: file names with their SHA-256 digests, and its policy."""

    files: dict[str, str]
    policy: str

    @classmethod
    def parse(cls, text: bytes) -> Manifest:
        """Read `manifest.json`.

        Shape: `{"files": {"<path>": "<sha256>"}, "scripts": ["sha256-<base64>"]}`.

        Raises:
            ValueError: the text has another shape, or names a file outside the site.
        """
        content = json.loads(text)
        files, scripts = content["files"], content["scripts"]
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or str(path) != name:
                raise ValueError(f"{name!r} is not a path inside the site")
        hashes = "".join(f" '{script}'" for script in scripts)
        # Diagrams have style elements of their own, so inline styles are allowed.
        policy = (
            f"default-src 'none'; script-src 'self'{hashes}; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return cls(files, policy)


class Site:
    """The files of a built site, read from its folder.

    The manifest is read again when it has changed, so a running node serves a new build.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp: tuple[int, int] | None = None
        self._manifest: Manifest | None = None

    def manifest(self) -> Manifest | None:
        """Return the manifest of the site; None if there is no site, or it cannot be read."""
        path = self._folder / "manifest.json"
        try:
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_ino
            if stamp != self._stamp:
                self._manifest, self._stamp = None, stamp
                self._manifest = Manifest.parse(path.read_bytes())
        except FileNotFoundError:
            self._manifest, self._stamp = None, None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("the documentation site cannot be read: %s: %s", path, error)
        return self._manifest

    def read(self, name: str, digest: str) -> bytes | None:
        """Return the content of a file; None if its digest is not the listed one."""
        try:
            content = (self._folder / name).read_bytes()
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == digest else None


class DocumentationHandler(StaticHandler):
    """Serves `/docs` and everything below it."""

    def initialize(self, site: Site) -> None:
        """Tornado's constructor hook."""
        self._site = site

    async def get(self, path: str | None = None) -> None:
        """Send a file of the site, a redirect to it, or a page with the reason why there is no
        site."""
        manifest = await asyncio.to_thread(self._site.manifest)
        if manifest is None:
            self.send(404, HTML_TYPE, _NO_SITE)
            return
        if path is None:
            self._redirect("/docs/")
            return
        name = f"{path}index.html" if not path or path.endswith("/") else path
        if name not in manifest.files and f"{name}/index.html" in manifest.files:
            self._redirect(f"/docs/{name}/")
            return
        await self._send_file(manifest, name)

    head = get

    async def _send_file(self, manifest: Manifest, name: str) -> None:
        status = 200 if name in manifest.files else 404
        if status == 404:
            name = _NOT_FOUND
        digest = manifest.files.get(name, "")
        content = await asyncio.to_thread(self._site.read, name, digest)
        if content is None:
            self.not_found()
            return
        self.set_header("Content-Security-Policy", manifest.policy)
        if status == 200:
            # A browser keeps the file and asks each time whether it has changed.
            self.set_header("Cache-Control", "no-cache")
            if self.is_unchanged(digest):
                return
        kind = _TYPES.get(PurePosixPath(name).suffix, "application/octet-stream")
        self.send(status, kind, content)

    def _redirect(self, path: str) -> None:
        query = f"?{self.request.query}" if self.request.query else ""
        self.set_header("Location", path + query)
        self.set_status(301)
        self.finish()
