"""Which handler each result of an event is from: the later reply names applet and handler."""

from __future__ import annotations

from fieldbrook.actors.project.routing import Routes, build_routes, match
from fieldbrook.actors.wire import HandlerResult
from fieldbrook.storage.registry.service import RegistryReader


class HandlerNames:
    """Names of applets and handlers, remembered until the registry's change counter moves."""

    def __init__(self, reader: RegistryReader) -> None:
        self._reader = reader
        self._version = -1
        self._routes: dict[int, Routes] = {}

    def of(
        self, project_id: int, event_type: str, results: tuple[HandlerResult, ...]
    ) -> list[tuple[str, str]]:
        """The applet's name and the handler's for each result of an event.

        The project runs the matching strategies in their order and answers in it. When a
        strategy was changed between its run and this look, what is unsure stays empty.

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
