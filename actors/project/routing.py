"""Event type to handlers: built once per registry version, looked up per event."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from fieldbrook.core.model import DEFAULT_EVENT_TYPE, STARTED, Applet, Strategy


@dataclass(frozen=True, slots=True)
class Target:
    """One handler to run for an event. One that its module does not export is dead."""

    strategy_id: int
    applet_id: int
    instance_id: int
    applet_name: str
    handler: str
    started: bool
    version: int = 0
    dead: bool = False


Routes = Mapping[str, tuple[Target, ...]]


def build_routes(
    strategies: Iterable[Strategy],
    applets: Iterable[Applet],
    exported: Mapping[int, Container[str]] | None = None,
) -> Routes:
    """Group strategies by event type, in creation order.

    A strategy whose applet is gone has no target: the registry removes both together, so
    this is only seen between two reads.

    Args:
        exported: the handlers of each applet's module, by the applet's id; a target is dead
            when its own is not among them.
    """
    exported = exported or {}
    by_id = {applet.applet_id: applet for applet in applets}
    routes: dict[str, tuple[Target, ...]] = {}
    for strategy in strategies:
        applet = by_id.get(strategy.applet_id)
        if applet is None:
            continue
        target = Target(
            strategy_id=strategy.strategy_id,
            applet_id=applet.applet_id,
            instance_id=applet.instance_id,
            applet_name=applet.name,
            handler=strategy.handler,
            started=applet.state == STARTED,
            version=applet.version,
            dead=strategy.handler not in exported.get(applet.applet_id, (strategy.handler,)),
        )
        routes[strategy.event_type] = (*routes.get(strategy.event_type, ()), target)
    return routes


def find_target(routes: Routes, strategy_id: int) -> Target | None:
    """The handler of one strategy, if it is still there."""
    targets = (target for targets in routes.values() for target in targets)
    return next((target for target in targets if target.strategy_id == strategy_id), None)


def count_dead(routes: Routes) -> int:
    """How many strategies name a handler that their module does not export."""
    return sum(target.dead for targets in routes.values() for target in targets)


def match(routes: Routes, event_type: str) -> tuple[Target, ...]:
    """The handlers of an event: those of its exact type, else those of DEFAULT, else none."""
    return routes.get(event_type) or routes.get(DEFAULT_EVENT_TYPE, ())
