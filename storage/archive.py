"""Archives: a compressed tar whose first member says what is in it, with a SHA-256 for each.

So a file that is cut short, damaged, or something else altogether is told from an archive
before anything of it counts. Whoever holds one holds what is in it: it is made 0600.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import secrets
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any

import msgspec

from fieldbrook import __version__, clock
from fieldbrook.durable import sync_folder
from fieldbrook.errors import StoreError

MANIFEST = "manifest.json"
FORMAT = 1
_MANIFEST_LIMIT = 64 << 20
_PIECE = 1 << 20
_LEVEL = 1  # four times as fast as the default, and a tenth larger


class ArchivedFile(msgspec.Struct, frozen=True):
    """What the manifest says of a file; `size` in bytes."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is in an archive. `kind` tells a backup from an exported project; `about` is the
    kind's own."""

    kind: str
    format: int
    made_by: str
    made_at: str
    about: dict[str, Any] = {}
    files: dict[str, ArchivedFile]


class _Program(msgspec.Struct, frozen=True):
    kind: str
    format: int
    made_by: str


def pack(folder: Path, target: Path, kind: str, about: dict[str, Any]) -> Manifest:
    """Make an archive of all regular files below a folder.

    Args:
        target: the file to make; there must be none. It is there whole or not at all.

    Raises:
        StoreError: there is such a file, or it cannot be written.
    """
    refuse_existing(target)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): _looked_at(path) for path in paths}
        manifest = Manifest(
            kind=kind,
            format=FORMAT,
            made_by=f"fieldbrook {__version__}",
            made_at=clock.rfc3339(clock.now_ms()),
            about=about,
            files=files,
        )
        try:
            _write(draft, folder, manifest)
            refuse_existing(target)
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(reason=f"{target}: {error.strerror or error}") from error
    return manifest


def refuse_existing(target: Path) -> None:
    """Refuse to write over a file.

    Raises:
        StoreError: there is something of that name.
    """
    if target.exists() or target.is_symlink():
        raise StoreError(reason=f"{target} exists already; nothing is written over")


def unpack(archive: Path, folder: Path, kind: str, limit_bytes: int = 1 << 62) -> Manifest:
    """Write the files of an archive below a folder, which is to be empty.

    Args:
        limit_bytes: what its files may have together, for one that comes from anybody.

    Raises:
        StoreError: no archive of this kind, one of a newer format, cut short or damaged. The
            folder may hold some of its files then.
    """
    with _reading(archive) as tar:
        members = iter(tar)
        manifest = _read_manifest(archive, tar, next(members, None))
        if manifest.kind != kind:
            what = f"holds {_named(manifest.kind)}, not {_named(kind)}"
            raise StoreError(reason=f"{archive}: the archive {what}")
        size = sum(file.size for file in manifest.files.values())
        if size > limit_bytes:
            raise StoreError(reason=f"{archive}: {size} bytes, the limit is {limit_bytes}")
        wanted = dict(manifest.files)
        for member in members:
            expected = wanted.pop(member.name, None)
            content = tar.extractfile(member) if member.isreg() else None
            if expected is None or content is None or member.size != expected.size:
                raise _damaged(archive, f"{member.name!r} does not belong into it")
            _extract(archive, content, folder / _checked(archive, member.name), expected)
        if wanted:
            raise _damaged(archive, f"{len(wanted)} files are missing, {min(wanted)} among them")
    return manifest


def read_manifest(archive: Path) -> Manifest:
    """What an archive says is in it; the rest is not looked at.

    Raises:
        StoreError: as `unpack`.
    """
    with _reading(archive) as tar:
        return _read_manifest(archive, tar, tar.next())


@contextmanager
def _reading(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        # As a stream: the order is part of the form, and nothing is read twice.
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            yield tar
            while stream.read(_PIECE):  # its end has a sum over all of it
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(archive, str(error) or "it ends too early") from error
    except OSError as error:
        raise StoreError(reason=f"{archive}: {error.strerror or error}") from error


def _read_manifest(archive: Path, tar: tarfile.TarFile, first: tarfile.TarInfo | None) -> Manifest:
    content = None
    if first is not None and first.name == MANIFEST and first.size <= _MANIFEST_LIMIT:
        content = tar.extractfile(first)
    if content is None:
        raise StoreError(reason=f"{archive}: this is no archive of fieldbrook")
    data = content.read()
    try:
        made = msgspec.json.decode(data, type=_Program)
        if made.format > FORMAT:
            raise StoreError(
                reason=f"{archive}: the archive has format {made.format} and was made by "
                f"{made.made_by}; fieldbrook {__version__} reads up to format {FORMAT}"
            )
        return msgspec.json.decode(data, type=Manifest)
    except (ValueError, RecursionError) as error:  # no JSON, not even text, or another one
        raise _damaged(archive, f"{MANIFEST}: {error}") from error


def _damaged(archive: Path, what: str) -> StoreError:
    return StoreError(
        reason=f"{archive}: no archive of fieldbrook, or one that is cut short or damaged ({what})"
    )


def _named(kind: str) -> str:
    return {"backup": "a backup of a node", "project": "an exported project"}.get(kind, repr(kind))


def _checked(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name:
        raise _damaged(archive, f"{name!r} is no name of a file in it")
    return path


def _extract(archive: Path, content: IO[bytes], path: Path, expected: ArchivedFile) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while piece := content.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if size != expected.size or digest.hexdigest() != expected.sha256:
        raise _damaged(archive, f"{path.name} is not what the manifest says")


def _looked_at(path: Path) -> ArchivedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ArchivedFile(path.stat().st_size, digest)


def _write(draft: Path, folder: Path, manifest: Manifest) -> None:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL) as tar:
            data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            tar.addfile(_member(MANIFEST, len(data)), io.BytesIO(data))
            for name, entry in manifest.files.items():
                with (folder / name).open("rb") as content:
                    tar.addfile(_member(name, entry.size), content)
        file.flush()
        os.fsync(file.fileno())


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    member.mtime = clock.now_ms() // 1000
    return member
