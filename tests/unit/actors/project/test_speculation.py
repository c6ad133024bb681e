"""What a shard tells of a run, and when it counts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.project.speculation import (
    API,
    TOPIC,
    SpeculativeRun,
    adopt,
    encode_effects,
    fingerprint,
    is_valid,
    pack,
    unpack,
)
from fieldbrook.wasm.run import ApiCall, Capabilities, EffectRefusedError, Message, Metric, Run


class Around(Capabilities):
    """Lets messages go to topics that begin with "out"; no host can be called."""

    def check_topic(self, topic: str) -> None:
        if not topic.startswith("out"):
            raise EffectRefusedError(f"not to {topic}")


def speculative_run(**changed: Any) -> SpeculativeRun:
    whole: dict[str, Any] = {
        "code": 0,
        "error": "",
        "logs": [],
        "writes": {},
        "effects": [],
        "reads": [],
        "queries": [],
        "seconds": 0.0,
    }
    return SpeculativeRun(**(whole | changed))


def travelled(sent: SpeculativeRun) -> SpeculativeRun:
    return SpeculativeRun(*unpack(pack(sent)))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_values_have_the_same_sign_only_if_they_are_the_same(one: bytes, other: bytes) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)
    assert fingerprint(one) != fingerprint(None)
    assert len(fingerprint(one) or b"") <= 65


@given(
    st.lists(
        st.one_of(
            st.builds(Message, st.text(), st.binary()),
            st.builds(ApiCall, st.text(), st.binary()),
            st.builds(Metric, st.text()),
        )
    ),
    st.dictionaries(st.binary(), st.binary()),
    st.text(st.characters()),
)
def test_a_run_is_taken_over_as_it_was(
    effects: list[Any], writes: dict[bytes, bytes], text: str
) -> None:
    sent = speculative_run(
        code=-7,
        error=text,
        logs=[(3, "host", text)],
        writes=writes,
        effects=encode_effects(effects),
    )
    run = Run(b"")
    assert adopt(travelled(sent), run) == (-7, text)
    assert (run.effects, run.writes, list(run.writes)) == (effects, writes, list(writes))
    assert run.logs == [(3, "host", text)]


def test_a_run_counts_while_what_it_has_read_is_there() -> None:
    store = {b"a": b"1", b"b": b"x" * 1000}
    reads = [(b"a", fingerprint(b"1")), (b"b", fingerprint(b"x" * 1000)), (b"c", None)]
    found = travelled(speculative_run(reads=reads))
    assert is_valid(found, store.get, Around())
    for key, value in ((b"a", b"2"), (b"b", b"x" * 999 + b"y"), (b"c", b""), (b"a", None)):
        changed = {**store, key: value}
        assert not is_valid(found, changed.get, Around())


def nothing(_key: bytes) -> None:
    return None


def test_a_run_counts_while_its_questions_are_answered_alike() -> None:
    queries: list[Any] = [(TOPIC, ("out/a",), None), (TOPIC, ("in",), "not to in")]
    queries.append((API, ("GET", "http://a/"), (404, "GET http://a/: there is no such route")))
    assert is_valid(travelled(speculative_run(queries=queries)), nothing, Around())
    assert not is_valid(speculative_run(queries=[(TOPIC, ("in",), None)]), nothing, Around())
    assert not is_valid(speculative_run(queries=[(TOPIC, ("out",), "full")]), nothing, Around())
