"""What a speculative run reads, and when its result is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from fieldbrook.actors.project.look_ahead.run import (
    RECORDED_BYTES,
    SpeculativeRun,
    adopt,
    is_valid,
    speculate,
)
from fieldbrook.core.errors import StoreError
from fieldbrook.wasm.run import (
    ApiCall,
    Capabilities,
    Effect,
    EffectRefusedError,
    Message,
    Metric,
    NotInBatchError,
    Run,
)
from tests.support.python_host import PythonHost

LONG = "x" * (RECORDED_BYTES // 8)


class Around(Capabilities):
    """Allows messages to topics that begin with "out", and calls of some hosts."""

    def check_topic(self, topic: str) -> None:
        if not topic.startswith("out"):
            raise EffectRefusedError(f"not to {topic}")

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        return None if url.startswith("http://open/") else (403, "closed")


def early(handler: Callable[[Run], int], store: Mapping[bytes, bytes]) -> SpeculativeRun | None:
    run = Run(b"", read=store.get, capabilities=Around())
    return speculate(PythonHost({"h": handler}), "h", run)


def in_turn(store: Mapping[bytes, bytes]) -> Run:
    return Run(b"", read=store.get, capabilities=Around())


def test_a_run_counts_while_what_it_has_read_is_there() -> None:
    store = {b"a": b"1", b"b": b"x" * 1000}

    def handler(run: Run) -> int:
        return sum(len(run.read(key) or b"") for key in (b"a", b"b", b"c"))

    found = early(handler, store)
    assert found is not None
    assert is_valid(found, in_turn(store))
    for key, value in ((b"a", b"2"), (b"b", b"x" * 999 + b"y"), (b"c", b"")):
        assert not is_valid(found, in_turn({**store, key: value}))
    assert not is_valid(found, in_turn({b"b": store[b"b"]}))
    assert found.size >= 1000


def test_a_key_that_changes_during_a_run_is_read_once() -> None:
    values = iter([b"1", b"2"])

    def handler(run: Run) -> int:
        return int(run.read(b"a") == run.read(b"a"))

    run = Run(b"", read=lambda _key: next(values))
    found = speculate(PythonHost({"h": handler}), "h", run)
    assert found is not None
    assert found.code == 1
    assert is_valid(found, in_turn({b"a": b"1"}))
    assert not is_valid(found, in_turn({b"a": b"2"}))


def test_a_run_counts_while_its_questions_are_answered_alike() -> None:
    def handler(run: Run) -> int:
        capabilities = run.capabilities
        capabilities.check_topic("out/a")
        with pytest.raises(EffectRefusedError, match="not to in"):
            capabilities.check_topic("in")
        assert capabilities.api_refusal("GET", "http://open/") is None
        assert capabilities.api_refusal("GET", "http://other/") == (403, "closed")
        return 0

    found = early(handler, {})
    assert found is not None
    assert is_valid(found, in_turn({}))
    assert not is_valid(found, Run(b"", capabilities=Capabilities()))


@pytest.mark.parametrize(
    "ask",
    [
        lambda run: run.capabilities.send_transaction(run, None, None, b""),
        lambda run: run.capabilities.call_contract(run, 1, b""),
        lambda run: run.capabilities.api_refusal(
            "POST", "w3bstream://w3bstream.com/system/send_tx"
        ),
    ],
    ids=["transaction", "call", "system"],
)
def test_what_asks_a_chain_or_the_node_itself_has_to_wait_for_its_turn(
    ask: Callable[[Run], object],
) -> None:
    def handler(run: Run) -> int:
        with pytest.raises(EffectRefusedError):
            ask(run)
        return 0

    assert early(handler, {}) is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda run, n: run.read(b"%d" % n + bytes(RECORDED_BYTES // 8)),
        lambda run, n: run.read(b"long%d" % n),
        lambda run, n: run.capabilities.check_topic(f"out/{n}" + LONG),
        lambda run, n: run.capabilities.api_refusal(
            "GET", f"http://{n}/" + "x" * (RECORDED_BYTES // 8)
        ),
    ],
    ids=["keys", "values", "topics", "urls"],
)
def test_a_run_that_asks_for_more_than_may_be_kept_ends_and_waits_for_its_turn(
    ask: Callable[[Run, int], object],
) -> None:
    value = bytes(RECORDED_BYTES // 8)
    store = {b"long%d" % n: value for n in range(100)}
    asked = []

    def handler(run: Run) -> int:
        with pytest.raises(NotInBatchError):
            for n in range(100):
                asked.append(n)
                ask(run, n)
        return 0

    assert early(handler, store) is None
    assert len(asked) == 8


def test_what_a_run_has_asked_counts_for_its_size() -> None:
    def handler(run: Run) -> int:
        run.read(bytes(1_000))
        run.capabilities.check_topic("out/" + "x" * 1_000)
        run.writes[bytes(1_000)] = b""
        return 0

    found = early(handler, {})
    assert found is not None
    assert found.size >= 3_000


def test_a_store_that_cannot_be_read_ends_the_run() -> None:
    def fail(_key: bytes) -> bytes | None:
        raise StoreError(reason="broken")

    host = PythonHost({"h": lambda run: len(run.read(b"a") or b"")})
    with pytest.raises(StoreError):
        speculate(host, "h", Run(b"", read=fail))


def test_a_run_is_adopted_as_it_was() -> None:
    effects: list[Effect] = [Message("out/a", b"1"), ApiCall("E", b"{}"), Metric("2")]

    def handler(run: Run) -> int:
        run.logs.append((3, "host", "said \ud800"))
        run.writes[b"b"] = b"1"
        run.writes[b"a"] = b"2"
        run.effects += effects
        return -7

    found, run = early(handler, {}), in_turn({})
    assert found is not None
    assert adopt(found, run) == (-7, "")
    assert run.effects == effects
    assert list(run.writes.items()) == [(b"b", b"1"), (b"a", b"2")]
    assert run.logs == [(3, "host", "said \ud800")]
