"""The line with the address of the dashboard, which a node prints when it is ready."""

from __future__ import annotations

import ipaddress
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fieldbrook.core.errors import NodeError
from fieldbrook.core.settings import Settings, listed
from fieldbrook.security import node_secrets, tls

log = logging.getLogger(__name__)

_HAS_NONE = 3


def announce(settings: Settings) -> None:
    """Print the dashboard's address at a terminal, else log it.

    A node without an administrator is set up at `/setup` with a code. The code itself is shown at a
    terminal only, because logs are kept and sent elsewhere; the log names its file.
    """
    address = dashboard_address(settings)
    if not _needs_setup(settings.data):
        _say(f"dashboard  {address}", "the dashboard is at %s", address)
        return
    secrets = settings.data / "secrets"
    _say(
        f"dashboard  {address}/setup  (setup code: {node_secrets.setup_code(secrets)})",
        "no administrator yet: open %s/setup or run `fieldbrook admin create`; the setup code is "
        "in %s",
        address,
        secrets / node_secrets.SETUP_CODE,
        level=logging.WARNING,
    )


def dashboard_address(settings: Settings) -> str:
    """The URL at which a browser on this machine, or one on the way of the settings, is served."""
    secure = settings.plain_dashboard != "serve"
    host = settings.dashboard_bind
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_loopback or address.is_unspecified:
            host = "localhost"
        elif address.version == 6:
            host = f"[{host}]"
    if secure:
        host = _own_name(settings) or host
    return f"{'https' if secure else 'http'}://{host}:{settings.dashboard_port}"


def _own_name(settings: Settings) -> str:
    """The first name under which the configured certificate is valid; "" when there is none."""
    names = listed(settings.dashboard_hosts)
    if not names and settings.tls_certificate is not None:
        names = tls.names_in(settings.tls_certificate)
    return next((name for name in names if not name.startswith("*.") and ":" not in name), "")


def _say(shown: str, logged: str, *values: object, level: int = logging.INFO) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(f"{shown}\n")
        sys.stdout.flush()
    else:
        log.log(level, logged, *values)


def _needs_setup(data: Path) -> bool:
    def look() -> int:
        from fieldbrook.storage.registry.service import RegistryReader

        return 0 if RegistryReader(data / "registry").has_administrator() else _HAS_NONE

    return in_child(look) == _HAS_NONE


def in_child(work: Callable[[], int]) -> int:
    """Run `work` in a forked child and return its exit code, 2 when it failed.

    For what opens LMDB: it must not be open in a process that forks. The process has no threads.
    """
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 2
    try:
        code = work()
    except NodeError as error:
        log.critical("%s", error)
    except BaseException:
        log.exception("cannot read the stores of the data folder")
    finally:
        os._exit(code)
