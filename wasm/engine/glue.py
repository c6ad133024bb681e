"""The two WebAssembly modules between an applet and the host during a batch.

The stage is a memory that the host and the glue share. It holds `HEAD_BYTES` of 32-bit
cells, then an entry of `ENTRY_BYTES` per event (rid, address and size of the payload, the
handler's code), then the payloads, then log records (event, level, size, text).

The trampoline exports `ws_get_data` and `ws_log` for the applet and calls the glue through a
table. It is needed because the glue imports the applet's exports, so the glue can only be
instantiated after the applet. The glue answers the common case; everything else, including
errors, goes to the host's own functions.
"""

from __future__ import annotations

from fieldbrook.wasm.backtrace import NODE_MODULE
from fieldbrook.wasm.host.guest import LOG_RECORD_BYTES, MESSAGE_BYTES

HEAD_BYTES = 64
ENTRY_BYTES = 16
RECORD_BYTES = 12
STAGE_PAGES = 32

# Numbers of the cells. EVENT is the index of the current event, LOGS the address of the next
# log record, LOGS_END the end of their space, IN_ALLOC whether the applet's `alloc` is running,
# *_LEFT the rest of the current event's budgets and *_LIMIT those of each event.
EVENT, LOGS, LOGS_END, CALLS_LEFT, LOG_LEFT, CALLS_LIMIT, LOG_LIMIT, IN_ALLOC = range(8)

TRAMPOLINE = f"""
(module ${NODE_MODULE}
  (type $call (func (param i32 i32 i32) (result i32)))
  (memory (export "memory") {STAGE_PAGES} {STAGE_PAGES})
  (table (export "table") 2 2 funcref)
  (func (export "ws_get_data") (type $call)
    (call_indirect (type $call)
      (local.get 0) (local.get 1) (local.get 2) (i32.const 0)))
  (func (export "ws_log") (type $call)
    (call_indirect (type $call)
      (local.get 0) (local.get 1) (local.get 2) (i32.const 1))))
"""

# The imports must have the order of the constants in `batch` (`_STAGE_MEMORY` to `_PLACE`).
GLUE = f"""
(module ${NODE_MODULE}
  (type $call (func (param i32 i32 i32) (result i32)))
  (import "stage" "memory" (memory $stage {STAGE_PAGES} {STAGE_PAGES}))
  (import "stage" "table" (table 2 2 funcref))
  (import "guest" "memory" (memory $guest 0))
  (import "guest" "alloc" (func $alloc (param i32) (result i32)))
  (import "guest" "handler" (func $handler (param i32) (result i32)))
  (import "host" "ws_get_data" (func $host_get_data (type $call)))
  (import "host" "ws_log" (func $host_log (type $call)))
  (import "host" "misplaced" (func $host_misplaced (type $call)))
  (elem (i32.const 0) func $get_data $log)
  (global $entry (mut i32) (i32.const 0))

  (func $fits (param $at i32) (param $size i32) (result i32)
    (i64.le_u
      (i64.add (i64.extend_i32_u (local.get $at)) (i64.extend_i32_u (local.get $size)))
      (i64.shl (i64.extend_i32_u (memory.size $guest)) (i64.const 16))))

  (func $charge_call
    (i32.store $stage offset={4 * CALLS_LEFT} (i32.const 0)
      (i32.sub (i32.load $stage offset={4 * CALLS_LEFT} (i32.const 0)) (i32.const 1))))

  (func $get_data (type $call) (local $at i32) (local $size i32)
    (if (i32.or
          (i32.or
            (i32.ne (local.get 0) (i32.load $stage (global.get $entry)))
            (i32.eqz (i32.load $stage offset={4 * CALLS_LEFT} (i32.const 0))))
          (i32.load $stage offset={4 * IN_ALLOC} (i32.const 0)))
      (then (return (call $host_get_data (local.get 0) (local.get 1) (local.get 2)))))
    (call $charge_call)
    (local.set $size (i32.load $stage offset=8 (global.get $entry)))
    (i32.store $stage offset={4 * IN_ALLOC} (i32.const 0) (i32.const 1))
    (local.set $at (call $alloc (local.get $size)))
    (i32.store $stage offset={4 * IN_ALLOC} (i32.const 0) (i32.const 0))
    (if (i32.eqz
          (i32.and
            (call $fits (local.get $at) (local.get $size))
            (i32.and
              (call $fits (local.get 1) (i32.const 4))
              (call $fits (local.get 2) (i32.const 4)))))
      (then (return (call $host_misplaced (local.get $at) (local.get 1) (local.get 2)))))
    (memory.copy $guest $stage
      (local.get $at) (i32.load $stage offset=4 (global.get $entry)) (local.get $size))
    (i32.store $guest (local.get 1) (local.get $at))
    (i32.store $guest (local.get 2) (local.get $size))
    (i32.const 0))

  (func $log (type $call) (local $at i32) (local $cost i32)
    (local.set $at (i32.load $stage offset={4 * LOGS} (i32.const 0)))
    (local.set $cost (i32.add (local.get 2) (i32.const {LOG_RECORD_BYTES})))
    (if (i32.or
          (i32.or
            (i32.gt_u (local.get 2) (i32.const {MESSAGE_BYTES}))
            (i32.eqz (i32.load $stage offset={4 * CALLS_LEFT} (i32.const 0))))
          (i32.or
            (i32.eqz (call $fits (local.get 1) (local.get 2)))
            (i32.or
              (i32.gt_u (local.get $cost)
                (i32.load $stage offset={4 * LOG_LEFT} (i32.const 0)))
              (i32.gt_u
                (i32.add (i32.add (local.get $at) (i32.const {RECORD_BYTES})) (local.get 2))
                (i32.load $stage offset={4 * LOGS_END} (i32.const 0))))))
      (then (return (call $host_log (local.get 0) (local.get 1) (local.get 2)))))
    (call $charge_call)
    (i32.store $stage offset={4 * LOG_LEFT} (i32.const 0)
      (i32.sub (i32.load $stage offset={4 * LOG_LEFT} (i32.const 0)) (local.get $cost)))
    (i32.store $stage (local.get $at) (i32.load $stage offset={4 * EVENT} (i32.const 0)))
    (i32.store $stage offset=4 (local.get $at) (local.get 0))
    (i32.store $stage offset=8 (local.get $at) (local.get 2))
    (memory.copy $stage $guest
      (i32.add (local.get $at) (i32.const {RECORD_BYTES})) (local.get 1) (local.get 2))
    (i32.store $stage offset={4 * LOGS} (i32.const 0)
      (i32.add (i32.add (local.get $at) (i32.const {RECORD_BYTES})) (local.get 2)))
    (i32.const 0))

  (func $run (export "run") (param $count i32) (result i32) (local $event i32)
    (loop $next
      (i32.store $stage offset={4 * EVENT} (i32.const 0) (local.get $event))
      (i32.store $stage offset={4 * CALLS_LEFT} (i32.const 0)
        (i32.load $stage offset={4 * CALLS_LIMIT} (i32.const 0)))
      (i32.store $stage offset={4 * LOG_LEFT} (i32.const 0)
        (i32.load $stage offset={4 * LOG_LIMIT} (i32.const 0)))
      (global.set $entry
        (i32.add (i32.const {HEAD_BYTES}) (i32.mul (local.get $event) (i32.const {ENTRY_BYTES}))))
      (i32.store $stage offset=12 (global.get $entry)
        (call $handler (i32.load $stage (global.get $entry))))
      (local.set $event (i32.add (local.get $event) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $event) (local.get $count))))
    (local.get $event)))
"""
