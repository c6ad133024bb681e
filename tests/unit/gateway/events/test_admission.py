"""Who may send events, and the cache of publishers."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldbrook.core.clock import now_ms
from fieldbrook.core.errors import DisabledAccountError
from fieldbrook.core.model import DEVELOPER, DISABLED, ENABLED
from fieldbrook.gateway.events.admission import Admission
from fieldbrook.storage.registry.service import RegistryWriter

KEY = b"k" * 32


def test_the_events_of_a_disabled_accounts_projects_are_refused_in_every_form(
    tmp_path: Path,
) -> None:
    writer = RegistryWriter(tmp_path / "registry", 4 << 20, now_ms, KEY)
    account = writer.create_account("ada", "h", DEVELOPER)
    project = writer.create_project(account.account_id, "room")
    publisher = writer.create_publisher(project.project_id, "sensor", "s")
    writer.create_anonymous_publisher(project.project_id)
    key = writer.create_access_key(account.account_id, "ci", {"Event": "READ_WRITE"})
    admission = Admission(writer.reader(), KEY)
    ways: list[Callable[[], object]] = [
        lambda: admission.admit("room", "s", publisher.token),
        lambda: admission.admit("room", "", ""),
        lambda: admission.admit_by_token("room", publisher.token),
        lambda: admission.admit_by_token("room", ""),
        lambda: admission.admit_owner("room", key.text),
    ]

    async def scenario() -> None:
        for state in (ENABLED, DISABLED, ENABLED):
            writer.set_account_state(account.account_id, state)
            await asyncio.sleep(0)
            for way in ways:
                if state == ENABLED:
                    assert way()
                    continue
                with pytest.raises(DisabledAccountError):
                    way()

    asyncio.run(scenario())
    writer.close()


async def test_other_forms_of_a_channel_and_a_token_leave_nothing_behind(tmp_path: Path) -> None:
    writer = RegistryWriter(tmp_path / "registry", 4 << 20, now_ms, KEY)
    account = writer.create_account("ada", "h", DEVELOPER)
    project = writer.create_project(account.account_id, "room")
    publisher = writer.create_publisher(project.project_id, "sensor", "s")
    admission, token = Admission(writer.reader(), KEY), publisher.token
    found = admission.admit("room", "s", f"Bearer {token}")
    raw = admission.admit_by_token("room", token)
    tracemalloc.start()
    for count in range(500):
        assert admission.admit("room", "s", token + " " * (10_000 + count)) == found
    for number in range(10_000):
        blanks = "".join("\t "[number >> bit & 1] for bit in range(7))
        assert admission.admit("room", "s", token + blanks) == found
        channel = f"aid_{number}_room"
        assert admission.admit(channel, "s", token.encode().decode()) == found
        assert admission.admit_by_token(channel, token.encode().decode()) == raw
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1 << 20
    writer.close()
