"""Event data: the payload, the event type, and data that the guest stores under a resource id."""

from __future__ import annotations

from fieldbrook.wasm.host.guest import Functions, Guest
from fieldbrook.wasm.module import abi


def functions(guest: Guest) -> Functions:
    """Return `ws_get_data`, `ws_set_data` and `ws_get_event_type`."""
    read, copy_to_guest = guest.read, guest.copy_to_guest

    def ws_get_data(rid: int, pointer_at: int, size_at: int) -> int:
        data = guest.resources.get(rid)
        if data is None:
            return abi.RESOURCE_NOT_FOUND
        copy_to_guest(data, pointer_at, size_at)
        return abi.OK

    def ws_set_data(rid: int, pointer: int, size: int) -> int:
        guest.check_range(pointer, size)
        left = guest.data_left - size
        if left < 0:
            guest.end_budget("data", guest.limits.data_bytes, "bytes")
        guest.data_left = left
        guest.resources[rid] = read(pointer, size)
        return abi.OK

    def ws_get_event_type(rid: int, pointer_at: int, size_at: int) -> int:
        if rid != guest.rid:
            return abi.RESOURCE_NOT_FOUND
        copy_to_guest(guest.run.event_type.encode(), pointer_at, size_at)
        return abi.OK

    return {
        abi.WS_GET_DATA: ws_get_data,
        abi.WS_SET_DATA: ws_set_data,
        abi.WS_GET_EVENT_TYPE: ws_get_event_type,
    }
