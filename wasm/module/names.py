"""Makes the names of functions harmless before a module is compiled, because reasons of traps
contain them.

The engine demangles the names of a trap's functions for the message of each trap, without a limit.
A mangled name of 300 bytes in which each part refers twice to an earlier part becomes gigabytes.

Source: WebAssembly core specification 2.0, 7.4.1; Itanium C++ ABI, 5.1.10 (compression).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fieldbrook.wasm.module.sections import Reader, sections

NAME_CHARACTERS = 1_024
REFERENCES, REFERRING_CHARACTERS = 8, 256
"""The most references to earlier parts in a mangled name, and the most characters of a name with
references. Then the demangled text is at most about 20 times as long as without references."""
_CUSTOM, _FUNCTION_NAMES = 0, 1
_HEADER_BYTES = 8
_ENDS_OF_REFERENCES = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_RUST = ("_R", "R", "__R")
_NOT_MANGLED = "~"  # no mangled name begins with this


def with_harmless_names(wasm: bytes) -> bytes:
    """Return a module in binary form whose function names cannot become long in a message.

    Names of other kinds are removed. Bytes that are no module are returned unchanged.
    """
    parts, at = [wasm[:_HEADER_BYTES]], _HEADER_BYTES
    try:
        for section, body, end in sections(wasm):
            custom = wasm[body.at : end] if section == _CUSTOM else b""
            if custom and Reader(custom, 0).name() == "name":
                content = b"\x04name" + _function_names(custom)
                parts.append(b"\0" + _number(len(content)) + content)
            else:
                parts.append(wasm[at:end])
            at = end
    except IndexError:  # the module ends too early
        return wasm
    return b"".join(parts)


def _function_names(custom: bytes) -> bytes:
    """Return the subsection with the names of functions; empty if there are none."""
    names: list[bytes] = []
    body = Reader(custom, 0)
    body.name()
    try:
        while body.at < len(custom):
            kind, size = body.byte(), body.number()
            end = body.at + size
            if kind == _FUNCTION_NAMES:
                names.extend(_encoded(custom[body.at : end]))
            body.at = end
    except IndexError:  # the section ends too early; the engine also keeps the names before its end
        pass
    content = _number(len(names)) + b"".join(names)
    return bytes((_FUNCTION_NAMES,)) + _number(len(content)) + content


def _encoded(section: bytes) -> Iterator[bytes]:
    """Encode the names of a subsection again, up to its end or to the place where it is
    truncated."""
    body = Reader(section, 0)
    for _ in range(body.number()):
        index, size = body.number(), body.number()
        begin, body.at = body.at, body.at + size
        name = section[begin : min(body.at, begin + 4 * NAME_CHARACTERS)].decode("utf-8", "replace")
        encoded = harmless(name).encode()
        yield _number(index) + _number(len(encoded)) + encoded


def harmless(name: str) -> str:
    """Cut a name and remove control characters; add a mark if a demangler may expand the name."""
    name = name[:NAME_CHARACTERS]
    if not name.isprintable():
        name = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name)
    if name.startswith(_RUST):
        references = name.count("B")
    else:
        pairs = pairwise(name)
        references = sum(end == "_" and last in _ENDS_OF_REFERENCES for last, end in pairs)
    if references > REFERENCES or (references and len(name) > REFERRING_CHARACTERS):
        return _NOT_MANGLED + name
    return name


def _number(value: int) -> bytes:
    """Encode an unsigned LEB128 number."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
