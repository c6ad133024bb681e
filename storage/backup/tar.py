"""A reader of tar streams with bounded memory, for regular files only, as fieldbrook writes them.

`tarfile` reads pax records, GNU long names and sparse maps into memory before its caller gets them,
and the archive determines their length. Archives from untrusted sources are therefore read by this
module. Each header is 512 bytes, a file may have one extended header of limited size, and members
of any other type are refused unread.

Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header".
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import NamedTuple, Protocol

_BLOCK = tarfile.BLOCKSIZE
_REGULAR, _EXTENDED = tarfile.REGTYPE, tarfile.XHDTYPE
# Limit for the extended header of one file: enough for the longest path that Linux allows.
_EXTENDED_LIMIT_BYTES = 8_192
_DIGITS_LIMIT = 19
# A writer pads its last record after the two empty blocks.
_END_LIMIT_BYTES = 2 * tarfile.RECORDSIZE
_PIECE = 1 << 16
_TYPES = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.DIRTYPE: "a folder",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_LONGNAME: "a GNU long name",
    tarfile.GNUTYPE_LONGLINK: "a GNU long link",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
    tarfile.XGLTYPE: "a global pax header",
}


class TarError(Exception):
    """The stream is not a tar of regular files; the text gives the reason."""


class Member(NamedTuple):
    """A regular file; `size` in bytes."""

    name: str
    size: int


class Readable(Protocol):
    """A binary stream from which a tar is read."""

    def read(self, size: int, /) -> bytes:
        """Read `size` bytes; fewer only at the end."""


class TarReader:
    """Reads a tar once from beginning to end, piece by piece."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._left = 0  # unread bytes of the member's content
        self._padding = 0  # bytes of padding after the content

    def next(self) -> Member | None:
        """Return the next member, or None at the end; skip unread content of the previous one.

        Raises:
            TarError: the member is not a regular file, its header is damaged, the stream ends
                too early, or it continues after the end of the tar.
        """
        for _ in self.content():
            pass
        self._exactly(self._padding)
        self._padding = 0
        header = self._header()
        if header is None:
            return None
        path, size = "", None
        if header.type == _EXTENDED:
            path, size = self._extended(header.size)
            header = self._header()
        if header is None or header.type != _REGULAR:
            what = "the end" if header is None else _TYPES.get(header.type, "a member")
            raise TarError(f"it contains {what}; only regular files are allowed")
        self._left = header.size if size is None else size
        if self._left < 0:
            raise TarError("a member has a negative size")
        self._padding = -self._left % _BLOCK
        return Member(path or header.name, self._left)

    def content(self) -> Iterator[bytes]:
        """Iterate over the unread content of the current member, in pieces.

        Raises:
            TarError: the stream ends before the content does.
        """
        while self._left:
            piece = self._exactly(min(self._left, _PIECE))
            self._left -= len(piece)
            yield piece

    def _header(self) -> tarfile.TarInfo | None:
        block = self._exactly(_BLOCK)
        if block == bytes(_BLOCK):
            self._end()
            return None
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise TarError(str(error)) from error

    def _end(self) -> None:
        rest = self._stream.read(_END_LIMIT_BYTES + 1)
        if len(rest) > _END_LIMIT_BYTES or rest.strip(b"\0"):
            raise TarError("data follows after its end")

    def _extended(self, size: int) -> tuple[str, int | None]:
        """Read an extended header and return its path and size, or "" and None.

        A writer uses it for values that do not fit into the fixed header.
        """
        if not 0 < size <= _EXTENDED_LIMIT_BYTES:
            raise TarError(
                f"an extended header has {size} bytes, the limit is {_EXTENDED_LIMIT_BYTES}"
            )
        data = self._exactly(size + -size % _BLOCK)[:size]
        path, length = "", None
        while data:
            digits, _, _ = data.partition(b" ")
            whole = _number(digits)
            keyword, equals, value = data[len(digits) + 1 : whole - 1].partition(b"=")
            if whole > len(data) or data[whole - 1 : whole] != b"\n" or not equals:
                raise TarError("an extended header is damaged")
            if keyword == b"path":
                path = value.decode("utf-8", "surrogateescape")
            elif keyword == b"size":
                length = _number(value)
            else:
                raise TarError("an extended header has other fields than path and size")
            data = data[whole:]
        return path, length

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise TarError("it is truncated")
        return data


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > _DIGITS_LIMIT:
        raise TarError("an extended header has an invalid number")
    return int(digits)
