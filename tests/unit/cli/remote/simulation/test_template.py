"""Templates of payloads for simulated devices."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.remote.simulation.template import (
    PLACEHOLDERS_LIMIT,
    SIZE_LIMIT_BYTES,
    Moment,
    Template,
)


def moment(count: int = 1, seed: int = 1) -> Moment:
    return Moment("device-1", count, random.Random(seed), {})


def render(text: str, at: Moment | None = None) -> str:
    return Template(text).render(at or moment()).decode()


def test_placeholders_are_filled_in_and_all_else_stays() -> None:
    made = render('{"d": "{{device}}", "n": {"c": {{count}}}, "t": {{now}}, "é": "}} {"}')
    shown = json.loads(made)
    assert (shown["d"], shown["n"], shown["é"]) == ("device-1", {"c": 1}, "}} {")
    assert shown["t"] > 1_600_000_000_000


def test_a_text_without_placeholders_is_sent_as_it_is() -> None:
    assert Template("21.5").render(moment()) == b"21.5"
    assert Template("").render(moment()) == b""
    assert Template("\udcff").render(moment()) == b"\xff"  # a byte of the command line


@given(st.integers(-50, 50), st.integers(0, 50), st.integers(0, 1_000))
def test_random_numbers_lie_between_and_have_as_many_decimals(
    low: int, more: int, seed: int
) -> None:
    high = low + more
    assert low <= int(render(f"{{{{random {low} {high}}}}}", moment(seed=seed))) <= high
    text = render(f"{{{{random {low}.00 {high}}}}}", moment(seed=seed))
    assert low <= float(text) <= high
    assert len(text.partition(".")[2]) == 2


def test_a_choice_is_one_of_its_words() -> None:
    made = {render("{{choice on off 7}}", moment(seed=seed)) for seed in range(50)}
    assert made == {"on", "off", "7"}


def test_a_walk_begins_at_its_start_and_takes_small_steps() -> None:
    template, chance = Template("{{walk 20.0 0.5}} {{walk 0 1}}"), random.Random(7)
    walks: dict[int, float] = {}
    values = [
        tuple(map(float, template.render(Moment("d", count, chance, walks)).split()))
        for count in range(1, 200)
    ]
    assert values[0] == (20.0, 0.0)
    for (one, _), (other, _) in itertools.pairwise(values):
        assert abs(one - other) <= 0.5 + 0.1  # of rounding
    assert len({value for _, value in values}) > 1


def test_the_same_seed_makes_the_same_values() -> None:
    text = "{{random 0 1000000}} {{choice a b c d e f g h}}"
    assert render(text, moment(seed=3)) == render(text, moment(seed=3))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{{nothing}}", "nothing"),
        ("{{}}", "{{}}"),
        ("{{count 1}}", "count 1"),
        ("{{random 1}}", "random 1"),
        ("{{random 2 1}}", "2 is more than 1"),
        ("{{random a b}}", "a is not a number"),
        ("{{random 1e9 2e9}}", "1e9"),
        ("{{random 1 10000000000000}}", "10000000000000"),
        ("{{random nan 1}}", "nan"),
        ("{{random 1 ٣}}", "٣"),
        ("{{choice}}", "choice"),
        (f"{{{{choice {'a ' * 101}}}}}", "choice"),
        ("{{walk 1}}", "walk 1"),
        ("{{__import__('os')}}", "__import__"),
        ("{{count", "not closed"),
        ("{{ {count} }}", "not closed"),
        ("x" * (SIZE_LIMIT_BYTES + 1), "64 KiB"),
        ("{{count}}" * (PLACEHOLDERS_LIMIT + 1), "100 placeholders"),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(text: str, named: str) -> None:
    with pytest.raises(WrongUsageError, match=named.replace("(", r"\(").replace(")", r"\)")):
        Template(text)
