"""Search the registry for names and addresses, with a bounded effort."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from fieldbrook.core.model import Operator, Project
from fieldbrook.security.operator_keys import DEFAULT_OPERATOR
from fieldbrook.storage.registry.reader import RegistryQueries

PROJECT, APPLET, PUBLISHER = "project", "applet", "publisher"
OPERATOR, MONITOR = "operator", "monitor"

OF_A_KIND = 5
ROWS_LIMIT = 20_000
TIME_LIMIT_S = 0.2
_LEAST_SHARE = 20  # the fewest rows of a project to examine, even if there are many projects
_EXACT, _PREFIX, _PART = range(3)


class Match(NamedTuple):
    """A row that matches.

    `rank` is 0 for an equal text, 1 for one that begins with the text, 2 for one that contains it.
    `project` is "" for an operator without projects. `found_id` is the id of the row.
    """

    rank: int
    kind: str
    name: str
    project: str
    found_id: str


class Effort:
    """The rows and the time that are left for one search."""

    def __init__(
        self,
        rows: int = ROWS_LIMIT,
        time_s: float = TIME_LIMIT_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self._until, self._monotonic = rows, monotonic() + time_s, monotonic

    def share(self, projects: int) -> int:
        """Return how many rows of the next project may be examined, when `projects` are left.

        0 ends the search.
        """
        if self._rows <= 0 or self._monotonic() >= self._until:
            return 0
        return max(_LEAST_SHARE, self._rows // projects)

    def took(self, rows: int) -> None:
        """Note that this many rows were examined."""
        self._rows -= rows


class _Best:
    """Keeps the best matches of each kind: those with the lowest rank, then those that were found
    first."""

    def __init__(self, text: str, kinds: Set[str]) -> None:
        self._text, self._kinds = text.casefold(), kinds
        self._found: dict[str, list[tuple[int, int, Match]]] = {}
        self._number = 0

    def offer(self, kind: str, name: str, project: str, row_id: int, *texts: str) -> None:
        """Keep a row if one of its texts matches."""
        ranks = [rank for text in texts if (rank := self._rank(text.casefold())) is not None]
        if kind not in self._kinds or not ranks:
            return
        match = Match(min(ranks), kind, name, project, str(row_id))
        found = self._found.setdefault(kind, [])
        if all(match != known for _, _, known in found):
            self._number += 1
            insort(found, (match.rank, self._number, match))
            del found[OF_A_KIND:]

    def _rank(self, text: str) -> int | None:
        if self._text not in text:
            return None
        if text == self._text:
            return _EXACT
        return _PREFIX if text.startswith(self._text) else _PART

    def matches(self) -> list[Match]:
        """Return all kept matches, kind by kind."""
        return [match for found in self._found.values() for _, _, match in found]


def search_registry(
    registry: RegistryQueries,
    text: str,
    projects: Sequence[Project],
    account_id: int,
    kinds: Set[str],
    effort: Effort,
) -> list[Match]:
    """Find names and addresses that contain a text; case is ignored.

    Args:
        registry: a snapshot.
        text: what to find.
        projects: the projects whose applets, publishers and addresses of monitors are searched.
        account_id: the account whose operators are searched.
        kinds: the kinds of rows to look for.
        effort: the limit of the search. Even if a project has many rows, the others are examined,
            too.

    Returns:
        At most `OF_A_KIND` matches of each kind.
    """
    best = _Best(text, kinds)
    for project in projects:
        best.offer(PROJECT, project.name, project.name, project.project_id, project.name)
    if OPERATOR in kinds:
        for operator in registry.operators(account_id, limit=ROWS_LIMIT):
            user = _signs_for(registry, operator, projects)
            address, row_id = operator.address, operator.operator_id
            best.offer(OPERATOR, address, user, row_id, address)
    for at, project in enumerate(projects):
        rows = effort.share(len(projects) - at)
        if not rows:
            break
        effort.took(_search_project(registry, best, text, project, rows, kinds))
    return best.matches()


def _search_project(
    registry: RegistryQueries, best: _Best, text: str, project: Project, rows: int, kinds: Set[str]
) -> int:
    """Examine at most this many rows of a project; return the number of examined rows."""
    project_id, name = project.project_id, project.name
    looked = 1
    if APPLET in kinds:
        for applet in registry.applets(project_id, limit=rows):
            looked += 1
            best.offer(APPLET, applet.name, name, applet.applet_id, applet.name)
    if MONITOR in kinds:
        for monitor in registry.monitors(project_id, limit=rows):
            looked += 1
            best.offer(MONITOR, monitor.address, name, monitor.monitor_id, monitor.address)
    if PUBLISHER in kinds:
        # The publisher with exactly this key is found even if not all publishers are examined.
        exact = registry.publisher_with_key(project_id, text)
        listed = registry.publishers(project_id, limit=rows)
        for publisher in listed if exact is None else [exact, *listed]:
            looked += 1
            texts = publisher.key, publisher.name
            best.offer(PUBLISHER, publisher.name, name, publisher.publisher_id, *texts)
    return looked


def _signs_for(registry: RegistryQueries, operator: Operator, projects: Sequence[Project]) -> str:
    """Return the name of a project for which an operator signs; "" if there is none."""
    for bound in registry.projects_of_operator(operator.operator_id)[:1]:
        project = registry.project(bound.project_id)
        return "" if project is None else project.name
    if operator.name == DEFAULT_OPERATOR:
        for project in projects[:_LEAST_SHARE]:
            is_own = project.account_id == operator.account_id
            if is_own and registry.project_operator(project.project_id) is None:
                return project.name
    return ""
