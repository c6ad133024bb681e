"""Ended logins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.core.errors import TooManyRequestsError
from fieldbrook.security.tokens import Login
from fieldbrook.storage.registry.commands.accounts import logins
from fieldbrook.storage.registry.service import RegistryWriter


class FakeClock:
    """Unix milliseconds that a test sets."""

    ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def writer(tmp_path: Path, clock: FakeClock) -> Iterator[RegistryWriter]:
    writer = RegistryWriter(tmp_path / "registry", 4 << 20, clock, b"k" * 32)
    yield writer
    writer.close()


def test_an_ended_login_stays_ended_and_caches_learn_of_it(writer: RegistryWriter) -> None:
    reader = writer.reader()
    version = reader.version()
    writer.end_login("a", 900, 2_000_000)
    writer.end_login("a", 900, 2_000_000)
    assert reader.has_ended(Login("a", 900))
    assert not reader.has_ended(Login("a", 901))
    assert not reader.has_ended(Login("b", 900))
    assert reader.version() > version


def test_expired_logins_make_room_for_others(
    writer: RegistryWriter, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "_REMEMBERED", 2)
    writer.end_login("a", 900, 1_500_000)
    writer.end_login("b", 901, 2_500_000)
    with pytest.raises(TooManyRequestsError):
        writer.end_login("c", 902, 2_500_000)
    clock.ms = 2_000_000
    writer.end_login("c", 902, 2_500_000)
    reader = writer.reader()
    assert [reader.has_ended(Login(*login)) for login in (("a", 900), ("b", 901), ("c", 902))] == [
        False,
        True,
        True,
    ]
