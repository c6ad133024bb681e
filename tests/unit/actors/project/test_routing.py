"""Matching of event types to handlers."""

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.project.routing import build_routes, match
from fieldbrook.core.model import STOPPED, Applet, Strategy

APPLET = Applet(
    applet_id=1,
    project_id=9,
    resource_id=2,
    name="a",
    wasm_name="a.wasm",
    instance_id=3,
    sha256="0" * 64,
    created_at=0,
    updated_at=0,
)


def strategy(number: int, event_type: str, handler: str = "start", applet: int = 1) -> Strategy:
    return Strategy(
        strategy_id=number,
        project_id=9,
        applet_id=applet,
        event_type=event_type,
        handler=handler,
        created_at=0,
        updated_at=0,
    )


def handlers(routes: object, event_type: str) -> list[str]:
    return [target.handler for target in match(routes, event_type)]  # type: ignore[arg-type]


def test_an_exact_type_wins_over_default() -> None:
    routes = build_routes([strategy(1, "DEFAULT", "any"), strategy(2, "MINT", "mint")], [APPLET])
    assert handlers(routes, "MINT") == ["mint"]
    assert handlers(routes, "BURN") == ["any"]


def test_types_are_compared_exactly_and_case_sensitively() -> None:
    routes = build_routes([strategy(1, "MINT")], [APPLET])
    assert handlers(routes, "mint") == []
    assert handlers(routes, "MINT ") == []


def test_all_strategies_of_a_type_run_in_creation_order() -> None:
    routes = build_routes([strategy(n, "T", f"h{n}") for n in range(5)], [APPLET])
    assert handlers(routes, "T") == ["h0", "h1", "h2", "h3", "h4"]


def test_a_strategy_without_its_applet_is_not_a_target() -> None:
    assert handlers(build_routes([strategy(1, "T", applet=7)], [APPLET]), "T") == []


def test_a_target_knows_that_its_instance_is_stopped() -> None:
    stopped = Applet(
        **{f: getattr(APPLET, f) for f in APPLET.__struct_fields__} | {"state": STOPPED}
    )
    (target,) = match(build_routes([strategy(1, "T")], [stopped]), "T")
    assert not target.started


@given(
    st.lists(st.sampled_from(["DEFAULT", "A", "B"])), st.sampled_from(["DEFAULT", "A", "B", "C"])
)
def test_what_matches_is_all_of_the_type_or_else_all_of_default(
    types: list[str], event_type: str
) -> None:
    routes = build_routes([strategy(n, t, str(n)) for n, t in enumerate(types)], [APPLET])
    exact = [str(n) for n, t in enumerate(types) if t == event_type]
    default = [str(n) for n, t in enumerate(types) if t == "DEFAULT"]
    assert handlers(routes, event_type) == (exact or default)
