"""The messages that wait for a page, and those that are left out when it reads slowly."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import BadRequestError, InvalidTokenError
from fieldbrook.core.model import AccessKey, Account
from fieldbrook.gateway.auth import Caller
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.framework.workers import Workers
from fieldbrook.gateway.management.live.channels import TICK_S, Channels
from fieldbrook.gateway.management.live.messages import (
    ROWS_LIMIT,
    TYPES_LIMIT,
    Message,
    Prepared,
    Rows,
    Snapshot,
    add_types,
    read_incoming,
)
from fieldbrook.gateway.management.live.page import WAITING_LIMIT, Following, Page
from fieldbrook.gateway.management.live.row_selection import RowSelection, last_without
from tests.support.management import Server, started


def rows(*shown: str, total: int = 0, failed: int = 0) -> Rows:
    count = total or len(shown)
    return Rows(
        rows=list(shown),
        total=count,
        left_out=count - len(shown),
        place="1",
        failed=failed,
        types={"A": (count, failed)},
        slowest_ms=failed,
    )


def in_loop(
    tmp_path: Path, test: Callable[[Page, Server, ManagementContext], Awaitable[None]]
) -> None:
    server, context = started(tmp_path)
    account = server.account("ada").account

    async def run() -> None:
        page = Page(context, Workers(), Channels(), of_login(account))
        await test(page, server, context)

    asyncio.run(run())
    server.writer.close()


def of_login(account: Account, life_s: float = 600) -> Caller:
    return Caller(account, expires_at_s=int(time.time() + life_s))


async def taken(page: Page) -> list[Any]:
    """Return all waiting messages."""
    found = []
    while data := await page.next(0):
        found.append(json.loads(data))
    return found


def test_rows_that_a_slow_client_never_gets_are_counted_in_a_later_message(tmp_path: Path) -> None:
    async def test(page: Page, *_: Any) -> None:
        one, other = Following(page, 1, "", None), Following(page, 2, "", None)
        page.put(other, Prepared(rows("x", total=5, failed=2)))
        for number in range(WAITING_LIMIT + 3):
            page.put(one, Prepared(rows(str(number), total=10, failed=1)))
        found = await taken(page)
        assert len(found) == WAITING_LIMIT
        assert {message["id"] for message in found} == {1}
        assert found[-1]["rows"] == [str(WAITING_LIMIT + 2)]
        assert sum(message["total"] for message in found) == 10 * (WAITING_LIMIT + 3)
        assert sum(message["failed"] for message in found) == WAITING_LIMIT + 3
        assert all(m["total"] == len(m["rows"]) + m["left_out"] for m in found)
        assert found[0]["types"] == {"A": [40, 4]}
        page.put(other, Prepared(rows("y")))
        (late,) = await taken(page)
        assert (late["id"], late["total"], late["left_out"], late["failed"]) == (2, 6, 5, 2)

    in_loop(tmp_path, test)


def test_of_snapshots_only_the_newest_matters(tmp_path: Path) -> None:
    async def test(page: Page, *_: Any) -> None:
        one = Following(page, 1, "", None)
        for number in range(WAITING_LIMIT + 5):
            page.put(one, Prepared(Snapshot({"n": number})))
        found = await taken(page)
        assert [message["n"] for message in found] == list(range(5, WAITING_LIMIT + 5))

    in_loop(tmp_path, test)


def test_a_page_ends_with_its_login_its_account_and_its_time(tmp_path: Path) -> None:
    async def test(page: Page, server: Server, context: ManagementContext) -> None:
        assert await page.next(0) == b""
        account = server.writer.reader().account_named("ada")
        assert account is not None
        now = [0.0]
        timed = Page(context, Workers(), Channels(), of_login(account, 60), lambda: now[0])
        now[0] = 58
        assert await timed.next(0) == b""
        now[0] = 61
        assert await timed.next(0) is None
        timed.renew(of_login(account, 2 * context.token_lifetime_s))
        now[0] = 60 + context.token_lifetime_s
        assert await timed.next(0) == b""
        now[0] = 62 + context.token_lifetime_s
        assert await timed.next(0) is None
        timed.renew(of_login(account))
        assert await timed.next(0) == b""
        with pytest.raises(InvalidTokenError, match="another account"):
            timed.renew(of_login(server.account("bob").account))
        server.writer.set_account_state(account.account_id, "DISABLED")
        assert await page.next(0) is None

    in_loop(tmp_path, test)


def test_a_stream_with_an_access_key_ends_with_it_and_takes_no_token_with_other_rights(
    tmp_path: Path,
) -> None:
    def key(event: str, expires_at: int) -> AccessKey:
        times = {"created_at": 1, "updated_at": 1, "issued_at_s": 1}
        owner = {"account_id": 1, "identity_id": 1, "identity_type": "ACCOUNT"}
        kept = {"access_key_id": 2, "name": "ci", "digest": b"", "privileges": {"Event": event}}
        return AccessKey(**times, **owner, **kept, expires_at=expires_at)  # type: ignore[arg-type]

    async def test(_: Page, server: Server, context: ManagementContext) -> None:
        account = server.account("eve").account
        now = [0.0]
        soon = int(time.time() * 1000) + 60_000
        caller = Caller(account, key("READONLY", soon))
        page = Page(context, Workers(), Channels(), caller, lambda: now[0])
        for other in (Caller(account, key("READ_WRITE", 0)), of_login(account)):
            with pytest.raises(InvalidTokenError, match="other rights"):
                page.renew(other)
        assert await page.next(0) == b""
        now[0] = 61
        assert await page.next(0) is None

    in_loop(tmp_path, test)


class Numbers:
    """A reader of numbers that a test adds."""

    def __init__(self) -> None:
        self.news: list[Message] = []
        self.begun = 0

    async def begin(self) -> None:
        self.begun += 1

    async def first(self, after: str) -> Message | None:
        return rows(f"after {after}") if after else None

    async def read(self) -> Message | None:
        return self.news.pop(0) if self.news else None


def test_one_reader_serves_all_who_follow_the_same_and_ends_with_the_last(tmp_path: Path) -> None:
    async def test(page: Page, *_: Any) -> None:
        channels, reader = Channels(), Numbers()
        followers = [Following(page, n, "" if n else "7", None) for n in range(3)]
        joined = [channels.follow("key", lambda: reader, each) for each in followers]
        first = await page.next(5)
        assert first is not None
        assert json.loads(first)["rows"] == ["after 7"]
        reader.news.append(rows("a"))
        got = [json.loads(await page.next(5) or b"{}") for _ in followers]
        assert {(each["id"], *each["rows"]) for each in got} == {(0, "a"), (1, "a"), (2, "a")}
        assert (reader.begun, len(channels)) == (1, 1)
        for channel, each in zip(joined, followers, strict=True):
            channel.leave(each)
        assert len(channels) == 0
        await asyncio.sleep(2 * TICK_S)
        reader.news.append(rows("b"))
        assert await page.next(2 * TICK_S) == b""

    in_loop(tmp_path, test)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=300))
def test_failed_rows_are_shown_first_and_the_newest_of_both(seen: list[tuple[bool, int]]) -> None:
    picker: RowSelection[int] = RowSelection()
    for place, (failed, row) in enumerate(seen):
        picker.offer(place, row, failed=failed)
    shown = [place for place, _ in picker.chosen()]
    failures = [place for place, (failed, _) in enumerate(seen) if failed]
    others = [place for place, (failed, _) in enumerate(seen) if not failed]
    kept = failures[-ROWS_LIMIT:]
    room = ROWS_LIMIT - len(kept)
    assert shown == sorted(kept + (others[-room:] if room else []))


def test_the_last_indexes_without_some_are_found_from_the_end() -> None:
    assert last_without(reversed(range(10)), [9, 7], 3) == [5, 6, 8]


def test_counts_by_type_add_up_and_keep_the_most_frequent() -> None:
    many = {str(n): (n, 0) for n in range(TYPES_LIMIT + 10)}
    found = add_types(many, {"0": (1_000, 7)})
    assert len(found) == TYPES_LIMIT
    assert found["0"] == (1_000, 7)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "nonsense", '{"token": 1}', '{"token": "a", "drop": 1}', '{"x": 1}'),
        *('{"follow": {"id": -1, "topic": "health"}}', '{"follow": {"id": 1, "topic": "other"}}'),
        '{"follow": {"id": 1, "topic": "logs", "more": 1}}',
        "[" * 10_000,
    ],
)
def test_a_message_that_is_none_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadRequestError):
        read_incoming(text)
