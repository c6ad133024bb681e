"""Names of the applet and the handler behind each result, for replies to raw events."""

from __future__ import annotations

from fieldbrook.actors.project.routing import Routes, build_routes, match
from fieldbrook.actors.wire import HandlerResult
from fieldbrook.storage.registry.service import RegistryReader


class HandlerNames:
    """Names of applets and handlers, cached until the registry's change counter moves."""

    def __init__(self, reader: RegistryReader) -> None:
        self._reader = reader
        self._version = -1
        self._routes: dict[int, Routes] = {}

    def of(
        self, project_id: int, event_type: str, results: tuple[HandlerResult, ...]
    ) -> list[tuple[str, str]]:
        """Return the names of the applet and of the handler for each result of an event.

        The project runs the matching strategies in order, and its results have the same order.
        When a strategy changed between the run and this call, names that are uncertain are "".

        Raises:
            StoreError: the registry cannot be read.
        """
        version = self._reader.version()
        if version != self._version:
            self._routes.clear()
            self._version = version
        routes = self._routes.get(project_id)
        if routes is None:
            with self._reader.snapshot() as registry:
                routes = build_routes(registry.strategies(project_id), registry.applets(project_id))
            self._routes[project_id] = routes
        targets = match(routes, event_type)
        if [target.instance_id for target in targets] == [result[0] for result in results]:
            return [(target.applet_name, target.handler) for target in targets]
        names = {t.instance_id: t.applet_name for many in routes.values() for t in many}
        return [(names.get(result[0], ""), "") for result in results]
