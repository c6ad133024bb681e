"""Metrics: measurements that an applet submits and the node stores."""

from __future__ import annotations

import json
import math

from fieldbrook.core.bounded_json import from_json
from fieldbrook.wasm.host.guest import Functions, Guest, GuestError
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import Metric

_SIZE_LIMIT = 64 << 10


def functions(guest: Guest) -> Functions:
    """Return `ws_submit_metrics` and the counter and gauge functions of 2023."""

    def name_at(pointer: int, size: int) -> str:
        return guest.read_head(pointer, size, _SIZE_LIMIT).decode("utf-8", "replace")

    def keep(value: str) -> int:
        guest.add_effect(Metric(value), len(value))
        return abi.OK

    def keep_number(kind: str, pointer: int, size: int, number: float) -> int:
        if not math.isfinite(number):
            raise GuestError(f"a metric cannot be {number}")
        return keep(json.dumps({kind: name_at(pointer, size), "value": number}))

    def ws_submit_metrics(pointer: int, size: int) -> int:
        if size > _SIZE_LIMIT:
            raise GuestError(f"the metrics have more than {_SIZE_LIMIT} bytes")
        text = guest.read(pointer, size).decode("utf-8", "replace")
        try:
            value = from_json(text)
        except ValueError as error:
            raise GuestError(f"the metrics are not JSON: {error}") from None
        if isinstance(value, list):
            raise GuestError("the metrics must not be a JSON array")
        return keep(text)

    def ws_counter_inc(pointer: int, size: int) -> int:
        return keep_number("counter", pointer, size, 1.0)

    def ws_counter_add(pointer: int, size: int, number: float) -> int:
        return keep_number("counter", pointer, size, number)

    def ws_gauge_set(pointer: int, size: int, number: float) -> int:
        return keep_number("gauge", pointer, size, number)

    return {
        abi.WS_SUBMIT_METRICS: ws_submit_metrics,
        abi.WS_COUNTER_INC: ws_counter_inc,
        abi.WS_COUNTER_ADD: ws_counter_add,
        abi.WS_GAUGE_SET: ws_gauge_set,
    }
