"""Log records that the applet writes."""

from __future__ import annotations

from fieldbrook.wasm.host.guest import MESSAGE_BYTES, Functions, Guest
from fieldbrook.wasm.module import abi


def functions(guest: Guest) -> Functions:
    """Return `ws_log`."""
    read_head, charge = guest.read_head, guest.charge_log

    def ws_log(level: int, pointer: int, size: int) -> int:
        raw = read_head(pointer, size, MESSAGE_BYTES)
        charge(len(raw))
        text = raw.decode("utf-8", "replace")[: abi.MESSAGE_LIMIT]
        known = min(level, abi.LOG_UNKNOWN)
        guest.run.logs.append((known, abi.SOURCE_GUEST, text))
        return abi.OK

    return {abi.WS_LOG: ws_log}
