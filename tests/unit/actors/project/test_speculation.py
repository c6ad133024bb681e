"""What a shard tells of a run, and when it counts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.project.speculation import (
    API,
    TOPIC,
    Finding,
    pack,
    sign_of,
    still_so,
    take_over,
    told,
    unpack,
)
from fieldbrook.wasm.run import ApiCall, EffectRefusedError, Message, Metric, Run, Capabilities


class Around(Capabilities):
    """Lets messages go to topics that begin with "out"; no host can be called."""

    def check_topic(self, topic: str) -> None:
        if not topic.startswith("out"):
            raise EffectRefusedError(f"not to {topic}")


def finding(**changed: Any) -> Finding:
    whole: dict[str, Any] = {
        "code": 0,
        "error": "",
        "logs": [],
        "writes": {},
        "effects": [],
        "reads": [],
        "asked": [],
        "seconds": 0.0,
    }
    return Finding(**(whole | changed))


def travelled(sent: Finding) -> Finding:
    return Finding(*unpack(pack(sent)))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_values_have_the_same_sign_only_if_they_are_the_same(one: bytes, other: bytes) -> None:
    assert (sign_of(one) == sign_of(other)) == (one == other)
    assert sign_of(one) != sign_of(None)
    assert len(sign_of(one) or b"") <= 65


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
    sent = finding(
        code=-7, error=text, logs=[(3, "host", text)], writes=writes, effects=told(effects)
    )
    run = Run(b"")
    assert take_over(travelled(sent), run) == (-7, text)
    assert (run.effects, run.writes, list(run.writes)) == (effects, writes, list(writes))
    assert run.logs == [(3, "host", text)]


def test_a_run_counts_while_what_it_has_read_is_there() -> None:
    store = {b"a": b"1", b"b": b"x" * 1000}
    reads = [(b"a", sign_of(b"1")), (b"b", sign_of(b"x" * 1000)), (b"c", None)]
    found = travelled(finding(reads=reads))
    assert still_so(found, store.get, Around())
    for key, value in ((b"a", b"2"), (b"b", b"x" * 999 + b"y"), (b"c", b""), (b"a", None)):
        changed = {**store, key: value}
        assert not still_so(found, changed.get, Around())


def nothing(_key: bytes) -> None:
    return None


def test_a_run_counts_while_its_questions_are_answered_alike() -> None:
    asked: list[Any] = [(TOPIC, ("out/a",), None), (TOPIC, ("in",), "not to in")]
    asked.append((API, ("GET", "http://a/"), (404, "GET http://a/: there is no such route")))
    assert still_so(travelled(finding(asked=asked)), nothing, Around())
    assert not still_so(finding(asked=[(TOPIC, ("in",), None)]), nothing, Around())
    assert not still_so(finding(asked=[(TOPIC, ("out",), "full")]), nothing, Around())
