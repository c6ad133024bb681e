"""The applet that is measured: `sum` reads its payload, `kv` also writes one key."""

APPLET = b"""
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "sum")
  (global $heap (mut i32) (i32.const 1024))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func $total (param $rid i32) (result i32)
    (local $i i32) (local $n i32) (local $p i32) (local $s i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (local.set $p (i32.load (i32.const 0)))
    (local.set $n (i32.load (i32.const 4)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
        (local.set $s (i32.add (local.get $s)
          (i32.load8_u (i32.add (local.get $p) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (local.get $s))
  (func (export "sum") (param $rid i32) (result i32)
    (drop (call $total (local.get $rid)))
    (i32.const 0))
  (func (export "kv") (param $rid i32) (result i32)
    (i32.store (i32.const 128) (call $total (local.get $rid)))
    (call $set_db (i32.const 64) (i32.const 3) (i32.const 128) (i32.const 4))))
"""
