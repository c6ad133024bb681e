"""Where the replication engine of this host listens: files that `fb-engine` writes for others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from fieldbrook.core.errors import EngineUnreachableError
from fieldbrook.storage.replication.connection import Endpoint

CLIENT, ADMIN = "engine", "engine-admin"


def write_endpoint(run_dir: Path, endpoint: Endpoint, name: str = CLIENT) -> None:
    """Write the file with the address; only the node's user can read it."""
    new = run_dir / f".{name}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(endpoint, file)
    new.replace(run_dir / name)


def endpoint_in(run_dir: Path, name: str = CLIENT) -> Callable[[], Endpoint]:
    """Return a function that reads the file, for `Connection`."""

    def endpoint() -> Endpoint:
        try:
            host, port, user, password = json.loads((run_dir / name).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise EngineUnreachableError(
                reason=f"the replication engine does not run: {error}"
            ) from error
        return Endpoint(host, port, user, password)

    return endpoint
