"""Errors of the command line, each with the exit code of the program."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

EXIT_REFUSED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_NOT_ALLOWED = 1, 2, 3, 4
EXIT_CONVERTS, EXIT_RUNNING = 5, 6  # of `upgrade --check` only
_ALLOWANCE_KEYS = frozenset(
    {
        "AccessKeyExpired",
        "AccessKeyPermissionDenied",
        "DisabledAccount",
        "Forbidden",
        "WhiteListForbidden",
    }
)


class ClientError(Exception):
    """A command cannot do its work. `hint` is advice for the user."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class LibrariesMissingError(ClientError):
    """The command needs the libraries of an extra, which are not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs libraries", f"pip install 'fieldbrook[{extra}]'")


def require_chain_libraries(what: str) -> None:
    """Refuse `what` unless the libraries for chains are installed.

    Raises:
        LibrariesMissingError: the libraries are not installed.
    """
    if importlib.util.find_spec("web3") is None:
        raise LibrariesMissingError(what, "chains")


class WrongUsageError(ClientError):
    """An argument, an option or an input of the command is invalid."""

    exit_code = EXIT_USAGE


class UnreachableError(ClientError):
    """The server gave no answer; it is unknown whether it handled the request."""

    exit_code = EXIT_UNREACHABLE


class NotLoggedInError(ClientError):
    """The command needs a login and there is none for this server."""

    exit_code = EXIT_NOT_ALLOWED


class RefusedError(ClientError):
    """The node answered with an error.

    `body` is the error object with 8 keys of the interface document, section 1.3.
    """

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.body = body
        self.key = str(body.get("key") or "")
        super().__init__(self._describe())
        if status == 401 or (status == 403 and self.key in _ALLOWANCE_KEYS):
            self.exit_code = EXIT_NOT_ALLOWED

    def _describe(self) -> str:
        reasons = [str(self.body.get(name) or "") for name in ("msg", "desc")]
        reason = ": ".join(text for text in reasons if text) or "no reason given"
        lines = [f"the node refused: {reason} ({f'{self.status} {self.key}'.rstrip()})"]
        fields = self.body.get("fields")
        for item in fields if isinstance(fields, list) else ():
            if isinstance(item, dict):
                lines.append(f"  {item.get('field')}: {item.get('msg')}")
        return "\n".join(lines)


class InvalidAnswerError(ClientError):
    """The server's answer is not valid for a node of this version, e.g. because it is too large."""


def file_error(path: object, error: OSError) -> ClientError:
    """Return the error for a file that cannot be read or written."""
    return ClientError(f"{path}: {error.strerror}")


@contextmanager
def expected_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Convert expected exceptions to errors of the command line.

    Expected exceptions are `kinds`, the refusal of a module, other errors of the node's code, and
    errors of reading and writing files.
    """
    from fieldbrook.core.errors import ModuleRefusedError, NodeError

    try:
        yield
    except ModuleRefusedError as error:
        raise ClientError(f"a node would refuse the module: {error.desc}") from None
    except kinds as error:
        raise ClientError(str(error), getattr(error, "hint", "")) from None
    except NodeError as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise file_error(error.filename, error) from None
