"""All checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Iterator

from fieldbrook.core.findings import Finding
from fieldbrook.core.settings import Settings
from fieldbrook.node.doctor import folder, machine, ports
from fieldbrook.storage import data_lock


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield one finding for each check; if a check cannot be made, the finding has the reason.

    Nothing is changed, except for a file of 4 KiB in the data folder that is written, synced and
    removed.
    """
    yield machine.versions()
    yield machine.fast_path()
    yield machine.processors()
    yield machine.memory()
    yield machine.address_space()
    yield machine.open_files()
    yield machine.backlog()
    yield machine.time_source()
    running = data_lock.is_held(settings.data)
    yield folder.data_folder(settings.data, running=running)
    yield folder.file_system(settings.data)
    yield folder.space(settings.data, settings.disk_reserve_bytes)
    yield folder.syncs(settings.data)
    yield folder.stores(settings.data)
    yield folder.secrets(settings.data)
    yield from ports.ports(settings, running=running)
    yield ports.certificate(settings)
