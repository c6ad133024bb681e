"""The reason of a trap: its cause, and the functions of the guest in which it happened.

Source: the messages of wasmtime's errors, with and without lines of the sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

PLACES = 8
"""How many functions a reason names."""
NODE_MODULE = "fieldbrook"
"""The name of the node's own modules, whose functions are left out."""
_PLACE_CHARS = 160
_CAUSES = "Caused by:"
_UNNAMED = "<wasm function "
_PANIC = "rust_begin_unwind"  # the functions that it calls are Rust's handling of a panic
_HASH_CHARS = len("::h0123456789abcdef")  # what Rust appends to the names of functions


def trap_reason(message: str) -> str:
    """Return the cause and the place of an error of wasmtime, such as `cause, in f, called by g,
    h`.

    Names come from the module's name section; a function without a name is shown as `<wasm function
    2>`. If the outermost function has no name, it is the handler and is left out. A name is
    followed by file and line if the engine read them from the module's DWARF sections.
    """
    return _cause(message) + trap_place(message)


def trap_place(message: str) -> str:
    """Return only the place, such as `, in f, called by g, h`; "" if the message names none."""
    places = list(_places(message))
    starts = [n for n, (name, _) in enumerate(places, 1) if name.endswith(_PANIC)]
    shown = [_shown(name, line) for name, line in places[starts[-1] if starts else 0 :]]
    if shown and shown[-1].startswith(_UNNAMED):
        shown.pop()
    merged = [(place, len(list(same))) for place, same in groupby(shown)]
    texts = [place if count == 1 else f"{place} (recursive)" for place, count in merged]
    if not texts:
        return ""
    callers = texts[1:PLACES]
    return f", in {texts[0]}" + (f", called by {', '.join(callers)}" if callers else "")


def _cause(message: str) -> str:
    """Return the last cause. If there are several, they are numbered (`1: wasm trap: out of bounds
    ...`)."""
    lines = message.strip().splitlines()
    if not lines:
        return "trap"
    text = lines[-1].strip()
    number, found, cause = text.partition(": ")
    return cause if found and number.isdecimal() else text


def _places(message: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each function and its source line, the innermost function first.

    A function is a line such as `3: 0x2f4e - module!name`, or `- name` if it was inlined into the
    function after it. Its place in the source follows, such as `at src/lib.rs:3:57`.
    """
    name = line = ""
    for text in message.partition(_CAUSES)[0].splitlines():
        words = text.split(maxsplit=3)
        if len(words) == 4 and words[1].startswith("0x") and words[2] == "-":
            module, _, inner = words[3].partition("!")
            found = "" if inner and module == NODE_MODULE else inner or words[3]
        elif words[:1] == ["-"]:
            found = text.strip()[2:]
        else:
            if words[:1] == ["at"]:
                line = text.strip()[3:]
            continue
        if name:
            yield name, line
        name, line = found, ""
    if name:
        yield name, line


def _shown(name: str, line: str) -> str:
    if len(name) > _HASH_CHARS and name[-_HASH_CHARS:].startswith("::h"):
        name = name[:-_HASH_CHARS]
    text = f"{name} ({line})" if line else name
    return text if len(text) <= _PLACE_CHARS else f"{text[: _PLACE_CHARS - 1]}…"
