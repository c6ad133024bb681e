"""Hostile archives: small on disk, expensive in memory, disk or time for a naive reader.

Each is small on disk, and what it unpacks to is bounded: `SIZE` is enough to see a reader that
holds it in memory, and harms no machine.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import os
import shutil
import struct
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import Project, Publisher, Strategy
from fieldbrook.storage.backup import archive
from fieldbrook.storage.backup.archive import MANIFEST
from fieldbrook.storage.backup.transfer import Exported
from fieldbrook.storage.lmdb.codec import encode_record

SIZE = 100 << 20
_PIECE = bytes(1 << 20)
_TIMES: dict[str, Any] = {"created_at": 1, "updated_at": 1}


def _records(**more: Any) -> bytes:
    project = Project(project_id=1, account_id=1, name="bomb", **_TIMES)
    whole = Exported(project, [], [], [], [], [], [], [], [], False, [])
    return encode_record(msgspec.structs.replace(whole, **more))


def _pack(*chunks: bytes | int) -> bytes:
    """Return the chunks, concatenated and compressed; a number stands for that many zero bytes."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=1, mtime=0) as file:
        for chunk in chunks:
            if isinstance(chunk, bytes):
                file.write(chunk)
                continue
            for at in range(0, chunk, len(_PIECE)):
                file.write(_PIECE[: chunk - at])
    return made.getvalue()


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, target
    return member.tobuf(tarfile.GNU_FORMAT)


def _file(name: str, content: bytes) -> bytes:
    return _header(name, len(content)) + content + bytes(-len(content) % 512)


def _manifest(files: Mapping[str, bytes | tuple[int, str]], kind: str = "project") -> bytes:
    entries = {}
    for name, content in files.items():
        if isinstance(content, bytes):
            entries[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        else:
            entries[name] = {"size": content[0], "sha256": content[1]}
    about = {"kind": kind, "format": 1, "made_by": "x", "made_at": "x"}
    return _file(MANIFEST, json.dumps({**about, "files": entries}).encode())


def archive_of(manifest: Mapping[str, Any]) -> bytes:
    """Return an archive that contains only this manifest."""
    return _pack(_file(MANIFEST, json.dumps(manifest).encode()), 1024)


def project(files: Mapping[str, bytes]) -> bytes:
    """Return a well-formed archive of a project with these files."""
    return _pack(_manifest(files), *(_file(n, c) for n, c in files.items()), 1024)


_KNOWN = {"project.bin": _records()}


def _extended(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return _header("x", len(records), kind) + records + bytes(-len(records) % 512)


def _pax(keyword: bytes, value: bytes) -> bytes:
    length = len(keyword) + len(value) + 3
    whole = length + len(str(length + len(str(length))))
    return b"%d %s=%s\n" % (whole, keyword, value)


def _odd_members() -> Iterator[tuple[str, bytes]]:
    before = _manifest(_KNOWN)
    for name, kind in (
        ("a hard link", tarfile.LNKTYPE),
        ("a symbolic link", tarfile.SYMTYPE),
        ("a character device", tarfile.CHRTYPE),
        ("a block device", tarfile.BLKTYPE),
        ("a pipe", tarfile.FIFOTYPE),
        ("a folder", tarfile.DIRTYPE),
        ("a contiguous file", tarfile.CONTTYPE),
        ("a sparse file", tarfile.GNUTYPE_SPARSE),
        ("an old regular file", tarfile.AREGTYPE),
        ("a type that nobody knows", b"Z"),
    ):
        yield name, _pack(before, _header("project.bin", 0, kind, "/etc/passwd"), 1024)
    for name, kind in (
        ("a long pax header", tarfile.XHDTYPE),
        ("a long global pax header", tarfile.XGLTYPE),
        ("a long header of Solaris", tarfile.SOLARIS_XHDTYPE),
        ("a GNU long name", tarfile.GNUTYPE_LONGNAME),
        ("a GNU long link", tarfile.GNUTYPE_LONGLINK),
    ):
        yield name, _pack(_header("x", SIZE, kind), SIZE, before, 1024)
        yield f"{name} after the manifest", _pack(before, _header("x", SIZE, kind), SIZE, 1024)
    for name, records in (
        ("a sparse map of pax", _pax(b"GNU.sparse.map", b"0,1," * 1000 + b"0,1")),
        ("a pax size of a million digits", b"9" * 8000 + b" size=1\n"),
        ("a pax record longer than its header", b"8000 path=x\n"),
        ("a pax record of no length", b"0 path=x\n" * 100),
        ("a pax record of a negative length", b"-9 path=x\n"),
        ("a pax path with a NUL", _pax(b"path", b"project.bin\0")),
        ("a pax path that leaves", _pax(b"path", b"../../project.bin")),
        ("a pax size of exabytes", _pax(b"size", b"9" * 19)),
    ):
        yield name, _pack(before, _extended(records), _file("project.bin", b""), 1024)
    deep = "/".join(["a"] * 1_600)
    yield (
        "folders in folders",
        _pack(_manifest({deep: b""}), _extended(_pax(b"path", deep.encode())), _file("x", b"")),
    )
    paths = ["/".join([f"{n}", *"a" * 58, "x"]) for n in range(1_000)]
    yield (
        "a thousand short paths of 60 folders",
        _pack(
            _manifest(dict.fromkeys(paths, b"")),
            *(_extended(_pax(b"path", path.encode())) + _file("x", b"") for path in paths),
            1024,
        ),
    )
    many = b"".join(_extended(_pax(b"path", b"y")) for _ in range(20_000))
    yield "many pax headers in a row", _pack(before, many, 1024)


def _odd_manifests() -> Iterator[tuple[str, bytes]]:
    yield "a manifest of blanks", _pack(_header(MANIFEST, SIZE), SIZE, 1024)
    for count in (420_000, 200_000):
        listed = (f'"{n}":{{"size":0,"sha256":"{n:064d}"}}' for n in range(count))
        files = "{" + ",".join(listed) + "}"
        text = f'{{"kind":"project","format":1,"made_by":"","made_at":"","files":{files}}}'
        yield f"a manifest of {count} files", _pack(_file(MANIFEST, text.encode()), 1024)
    for name, content in (
        ("a manifest of brackets", b"[" * 900_000),
        ("a manifest with a deep value", b'{"kind":' + b"[" * 900_000),
        ("a manifest with a number of a million digits", b'{"format":' + b"1" * 900_000 + b"}"),
        ("a manifest with a number that is none", b'{"kind":"project","format":NaN}'),
        ("a manifest with an exponent", b'{"kind":"project","format":1e400}'),
        ("a manifest with many small values", b'{"about":[' + b"[]," * 300_000 + b"[]]}"),
        ("an empty manifest", b""),
    ):
        yield name, _pack(_file(MANIFEST, content), 1024)
    huge = {"project.bin": (1 << 62, "0" * 64)}
    yield "a manifest that promises exabytes", _pack(_manifest(huge), 1024)
    yield (
        "a manifest that promises more than a module has",
        _pack(
            _manifest({"project.bin": (SIZE * 4, "0" * 64)}), _header("project.bin", SIZE * 4), SIZE
        ),
    )


def _odd_contents() -> Iterator[tuple[str, bytes]]:
    tiny = {f"modules/{n:064d}.wasm": b"" for n in range(20_000)}
    yield "twenty thousand empty members", project({**_KNOWN, **tiny})
    few = {f"modules/{n:064d}.wasm": b"" for n in range(3_000)}
    yield "three thousand empty members", project({**_KNOWN, **few})
    zeros = hashlib.sha256()
    for _ in range(SIZE >> 20):
        zeros.update(_PIECE)
    big = {"project.bin": (SIZE, zeros.hexdigest())}
    yield (
        "records of many megabytes",
        _pack(_manifest(big), _header("project.bin", SIZE), SIZE, 1024),
    )
    strategy = Strategy(
        strategy_id=0, project_id=0, applet_id=0, event_type="", handler="", created_at=0,
        updated_at=0,
    )  # fmt: skip
    yield "a million records", project({"project.bin": _records(strategies=[strategy] * 1_000_000)})
    publisher = Publisher(
        publisher_id=1, project_id=1, name="p", key="p", token="", event_types=[""] * 9_000_000,
        **_TIMES,
    )  # fmt: skip
    yield "millions of event types", project({"project.bin": _records(publishers=[publisher])})
    yield "records that are none", project({"project.bin": b"\x01\xdd\xff\xff\xff\xff"})
    deep = b"\x01" + b"\x91" * 1_000_000
    yield "records in records", project({"project.bin": deep})


def _odd_streams() -> Iterator[tuple[str, bytes]]:
    whole = project(_KNOWN)
    for share in (0.1, 0.5, 0.9):
        yield f"an archive cut at {share}", whole[: int(len(whole) * share)]
    tar = gzip.decompress(whole)
    yield "zeros after the end", _pack(tar, SIZE)
    yield "members after the end", _pack(tar, _file("project.bin", b"x"), 1024)
    yield "a thousand empty streams and no more", _pack() * 1_000
    yield "no end", _pack(_manifest(_KNOWN), _file("project.bin", _KNOWN["project.bin"]))
    yield (
        "a name of the compressor without an end",
        (b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * 1_000_000),
    )
    yield (
        "a negative size",
        _pack(_manifest(_KNOWN), _header("project.bin", -512), 1024),
    )
    yield "a store of LZMA", b"\xfd7zXZ\x00" + bytes(100)
    yield "a zip", b"PK\x03\x04" + bytes(100)


def _odd_pairs() -> Iterator[tuple[str, bytes]]:
    long = struct.pack("<I", (1 << 32) - 1)
    for name, pairs in (
        ("a pair of four gigabytes", long),
        ("pairs that are none", struct.pack("<I", 4) + b"\xdd\xff\xff\xff"),
        ("pairs cut short", b"\x01"),
    ):
        yield name, project({**_KNOWN, "pairs.bin": pairs})


def bombs() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each archive, made one at a time."""
    for source in (_odd_members, _odd_manifests, _odd_contents, _odd_streams, _odd_pairs):
        yield from source()


def bombs_for_a_gateway() -> Iterator[tuple[str, bytes]]:
    """Yield all archives with bad contents, which only an import reads, and every fifth of the
    others, because another test gives all of them to the reader."""
    yield from _odd_contents()
    for source in (_odd_members, _odd_manifests, _odd_streams, _odd_pairs):
        yield from itertools.islice(source(), 0, None, 5)


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def main(folder: Path) -> None:
    """Unpack each file of a folder, as a restore does, and write a line of JSON: its name, the
    error, and the most memory this process had until then in bytes."""
    for path in sorted(folder.iterdir()):
        target = folder.with_name(f"{path.name}.unpacked")
        target.mkdir()
        error = ""
        try:
            archive.unpack(path, target, "project")
        except NodeError as refusal:
            error = str(refusal)
        sys.stdout.write(json.dumps([path.name, error, peak_bytes(os.getpid())]) + "\n")
        shutil.rmtree(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
