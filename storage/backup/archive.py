"""Archives: a compressed tar whose first member is a manifest with the SHA-256 of each file.

With the manifest, a truncated, damaged or foreign file is recognised before its content is
used. An archive is not encrypted, so it is created with mode 0600.

An archive may come from an untrusted source. Every size in it is compared with a limit before
memory or disk is used for it: the manifest has a limit of its own, and only the files that the
manifest lists are accepted, with the sizes that it gives.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import secrets
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from fieldbrook import __version__
from fieldbrook.core import clock
from fieldbrook.core.errors import StoreError, UploadFileDiskLimitError
from fieldbrook.storage.backup.tar import Member, TarError, TarReader
from fieldbrook.system.fsync import sync_folder

MANIFEST = "manifest.json"
FORMAT = 1
MANIFEST_LIMIT_BYTES = 32 << 20  # for a backup: about two hundred thousand files
_NAME_SHOWN = 100
# `shutil.rmtree` is recursive: it could not remove a very deep tree.
_DEPTH_LIMIT = 64
# An archive may have this many folders per file. A short path may contain 64 folders. So without
# this limit a manifest of a megabyte could name 300,000 folders, which take a minute to create and
# to remove.
_FOLDERS_PER_FILE = 4
_PIECE = 1 << 20
_LEVEL = 1  # four times as fast as the default, for output that is a tenth larger


class ArchivedFile(msgspec.Struct, frozen=True):
    """The manifest's entry for a file; `size` in bytes."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    # The fixed length bounds the number of files in a manifest of a given size.
    sha256: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The list of an archive's files.

    `kind` tells whether it is a backup or an exported project; `about` depends on the kind.
    """

    kind: str
    format: int
    made_by: str
    made_at: str
    about: dict[str, str | int | bool] = {}
    files: dict[str, ArchivedFile]


class _Origin(msgspec.Struct, frozen=True):
    kind: str
    format: int
    made_by: str


def pack(folder: Path, target: Path, kind: str, about: dict[str, str | int | bool]) -> Manifest:
    """Make an archive of all regular files below a folder.

    Args:
        folder: the folder to archive.
        target: the file to create; it must not exist. It appears complete or not at all.
        kind: the manifest's `kind`.
        about: the manifest's `about`.

    Raises:
        StoreError: `target` exists or cannot be written.
    """
    refuse_existing(target)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): _entry_of(path) for path in paths}
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
    """Refuse to overwrite a file.

    Raises:
        StoreError: `target` exists.
    """
    if target.exists() or target.is_symlink():
        raise StoreError(reason=f"{target} exists already; choose another file")


def unpack(
    archive: Path,
    folder: Path,
    kind: str,
    limit_bytes: int = 1 << 62,
    *,
    manifest_limit_bytes: int = MANIFEST_LIMIT_BYTES,
    reserve_bytes: int = 0,
    is_expected: Callable[[str], bool] = lambda _name: True,
) -> Manifest:
    """Write the files of an archive below a folder.

    Args:
        archive: the file to read.
        folder: an empty folder.
        kind: the required `kind` of the manifest.
        limit_bytes: the limit for all files together, for archives from untrusted sources.
        manifest_limit_bytes: the limit for the manifest.
        reserve_bytes: the space on the disk that must stay free.
        is_expected: returns whether an archive of this kind can have a file of this name.

    Raises:
        StoreError: the file is not an archive of this kind, has a newer format, exceeds a
            limit, is truncated or damaged. The folder may then contain some of its files.
        UploadFileDiskLimitError: the disk has no room for the files; nothing was written.
    """
    with _reading(archive) as tar:
        manifest = _read_manifest(archive, tar, manifest_limit_bytes)
        if manifest.kind != kind:
            what = f"holds {_kind_name(manifest.kind)}, not {_kind_name(kind)}"
            raise StoreError(reason=f"{archive}: the archive {what}")
        _check_names(archive, manifest, is_expected)
        size = sum(file.size for file in manifest.files.values())
        if size > limit_bytes:
            raise StoreError(reason=f"{archive}: {size} bytes, the limit is {limit_bytes}")
        free = shutil.disk_usage(folder).free
        if size + reserve_bytes > free:
            raise UploadFileDiskLimitError(size=size, free=free, reserve=reserve_bytes)
        wanted = dict(manifest.files)
        while member := tar.next():
            expected = wanted.pop(member.name, None)
            if expected is None or member.size != expected.size:
                raise _damaged(archive, f"{member.name[:_NAME_SHOWN]!r} is not in its manifest")
            _extract(archive, tar, folder / _checked_path(archive, member.name), expected)
        if wanted:
            missing = min(wanted)[:_NAME_SHOWN]
            raise _damaged(archive, f"{len(wanted)} files are missing, {missing!r} among them")
    return manifest


@contextmanager
def _reading(archive: Path) -> Iterator[TarReader]:
    try:
        # The archive is read as a stream: the order of members is part of the format, and nothing
        # is read twice. After the last member, `TarReader` refuses further data and reads to the
        # end of the stream, where gzip compares its checksum.
        with gzip.open(archive) as stream:
            yield TarReader(stream)
    except (TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(archive, str(error) or "it is truncated") from error
    except OSError as error:
        raise StoreError(reason=f"{archive}: {error.strerror or error}") from error


def _read_manifest(archive: Path, tar: TarReader, limit_bytes: int) -> Manifest:
    first: Member | None = tar.next()
    if first is None or first.name != MANIFEST:
        raise StoreError(reason=f"{archive}: not an archive of fieldbrook")
    if first.size > limit_bytes:
        what = f"its {MANIFEST} has {first.size} bytes, the limit is {limit_bytes}"
        raise StoreError(reason=f"{archive}: {what}")
    data = b"".join(tar.content())
    try:
        made = msgspec.json.decode(data, type=_Origin)
        if made.format > FORMAT:
            raise StoreError(
                reason=f"{archive}: the archive has format {made.format} and was made by "
                f"{_printable(made.made_by)}; fieldbrook {__version__} reads up to "
                f"format {FORMAT}"
            )
        return msgspec.json.decode(data, type=Manifest)
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or JSON of another form
        raise _damaged(archive, f"{MANIFEST}: {error}") from error


def _printable(text: str) -> str:
    """Shorten a text from an archive, and quote it if it has characters that could control the
    terminal."""
    return text[:_NAME_SHOWN] if text.isprintable() else repr(text[:_NAME_SHOWN])


def _damaged(archive: Path, what: str) -> StoreError:
    return StoreError(
        reason=f"{archive}: not an archive of fieldbrook, or truncated or damaged ({what})"
    )


def _kind_name(kind: str) -> str:
    return {"backup": "a backup of a node", "project": "an exported project"}.get(
        kind, repr(kind[:_NAME_SHOWN])
    )


def _check_names(archive: Path, manifest: Manifest, is_expected: Callable[[str], bool]) -> None:
    """Check all names before anything is written.

    Raises:
        StoreError: a name is not valid, not expected, or there are too many folders.
    """
    names: set[str] = set()
    folders: set[PurePosixPath] = set()
    limit = _FOLDERS_PER_FILE * len(manifest.files) + _DEPTH_LIMIT
    for name in manifest.files:
        path = _checked_path(archive, name)
        if not is_expected(name):
            raise _damaged(archive, f"{name[:_NAME_SHOWN]!r} is not a file of such an archive")
        folder = name.rpartition("/")[0]
        if folder in names:
            continue
        names.add(folder)
        folders.update(path.parents)
        if len(folders) > limit:
            raise _damaged(archive, f"its files are in more than {limit} folders")


def _checked_path(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if len(path.parts) > _DEPTH_LIMIT:
        what = f"{name[:_NAME_SHOWN]!r} is nested in more than {_DEPTH_LIMIT} folders"
        raise _damaged(archive, what)
    escapes = path.is_absolute() or ".." in path.parts or not path.parts
    if escapes or "\\" in name or "\0" in name:
        raise _damaged(archive, f"{name[:_NAME_SHOWN]!r} is not a valid name of a file")
    return path


def _extract(archive: Path, tar: TarReader, path: Path, expected: ArchivedFile) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for piece in tar.content():
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != expected.sha256:
        raise _damaged(
            archive, f"{path.name[:_NAME_SHOWN]!r} has another SHA-256 than the manifest gives"
        )


def _entry_of(path: Path) -> ArchivedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ArchivedFile(path.stat().st_size, digest)


def _write(draft: Path, folder: Path, manifest: Manifest) -> None:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL) as tar:
            data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            if len(data) > MANIFEST_LIMIT_BYTES:
                raise StoreError(reason=f"{len(manifest.files)} files are too many for an archive")
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
