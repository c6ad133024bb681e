"""Errors in what the client sent (400, 413)."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from fieldbrook.core.errors.base import FieldError, NodeError


class BadRequestError(NodeError):
    """Parameters are missing or malformed; `fields` names them, at most the first 100."""

    key = "badRequest"
    status = 400
    msg = "invalid parameters"
    fields_limit: ClassVar[int] = 100
    can_be_talk = False

    def __init__(self, *fields: FieldError, desc: str = "") -> None:
        super().__init__()
        self._fields = list(fields[: self.fields_limit])
        self._desc = desc

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), *self._fields, desc=self._desc), ()

    @property
    def desc(self) -> str:
        """Empty unless the request body as a whole is invalid."""
        return self._desc

    @property
    def code(self) -> int:
        """Validation failures have no catalogue number (interface document, 1.3)."""
        return 400_000_000

    def fields(self) -> list[FieldError] | None:
        """One entry per offending parameter."""
        return self._fields

    def __str__(self) -> str:
        parts = [f"{f.field}: {f.msg}" for f in self._fields]
        return "; ".join([*([self._desc] if self._desc else []), *parts]) or self.msg


class MalformedMessageError(BadRequestError):
    """The body of an event is not a data message."""


class PayloadTooLargeError(NodeError):
    key = "RequestEntityTooLarge"
    status = 413
    template = "the body has {size} bytes; the limit is {limit_bytes}"


class EffectsTooLargeError(NodeError):
    """An event's handlers write more than the project's store could hold even if it were empty.
    Nothing was kept, and a retry does not help."""

    status = 413
    number = 2
    template = (
        "the event's handlers write {size} bytes, but a project's store holds at most "
        "{limit_bytes}; sending the event again does not help"
    )


class InvalidCronExpressionsError(NodeError):
    """The schedule of a cron job is not a valid cron expression."""

    status = 400
    number = 5
    template = "cron expression {expression}: {reason}"


class InvalidMonitorIDsError(NodeError):
    """Some ids are not monitors of that kind in the project, or there are too many ids."""

    template = "{reason}; nothing was changed"


class InvalidContractLogIDsError(InvalidMonitorIDsError):
    """Some ids are not monitors of contract logs in the project, or there are more than 100."""

    status = 400
    number = 9


class InvalidChainTxIDsError(InvalidMonitorIDsError):
    """Some ids are not monitors of transactions in the project, or there are more than 100."""

    status = 400
    number = 10


class InvalidChainHeightIDsError(InvalidMonitorIDsError):
    """Some ids are not monitors of chain heights in the project, or there are more than 100."""

    status = 400
    number = 11


class InvalidPrivateKeyError(NodeError):
    """The text is not a valid private key. The error never contains the key."""

    status = 400
    number = 6
    template = "{reason}"
