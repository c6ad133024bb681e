"""The instance pool: loads each applet of a project when the first event needs it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.core.model import PER_INSTANCE, Applet
from fieldbrook.wasm.engine.applet import Host, load_host
from fieldbrook.wasm.engine.engine import Engine, engine_tag
from fieldbrook.wasm.limits import Limits

_REFUSED_S = 600.0  # a module that cannot be loaded is not tried again for this time


class InstancePool:
    """A linked host per applet and module version.

    The pool keeps the compiled and linked modules. The host makes an instance per event, which
    takes microseconds.

    Args:
        modules_dir: the folder with the files of all modules.
        limits: the limits of a run.
        engine: the WebAssembly engine, with the same limits; all projects of a process share it.
        account_id: the account that owns the project. Accounts take turns when modules have to be
            compiled.
    """

    def __init__(
        self, modules_dir: Path, limits: Limits, engine: Engine, account_id: int = 0
    ) -> None:
        self._modules_dir = modules_dir
        self._limits = limits
        self._engine = engine
        self._account_id = account_id
        self._hosts: dict[int, tuple[object, Host]] = {}
        # Modules that could not be loaded: until when each is refused, the time stamp of its
        # compiled file, and the reason.
        self._failed: dict[str, tuple[float, int, str]] = {}

    def host(self, applet: Applet, waiting: Callable[[], None] = lambda: None) -> Host:
        """Return the host of an applet for its present module and isolation.

        `waiting` is passed to `load_host`.

        Raises:
            ModuleRefusedError: the module's files are gone or cannot be loaded.
        """
        loaded = self.loaded(applet)
        if loaded is not None:
            return loaded
        applet_id, sha256 = applet.applet_id, applet.sha256
        self.drop(applet_id)
        compiled = self._modules_dir / f"{sha256}.{engine_tag()}.cwasm"
        source = self._modules_dir / f"{sha256}.wasm"
        failed = self._failed.get(sha256)
        if (
            failed is not None
            and time.monotonic() < failed[0]
            and failed[1] == _changed_at(compiled)
        ):
            raise ModuleRefusedError(reason=failed[2])
        try:
            reuse_events = applet.reuse_events if applet.isolation == PER_INSTANCE else 0
            host = load_host(
                self._engine,
                compiled,
                source,
                self._limits,
                reuse_events,
                waiting,
                account_id=self._account_id,
            )
        except ModuleRefusedError as error:
            until = time.monotonic() + _REFUSED_S
            self._failed[sha256] = until, _changed_at(compiled), error.desc
            raise
        except OSError as error:
            raise ModuleRefusedError(reason=f"module {sha256[:12]}: {error.strerror}") from error
        self._failed.pop(sha256, None)
        self._hosts[applet_id] = (_version(applet), host)
        return host

    @property
    def kept_bytes(self) -> int:
        """The memory of the instances that wait for the next event."""
        return sum(host.kept_bytes for _, host in self._hosts.values())

    def loaded(self, applet: Applet) -> Host | None:
        """Return the host of an applet if its module is loaded, otherwise None."""
        held = self._hosts.get(applet.applet_id)
        return held[1] if held is not None and held[0] == _version(applet) else None

    def keep_only(self, applets: Iterable[Applet]) -> None:
        """Release the hosts of applets that are gone."""
        for applet_id in self._hosts.keys() - {applet.applet_id for applet in applets}:
            self.drop(applet_id)

    def drop(self, applet_id: int) -> None:
        """Release one applet's host, if it is loaded."""
        with contextlib.suppress(KeyError):
            self._hosts.pop(applet_id)[1].close()

    def close(self) -> None:
        """Release everything."""
        for applet_id in list(self._hosts):
            self.drop(applet_id)


def _changed_at(file: Path) -> int:
    """Return when a file was last written (an upload writes it again); 0 if it does not exist."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _version(applet: Applet) -> object:
    """Return the values that a host depends on, to compare them with another applet record's."""
    if applet.isolation != PER_INSTANCE:
        return applet.sha256
    # `updated_at` ends a kept instance when the applet is restarted or changed.
    return applet.sha256, applet.reuse_events, applet.updated_at
