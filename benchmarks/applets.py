"""What is run for each event.

`sum` reads the payload and adds its bytes up; `kv` also writes the sum under a key; `tally`
reads the count under "count" (u64, little-endian), adds one and writes it; `spin` computes
for half a million steps, each of which needs the one before.
"""

_WORK = """
  (func $sum (param $p i32) (param $n i32) (result i32) (local $i i32) (local $s i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
        (local.set $s (i32.add (local.get $s)
          (i32.load8_u (i32.add (local.get $p) (local.get $i)))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (local.get $s))
  (func $spin (param $p i32) (param $n i32) (result i32) (local $i i32) (local $s i32)
    (local.set $s (call $sum (local.get $p) (local.get $n)))
    (loop $next
      (local.set $s (i32.add (i32.mul (local.get $s) (i32.const 1664525)) (i32.const 1013904223)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $i) (i32.const 500000))))
    (local.get $s))
"""

APPLET = f"""
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "sum")
  (data (i32.const 80) "count")
  (global $heap (mut i32) (i32.const 1024))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  {_WORK}
  (func $read (param $rid i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4))))
  (func $total (param $rid i32) (result i32)
    (call $read (local.get $rid))
    (call $sum (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "sum") (param $rid i32) (result i32)
    (drop (call $total (local.get $rid)))
    (i32.const 0))
  (func (export "kv") (param $rid i32) (result i32)
    (i32.store (i32.const 128) (call $total (local.get $rid)))
    (call $set_db (i32.const 64) (i32.const 3) (i32.const 128) (i32.const 4)))
  (func (export "tally") (param $rid i32) (result i32)
    (drop (call $total (local.get $rid)))
    (i64.store (i32.const 128) (i64.const 0))
    (if (i32.eqz (call $get_db (i32.const 80) (i32.const 5) (i32.const 0) (i32.const 4)))
      (then (i64.store (i32.const 128) (i64.load (i32.load (i32.const 0))))))
    (i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
    (call $set_db (i32.const 80) (i32.const 5) (i32.const 128) (i32.const 8)))
  (func (export "spin") (param $rid i32) (result i32)
    (call $read (local.get $rid))
    (i32.store (i32.const 128) (call $spin (i32.load (i32.const 0)) (i32.load (i32.const 4))))
    (i32.const 0))
  (func (export "loop") (param $rid i32) (result i32)
    (loop $ever (br $ever))
    (i32.const 0)))
""".encode()

# The same work for a host that writes the bytes itself: sum and spin(pointer, length).
PLAIN = f"""
(module
  (memory (export "memory") 2)
  {_WORK}
  (export "sum" (func $sum))
  (export "spin" (func $spin)))
""".encode()
