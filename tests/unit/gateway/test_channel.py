"""Names of channels and of the projects that they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.channel import aliases, project_name


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("room", "room"),
        ("aid_12_room", "room"),
        ("aid_12_aid_3_x", "aid_3_x"),
        ("aid_x_room", "aid_x_room"),
        ("aid_12_", "aid_12_"),
        ("aid__room", "aid__room"),
        ("eth_0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a_room", "room"),
        ("eth_0xabc_room", "eth_0xabc_room"),
        ("eth_room", "eth_room"),
        ("", ""),
    ],
)
def test_a_channel_means_the_project_behind_its_prefix(channel: str, name: str) -> None:
    assert project_name(channel) == name


@given(st.from_regex(r"\A[A-Za-z0-9_]{1,32}\Z"), st.integers(1, (1 << 63) - 1))
def test_every_alias_of_a_project_means_it(name: str, account_id: int) -> None:
    if not name.startswith(("aid_", "eth_")):  # which no project's name does
        assert {project_name(alias) for alias in aliases(name, account_id)} == {name}
