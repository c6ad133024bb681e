"""Names and ids of objects."""

from __future__ import annotations

import pytest

from fieldbrook.cli.errors import ClientError
from fieldbrook.cli.remote.lookup import find


def test_a_name_is_preferred_to_an_id() -> None:
    rows = [{"name": "one", "id": "222"}, {"name": "222", "id": "111"}]
    assert find(rows, "222", "applet", "name", "id")["id"] == "111"
    assert find(rows, "111", "applet", "name", "id")["name"] == "222"


def test_a_name_nobody_has_is_answered_with_the_nearest_or_with_all() -> None:
    rows = [{"name": "counter", "id": "1"}, {"name": "other", "id": "2"}]
    with pytest.raises(ClientError) as near:
        find(rows, "conter", "applet", "name", "id")
    with pytest.raises(ClientError) as far:
        find(rows, "zzz", "applet", "name", "id")
    assert near.value.hint == "did you mean counter?"
    assert far.value.hint == "applets: counter, other"
