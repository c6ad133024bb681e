"""A large registry, made directly while the node is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.servers import Device
from fieldbrook.core import clock
from fieldbrook.core.model import Project
from fieldbrook.security import node_secrets
from fieldbrook.storage.registry.commands.change import Change
from fieldbrook.storage.registry.service import RegistryWriter

_MAP_BYTES = 4 << 30


class _OneTransaction(RegistryWriter):
    """Its commands share the transaction of `together`: a sync for all, not for each."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Every change inside the block is on disk when it ends, or none is."""
        with self._environment.begin(write=True) as self._txn:
            yield

    @contextmanager
    def change(self, *, uses_reserve: bool = False) -> Iterator[Change]:
        change = Change(self, self._txn, self._clock())
        yield change
        change.count()


@contextmanager
def _open(data: Path, project_name: str) -> Iterator[tuple[RegistryWriter, Project]]:
    token_key = node_secrets.load_or_create_key(data / "secrets", "token.key")
    writer = _OneTransaction(data / "registry", _MAP_BYTES, clock.now_ms, token_key)
    try:
        project = writer.reader().project_named(project_name)
        assert project is not None
        with writer.together():
            yield writer, project
    finally:
        writer.close()


def fill_publishers(data: Path, first: Device, count: int) -> list[Device]:
    """Add publishers to the project of `first` until it has `count`; returns all of them."""
    with _open(data, first.project) as (writer, project):
        names = [f"m{number}" for number in range(count - 1)]
        made = [writer.create_publisher(project.project_id, name, name) for name in names]
    return [first, *(Device(first.project, p.key, p.token) for p in made)]


def fill_projects(data: Path, first: Device, count: int) -> list[Device]:
    """Register projects with a publisher each until there are `count`; returns the first
    one's publisher alone, for the others have no applet."""
    with _open(data, first.project) as (writer, project):
        for number in range(count - 1):
            other = writer.create_project(project.account_id, f"other{number}")
            writer.create_publisher(other.project_id, "d0", "d0")
    return [first]
