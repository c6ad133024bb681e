"""Routes from event types to handlers, built once per registry version."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from fieldbrook.core.model import DEFAULT_EVENT_TYPE, STARTED, Applet, Strategy


class Target(msgspec.Struct, frozen=True):
    """One handler to run for an event. It is `dead` when its module does not export it."""

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

    A strategy whose applet was removed gets no target. The registry removes both together, so this
    happens only when strategies and applets were read in two snapshots.

    Args:
        strategies: the strategies of a project.
        applets: its applets.
        exported: the handlers of each applet's module, by applet id. A target is dead when its
            handler is not among them. Handlers of applets without an entry count as exported.
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
    """Return the target of one strategy; None when it has none any more."""
    targets = (target for targets in routes.values() for target in targets)
    return next((target for target in targets if target.strategy_id == strategy_id), None)


def count_dead(routes: Routes) -> int:
    """Count the strategies whose handler is not exported by their module."""
    return sum(target.dead for targets in routes.values() for target in targets)


def match(routes: Routes, event_type: str) -> tuple[Target, ...]:
    """Return the handlers of an event: those of its exact type, else of DEFAULT, else none."""
    return routes.get(event_type) or routes.get(DEFAULT_EVENT_TYPE, ())
