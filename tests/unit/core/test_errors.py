"""Errors in the form for clients."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import (
    AuthorizationError,
    BadRequestError,
    FieldError,
    MalformedMessageError,
    NodeError,
    ProjectNotFoundError,
    from_wire,
)

_FIELD = FieldError("name", "missing", "body")


@pytest.mark.parametrize(
    ("error", "talks"),
    [
        (BadRequestError(_FIELD), False),
        (MalformedMessageError(_FIELD), False),
        (AuthorizationError(reason="no token"), False),
        (from_wire("SomethingNew", {}), False),
        (ProjectNotFoundError(project="p"), True),
    ],
)
def test_end_users_may_be_shown_what_the_original_shows_them(error: NodeError, talks: bool) -> None:
    assert error.body("0.0.9")["canBeTalk"] is talks
    assert ("]!" in error.text()) is talks
