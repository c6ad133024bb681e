"""The applet of the fault tests: it counts each event under the event's own name."""

_TEXT = """
;; `start` takes an event whose payload is the event's own name, up to 100 bytes, and counts
;; under that name how often it saw it (u64, little-endian).
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 1024) "version %d")
  (global $heap (mut i32) (i32.const 4096))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func (export "start") (param $rid i32) (result i32) (local $name i32) (local $size i32)
    (if (call $get_data (local.get $rid) (i32.const 0) (i32.const 4))
      (then (return (i32.const 1))))
    (local.set $name (i32.load (i32.const 0)))
    (local.set $size (i32.load (i32.const 4)))
    (if (i32.gt_u (local.get $size) (i32.const 100)) (then (local.set $size (i32.const 100))))
    (i64.store (i32.const 128) (i64.const 0))
    (if (i32.eqz (call $get_db
        (local.get $name) (local.get $size) (i32.const 8) (i32.const 12)))
      (then (i64.store (i32.const 128) (i64.load (i32.load (i32.const 8))))))
    (i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
    (call $set_db (local.get $name) (local.get $size) (i32.const 128) (i32.const %d))))
"""


def counter(version: int, value_size: int = 8) -> bytes:
    """Return the module; two versions differ in an unused text. `value_size` is the size of each
    stored value, 8 to 65,536 bytes: large ones fill a store quickly."""
    return (_TEXT % (version, value_size)).encode()
