"""Requests between processes about the clients of the MQTT server."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.core.errors import StorageFullError, UnavailableError
from fieldbrook.gateway.mqtt.inspection import QUESTION, SERVER, RemoteInspection, answers
from fieldbrook.gateway.peers import ask_peer, serve_peers
from tests.support.mqtt_memory import MemoryMqtt, client, key_of, session


async def test_every_question_is_answered_by_the_process_that_has_the_clients(
    tmp_path: Path,
) -> None:
    mqtt = MemoryMqtt()
    mqtt.add(client("a"), client("b", "publisher 7"))
    mqtt.retain("t", b"\0\xff")
    asked = RemoteInspection(tmp_path)
    async with await serve_peers(tmp_path, SERVER, answers(mqtt)):
        assert await asked.clients("", 10) == [client("a"), client("b", "publisher 7")]
        assert await asked.clients(key_of("a"), 10) == [client("b", "publisher 7")]
        assert await asked.clients("", 1) == [client("a")]
        assert await asked.client(key_of("a")) == client("a")
        assert await asked.client("none") is None
        assert await asked.keys("b") == [key_of("b", "publisher 7")]
        assert [each.key for each in await asked.sessions("", 1)] == [key_of("a")]
        found = await asked.session(key_of("a"))
        assert found is not None
        assert found.is_connected
        assert list(found.filters) == list(session("a").filters)
        assert await asked.disconnect(key_of("a")) is True
        assert await asked.disconnect(key_of("a")) is False
        assert await asked.remove_session(key_of("a")) is True
        assert await asked.session(key_of("a")) is None
        (kept,) = await asked.retained("", 10)
        assert (kept.topic, kept.size, kept.payload) == ("t", 2, b"")
        message = await asked.retained_message("t")
        assert message is not None
        assert message.payload == b"\0\xff"
        assert await asked.remove_retained("t") is True
        assert await asked.retained_message("t") is None
        assert await asked.publish("t", b"\0\xff", 2, retain=True) == 1
        assert mqtt.published == [("t", b"\0\xff", 2, True)]


async def test_what_the_server_refuses_is_the_same_error_for_who_asked(tmp_path: Path) -> None:
    mqtt = MemoryMqtt()
    mqtt.is_full = True
    asked = RemoteInspection(tmp_path)
    async with await serve_peers(tmp_path, SERVER, answers(mqtt)):
        with pytest.raises(StorageFullError, match="size limit"):
            await asked.publish("t", b"", 0, retain=True)


async def test_only_these_questions_are_answered(tmp_path: Path) -> None:
    async with await serve_peers(tmp_path, SERVER, answers(MemoryMqtt())):
        for name in ("add", "_check", "__init__"):
            with pytest.raises(UnavailableError):
                await ask_peer(tmp_path, SERVER, QUESTION, [name, [], {}])


async def test_without_the_process_the_answer_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=SERVER):
        await RemoteInspection(tmp_path).clients("", 10)
