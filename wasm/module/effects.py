"""Possible effects of a module, by the host functions that it imports."""

from __future__ import annotations

import functools
from pathlib import Path

from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.sections import imported_names

_READ_BYTES = 1 << 20  # imports are near the beginning; code and data follow
KEY_VALUE, SQL, MQTT, CHAIN, API, METRICS = "kv", "sql", "mqtt", "chain", "api", "metrics"
_EFFECTS = {
    abi.WS_SET_DB: KEY_VALUE,
    abi.WS_SET_SQL_DB: SQL,
    abi.WS_SEND_MQTT_MSG: MQTT,
    abi.WS_SEND_MQTT: MQTT,
    abi.WS_SEND_TX: CHAIN,
    abi.WS_SEND_TX_WITH_OPERATOR: CHAIN,
    abi.WS_SEND_TX_ONE_CHAIN: CHAIN,
    abi.WS_API_CALL: API,
    abi.WS_SUBMIT_METRICS: METRICS,
    abi.WS_COUNTER_INC: METRICS,
    abi.WS_COUNTER_ADD: METRICS,
    abi.WS_GAUGE_SET: METRICS,
}
_BY_NAME = {(signature.module, signature.name): kind for signature, kind in _EFFECTS.items()}


@functools.lru_cache(maxsize=256)
def effects_of_module(path: Path) -> tuple[str, ...]:
    """Return the kinds of effects that a stored module can have, in alphabetical order.

    Modules are stored under the digest of their content, so the result never changes. It is empty
    if the file cannot be read or has no imports within its first MiB.
    """
    try:
        with path.open("rb") as module:
            names = imported_names(module.read(_READ_BYTES))
    except (OSError, IndexError):
        return ()
    return tuple(sorted({_BY_NAME[name] for name in names if name in _BY_NAME}))
