"""Input of commands: files, lines of standard input, secrets."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fieldbrook.cli.errors import ClientError, WrongUsageError, file_error
from fieldbrook.system.regular_file import read_regular_file

PASSWORD_SOURCES = ("-", "prompt", "generated")
password_option = click.option(
    "--password",
    "source",
    metavar="-|prompt|generated",
    help="Source of the password: standard input, a prompt, or the node, which generates one and "
    "shows it once [default: prompt on a terminal, else generated].",
)


def read_file(path: Path) -> bytes:
    """Read a file.

    Raises:
        ClientError: the file cannot be read, see `read_regular_file`.
    """
    try:
        return read_regular_file(path)
    except OSError as error:
        raise file_error(path, error) from None


def read_value(text: str) -> bytes:
    """Read an argument `TEXT|@FILE`: its bytes, or the content of a file; `@-` is standard input.

    Raises:
        ClientError: the file cannot be read.
    """
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape")
    name = text[1:]
    return sys.stdin.buffer.read() if name == "-" else read_file(Path(name))


def read_module(path: Path) -> bytes:
    """Read a WebAssembly module, in binary or as text.

    Raises:
        ClientError: the file cannot be read, or does not begin like one of the two forms.
    """
    content = read_file(path)
    if not content.startswith(b"\0asm") and not content.lstrip().startswith((b"(", b";")):
        start = content[:8].decode("utf-8", "backslashreplace")
        raise ClientError(
            f"{path} is not a WebAssembly module (it starts with {start!r}; expected "
            f"'\\0asm', or '(module' as text)"
        )
    return content


def read_line(what: str) -> str:
    """Read a line of standard input, without its line break; `what` names it in the error.

    Raises:
        WrongUsageError: the line is empty or missing.
    """
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise WrongUsageError(f"standard input has no {what}")
    return line


def read_secret(what: str, from_stdin: bool, option: str, *, twice: bool = False) -> str:
    """Read a secret from standard input, or ask for it on the terminal.

    Args:
        what: names the secret in the prompt and in errors.
        from_stdin: read a line of standard input.
        option: the option for standard input, named when there is no terminal.
        twice: ask a second time, and compare.

    Raises:
        WrongUsageError: standard input has no such line, or there is no terminal.
    """
    if from_stdin:
        return read_line(what)
    require_terminal(what, option)
    answer: str = click.prompt(
        what.capitalize(), hide_input=True, confirmation_prompt=twice, err=True
    )
    return answer


def require_terminal(what: str, option: str) -> None:
    """Require a terminal on which to ask for `what`; the error recommends `option` instead.

    Raises:
        WrongUsageError: standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise WrongUsageError(
            f"cannot ask for the {what}: standard input is not a terminal", f"use {option}"
        )


def new_password(source: str | None) -> str | None:
    """Get a password from one of `PASSWORD_SOURCES`; None means that the node generates it.

    The default source is `prompt` on a terminal, otherwise `generated`.

    Raises:
        WrongUsageError: the source is unknown or gives no password.
    """
    source = source or ("prompt" if sys.stdin.isatty() else "generated")
    if source not in PASSWORD_SOURCES:
        raise WrongUsageError(
            "--password takes -, prompt or generated, never the password itself, because other "
            "users of this machine could see it",
            "pipe it: `... | fieldbrook admin create --password -`",
        )
    if source == "generated":
        return None
    return read_secret("password", source == "-", "--password -", twice=True)
