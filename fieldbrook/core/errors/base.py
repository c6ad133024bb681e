"""The base class of all expected failures, and how a failure is shown to clients.

A class has the stable `key` and the numeric `code` on which clients match, the HTTP status, a short
`msg`, a detailed `desc`, and whether the error may be shown to an end user.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, ClassVar

SOURCE = "srv-applet-mgr"
_BEFORE_A_WORD = re.compile("(?<=[a-z0-9])(?=[A-Z])")


class FieldError:
    """One entry of `fields` in a validation failure: the parameter, its location, the reason."""

    __slots__ = ("field", "location", "msg")

    def __init__(self, field: str, msg: str, location: str) -> None:
        self.field = field
        self.msg = msg
        self.location = location

    def as_json(self) -> dict[str, str]:
        """Shape: `{"field": str, "msg": str, "in": "path"|"query"|"header"|"body"}`."""
        return {"field": self.field, "msg": self.msg, "in": self.location}


class NodeError(Exception):
    """Base class of all expected failures.

    For a class with a `status` or a `number`, the default key and message are derived from its
    name: `ProjectNotFoundError` has `ProjectNotFound` and `Project Not Found`.
    """

    key: ClassVar[str] = "InternalServerError"  # clients match on it; never reworded
    status: ClassVar[int] = 500
    number: ClassVar[int] = 1
    msg: ClassVar[str] = "internal error"
    can_be_talk: ClassVar[bool] = False  # in other classes the default is True
    retry_after_s: int | None = None
    template: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if {"status", "number"} & vars(cls).keys():  # others inherit the key
            if "key" not in vars(cls):
                cls.key = cls.__name__.removesuffix("Error")
            if "msg" not in vars(cls):
                cls.msg = _BEFORE_A_WORD.sub(" ", cls.key)
        if NodeError in cls.__bases__ and "can_be_talk" not in vars(cls):
            cls.can_be_talk = True

    def __init__(self, **details: str | int) -> None:
        super().__init__(self.template.format(**details) or self.msg)
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.details), ()

    @property
    def desc(self) -> str:
        """The detailed description: the template, filled in with names and values."""
        return self.template.format(**self.details)

    @property
    def code(self) -> int:
        """The number in the catalogue: `status * 1000000 + 999000 + number`."""
        return self.status * 1_000_000 + 999_000 + self.number

    def fields(self) -> list[FieldError] | None:
        """The offending parameters, for validation failures only."""
        return None

    def text(self) -> str:
        """One line, as in an event's result (interface document, 1.3)."""
        talk = "!" if self.can_be_talk else ""
        fields = "".join(f"<{f.field}:{f.msg}>" for f in self.fields() or ())
        desc = f" {self.desc}" if self.desc else ""
        return f"[]@StatusErr[{self.key}][{self.code}][{self.msg}]{talk}{fields}{desc}"

    def body(self, version: str) -> dict[str, Any]:
        """The 8-key error body of the interface."""
        fields = self.fields()
        return {
            "key": self.key,
            "code": self.code,
            "msg": self.msg,
            "desc": self.desc,
            "canBeTalk": self.can_be_talk,
            "id": "",
            "sources": [f"{SOURCE}@{version}"],
            "fields": None if fields is None else [f.as_json() for f in fields],
        }
