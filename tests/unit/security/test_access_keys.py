"""Access keys: their text, and what they allow."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import (
    AccessKeyExpiredError,
    AccessKeyNotFoundError,
    AccessKeyPermissionDeniedError,
    InvalidAccessKeyError,
)
from fieldbrook.core.model import AccessKey
from fieldbrook.security import access_keys
from fieldbrook.security.access_keys import Group, Permission

NOW_MS = 1_700_000_000_123


def text_of(content: str | bytes) -> str:
    raw = content if isinstance(content, bytes) else content.encode()
    return access_keys.PREFIX + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def record(
    parsed: access_keys.ParsedKey, expires_at: int = 0, privileges: dict[str, str] | None = None
) -> AccessKey:
    return AccessKey(
        access_key_id=1,
        account_id=2,
        identity_id=2,
        identity_type="ACCOUNT",
        name="ci",
        digest=parsed.digest,
        issued_at_s=parsed.issued_at_s,
        expires_at=expires_at,
        privileges=privileges or {},
        created_at=NOW_MS,
        updated_at=NOW_MS,
    )


def test_a_key_says_when_it_was_made_and_starts_as_clients_know_it() -> None:
    text, parsed = access_keys.issue(NOW_MS)
    assert text.startswith("w3b_MV8")
    assert "=" not in text
    assert access_keys.parse(text) == parsed
    assert parsed.issued_at_s == 1_700_000_000
    content = base64.urlsafe_b64decode(text[4:] + "==").decode()
    version, seconds, random = content.split("_")
    assert (version, seconds, len(random)) == ("1", "1700000000", 12)
    assert all(33 <= ord(character) <= 126 for character in random)
    assert random.encode() not in parsed.digest


def test_two_keys_of_one_moment_differ() -> None:
    assert access_keys.issue(NOW_MS).text != access_keys.issue(NOW_MS).text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "w3b",
        "w3b_",
        "w3b_xxxx",
        "w3b_ä",
        "w3b_M",
        "w3b_MV8=",
        "w3b_M V8",
        "W3B_MV8",
        text_of("1_1700000000"),
        text_of("1_1700000000_abcdefghijkl_x"),
        text_of("1_1700000000_abcdefghijk"),
        text_of("1_1700000000_abcdefghijk_"),
        text_of("1_1700000000_abcdefghijk "),
        text_of("1_170000000x_abcdefghijkl"),
        text_of("1_-170000000_abcdefghijkl"),
        text_of("x_1700000000_abcdefghijkl"),
        text_of("0_1700000000_abcdefghijkl"),
        text_of("2_1700000000_abcdefghijkl"),
        text_of("1_1700000000_abcdefghijkl\n"),
        text_of("1_\u0661700000000_abcdefghijkl"),
        text_of(b"1_1700000000_abcdefghijk\xff"),
        text_of("1_1700000000_abcdefghijkl") + "A" * 200,
    ],
)
def test_what_is_no_key_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(InvalidAccessKeyError) as caught:
        access_keys.parse(text)
    assert len(text) < 5 or text not in str(caught.value)


@given(st.text(max_size=80))
def test_any_text_after_the_prefix_is_a_key_or_refused(text: str) -> None:
    try:
        access_keys.parse(access_keys.PREFIX + text)
    except InvalidAccessKeyError:
        return
    assert access_keys.is_access_key(access_keys.PREFIX + text)


def test_a_key_the_node_does_not_know_is_not_found() -> None:
    parsed = access_keys.issue(NOW_MS).parsed
    with pytest.raises(AccessKeyNotFoundError):
        access_keys.require_valid(None, parsed, NOW_MS)


@pytest.mark.parametrize("off_s", [1, -1, 60, -60, 3_600])
def test_a_key_that_states_another_time_is_refused_whole_minutes_included(off_s: int) -> None:
    parsed = access_keys.issue(NOW_MS).parsed
    forged = access_keys.ParsedKey(parsed.issued_at_s + off_s, parsed.digest)
    with pytest.raises(InvalidAccessKeyError):
        access_keys.require_valid(record(parsed), forged, NOW_MS)


def test_a_key_holds_until_it_expires() -> None:
    parsed = access_keys.issue(NOW_MS).parsed
    key = record(parsed, expires_at=NOW_MS + 10)
    assert access_keys.require_valid(key, parsed, NOW_MS + 9) == key
    with pytest.raises(AccessKeyExpiredError):
        access_keys.require_valid(key, parsed, NOW_MS + 10)
    forever = record(parsed)
    assert access_keys.require_valid(forever, parsed, NOW_MS * 1000) == forever


@pytest.mark.parametrize("granted", ["", "NO_ACCESS", "READONLY", "READ_WRITE", "OWNER"])
@pytest.mark.parametrize("needed", [Permission.READONLY, Permission.READ_WRITE])
def test_a_permission_includes_the_weaker_ones(granted: str, needed: Permission) -> None:
    key = record(
        access_keys.issue(NOW_MS).parsed, privileges={"Applet": granted} if granted else {}
    )
    enough = granted == "READ_WRITE" or granted == needed.name
    if enough:
        access_keys.require_permission(key, Group.APPLET, needed, "GetApplet")
        return
    with pytest.raises(AccessKeyPermissionDeniedError) as caught:
        access_keys.require_permission(key, Group.APPLET, needed, "GetApplet")
    for word in ("GetApplet", "Applet", needed.name):
        assert word in caught.value.desc


def test_unknown_groups_are_dropped_and_the_last_word_on_one_counts() -> None:
    asked = [("Applet", "readonly"), ("Nonsense", "READ_WRITE"), ("Applet", "READ_WRITE")]
    assert access_keys.known_privileges(asked) == {"Applet": "READ_WRITE"}


def test_every_group_is_described() -> None:
    assert set(access_keys.DESCRIPTIONS) == set(Group)
