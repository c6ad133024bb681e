"""The text that a node prints when it is ready: addresses, data folder, next command."""

from __future__ import annotations

import ipaddress
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fieldbrook.core.errors import NodeError
from fieldbrook.core.settings import Settings, listed
from fieldbrook.security import node_secrets, tls
from fieldbrook.system.process import installed_program

log = logging.getLogger(__name__)

_HAS_NONE = 3
_DEFAULT_HTTP_PORT = 8888  # of the command line


def announce(settings: Settings) -> None:
    """Print the addresses, the data folder and the next command on a terminal; without a terminal,
    log them.

    A node without an administrator is set up at `/setup` with a code. The code itself is shown only
    on a terminal, because logs are stored and forwarded; the log names the file of the code.
    """
    address = dashboard_address(settings)
    needs_setup = _needs_setup(settings.data)
    if sys.stdout.isatty():
        sys.stdout.write(ready_block(settings, address, needs_setup=needs_setup))
        sys.stdout.flush()
        return
    if needs_setup:
        secrets = settings.data / "secrets"
        log.warning(
            "no administrator yet: open %s/setup or run `%s`; the setup code is in %s",
            address,
            next_command(settings, needs_setup=True),
            secrets / node_secrets.SETUP_CODE,
        )
    else:
        log.info("the dashboard is at %s", address)
    log.info("events: %s; data: %s", ", ".join(event_addresses(settings)), settings.data)


def ready_line(bind: str, port: int) -> str:
    """Return the text by which programs detect that a node is ready: `listen on :8888`.

    It is the text of W3bstream; an address follows if the node does not listen on all addresses.
    """
    everywhere = False
    with suppress(ValueError):
        everywhere = ipaddress.ip_address(bind).is_unspecified
    return f"listen on :{port}" + ("" if everywhere else f" ({bind} only)")


def ready_block(settings: Settings, address: str, *, needs_setup: bool) -> str:
    """Return the lines for a terminal; `address` is the address of the dashboard."""
    page = address
    if needs_setup:
        code = node_secrets.setup_code(settings.data / "secrets")
        page = f"{address}/setup  (setup code: {code})"
    lines = {
        "dashboard": page,
        "events": "  ".join(event_addresses(settings)),
        "data": str(settings.data),
        "next": next_command(settings, needs_setup=needs_setup),
        "stop": "Ctrl-C",
    }
    return "".join(f"{name:<9}  {text}\n" for name, text in lines.items())


def event_addresses(settings: Settings) -> list[str]:
    """Return the URLs to which devices on this machine send events, over HTTP and MQTT."""
    secure = settings.tls_certificate is not None
    host = _host_for_clients(settings, settings.bind, secure=secure)
    found = [f"{'https' if secure else 'http'}://{host}:{settings.http_port}"]
    if settings.mqtt_broker is not None:
        return [*found, f"mqtt://{settings.mqtt_broker}"]
    secure = secure and settings.mqtt_tls
    return [*found, f"{'mqtts' if secure else 'mqtt'}://{host}:{settings.mqtt_port}"]


def next_command(settings: Settings, *, needs_setup: bool) -> str:
    """Return a command for a second terminal in the same folder, in the form in which the user
    types it."""
    words = [_program()]
    if needs_setup and settings.data != Path.cwd() / "data":
        words.append(f"--data {shlex.quote(_relative(settings.data))}")
    words.append("admin create" if needs_setup else "project list")
    if settings.http_port != _DEFAULT_HTTP_PORT or settings.tls_certificate is not None:
        words.append(f"--server {event_addresses(settings)[0]}")
    return " ".join(words)


def _program() -> str:
    """Return the command of this installation: its name if the shell finds it, otherwise its
    path."""
    here = installed_program("fieldbrook")
    found = shutil.which("fieldbrook")
    if found is not None and Path(found).resolve() == here.resolve():
        return "fieldbrook"
    return shlex.quote(_relative(here)) if here.exists() else "python -m fieldbrook"


def _relative(path: Path) -> str:
    """Return a path relative to the current folder, if it is below that folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def dashboard_address(settings: Settings) -> str:
    """Return the URL of the dashboard: the address in the settings, or an address for a browser on
    this machine."""
    secure = settings.plain_dashboard != "serve"
    host = _host_for_clients(settings, settings.dashboard_bind, secure=secure)
    return f"{'https' if secure else 'http'}://{host}:{settings.dashboard_port}"


def _host_for_clients(settings: Settings, bind: str, *, secure: bool) -> str:
    """Return the host name of a listening address in URLs for clients on this machine."""
    host = bind
    with suppress(ValueError):
        address = ipaddress.ip_address(bind)
        if address.is_loopback or address.is_unspecified:
            host = "localhost"
        elif address.version == 6:
            host = f"[{host}]"
    return (_own_name(settings) or host) if secure else host


def _own_name(settings: Settings) -> str:
    """Return the first name for which the configured certificate is valid; "" if there is none."""
    names = listed(settings.dashboard_hosts)
    if not names and settings.tls_certificate is not None:
        names = tls.names_in(settings.tls_certificate)
    return next((name for name in names if not name.startswith("*.") and ":" not in name), "")


def _needs_setup(data: Path) -> bool:
    def look() -> int:
        from fieldbrook.storage.registry.service import RegistryReader

        return 0 if RegistryReader(data / "registry").has_administrator() else _HAS_NONE

    return in_child(look)() == _HAS_NONE


def in_child(work: Callable[[], int]) -> Callable[[], int]:
    """Run `work` in a forked child. The result waits for it and returns its exit code.

    The code is 2 if `work` raised an exception. Work that opens LMDB needs a child, because LMDB
    must not be open in a process that forks. The process has no threads.
    """
    pid = os.fork()
    if pid:
        return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 2
    try:
        code = work()
    except NodeError as error:
        log.critical("%s", error)
    except BaseException:
        log.exception("cannot read the stores of the data folder")
    finally:
        os._exit(code)
