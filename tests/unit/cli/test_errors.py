"""Errors of the command line."""

from __future__ import annotations

import pytest

from fieldbrook.cli.errors import RefusedError


def test_a_refusal_shows_each_offending_field_on_a_line_of_its_own() -> None:
    fields = [{"field": "name", "msg": "missing", "in": "body"}, {"field": "key", "msg": "long"}]
    body = {"key": "badRequest", "msg": "invalid parameters", "desc": "", "fields": fields}
    assert str(RefusedError(400, body)).splitlines() == [
        "the node refused: invalid parameters (400 badRequest)",
        "  name: missing",
        "  key: long",
    ]


@pytest.mark.parametrize(
    ("status", "key", "code"),
    [
        (401, "InvalidToken", 4),
        (403, "DisabledAccount", 4),
        (403, "UploadFileSizeLimit", 1),
        (404, "ProjectNotFound", 1),
        (409, "ProjectNameConflict", 1),
        (503, "ServiceUnavailable", 1),
    ],
)
def test_an_exit_code_tells_what_is_not_allowed_from_what_is_refused(
    status: int, key: str, code: int
) -> None:
    assert RefusedError(status, {"key": key}).exit_code == code
