"""The functions that applets import, one file per group.

In: calls of a running guest, with numbers and addresses in its memory.
Out: results for the guest; effects that are committed with its event.

A group is a function `functions(guest) -> {signature: function}`. The functions of a group
take the arguments of the import in order, as unsigned integers or floats, and return its
result. They raise `GuestError` when the guest's arguments cannot be used. A new group needs
its signatures in `abi.SIGNATURES`, a file here and a line in `GROUPS`.

Open first: `guest.py`, then `kv.py` as an example of a group.
"""

from __future__ import annotations

from collections.abc import Callable

from fieldbrook.wasm.host import api, chain, crypto, data, env, kv, log, metrics, mqtt, sql
from fieldbrook.wasm.host.guest import Functions, Guest
from fieldbrook.wasm.host.runtimes import assemblyscript, wasi
from fieldbrook.wasm.module.abi import Signature

GROUPS: tuple[Callable[[Guest], Functions], ...] = (
    data.functions,
    kv.functions,
    env.functions,
    sql.functions,
    log.functions,
    mqtt.functions,
    api.functions,
    chain.functions,
    metrics.functions,
    assemblyscript.functions,
    wasi.functions,
    crypto.functions,
)


def bind(guest: Guest) -> Functions:
    """Return every host function, bound to one guest."""
    bound: dict[Signature, Callable[..., int | float | None]] = {}
    for group in GROUPS:
        bound.update(group(guest))
    return bound
