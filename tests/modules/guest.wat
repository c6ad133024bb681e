;; An applet that uses each host function as an SDK would.
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_data" (func $set_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_event_type" (func $get_event_type (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_env" (func $get_env (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "abort" (func $abort (param i32 i32 i32 i32)))
  (import "env" "trace" (func $trace (param i32 i32 f64 f64 f64 f64 f64)))
  (import "env" "seed" (func $seed (result f64)))
  (memory (export "memory") 1)
  (data (i32.const 0) "payload")
  (data (i32.const 16) "counter")
  (data (i32.const 32) "COLOUR")
  (data (i32.const 48) "type")
  ;; AssemblyScript strings: length in bytes, then UTF-16LE
  (data (i32.const 64) "\08\00\00\00b\00a\00d\00!\00")
  (data (i32.const 96) "\08\00\00\00a\00.\00t\00s\00")
  (global $top (mut i32) (i32.const 4096))
  (global $calls (mut i32) (i32.const 0))

  (func $alloc (export "alloc") (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $top))
    (global.set $top (i32.add (local.get $at) (local.get $size)))
    (block $fits
      (br_if $fits (i32.le_u (global.get $top) (i32.shl (memory.size) (i32.const 16))))
      (drop (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1)))))
    (local.get $at))

  ;; payload -> key "payload"
  (func (export "echo") (param $rid i32) (result i32)
    (local $code i32)
    (local.set $code (call $get_data (local.get $rid) (i32.const 1024) (i32.const 1028)))
    (if (local.get $code) (then (return (local.get $code))))
    (call $set_db (i32.const 0) (i32.const 7) (i32.load (i32.const 1024)) (i32.load (i32.const 1028))))

  ;; one more in key "counter" (little-endian u32); twice, so that it meets its own write
  (func $count
    (i32.store (i32.const 1040) (i32.const 0))
    (if (i32.eqz (call $get_db (i32.const 16) (i32.const 7) (i32.const 1024) (i32.const 1028)))
      (then (i32.store (i32.const 1040) (i32.load (i32.load (i32.const 1024))))))
    (i32.store (i32.const 1040) (i32.add (i32.load (i32.const 1040)) (i32.const 1)))
    (drop (call $set_db (i32.const 16) (i32.const 7) (i32.const 1040) (i32.const 4))))
  (func (export "count_twice") (param i32) (result i32)
    (call $count) (call $count) (i32.load (i32.const 1040)))

  (func (export "log_payload") (param $rid i32) (result i32)
    (drop (call $get_data (local.get $rid) (i32.const 1024) (i32.const 1028)))
    (drop (call $log (i32.const 4) (i32.load (i32.const 1024)) (i32.load (i32.const 1028))))
    (call $log (i32.const 99) (i32.const 0) (i32.const 7)))

  ;; variable COLOUR -> key "COLOUR"
  (func (export "colour") (param i32) (result i32)
    (local $code i32)
    (local.set $code (call $get_env (i32.const 32) (i32.const 6) (i32.const 1024) (i32.const 1028)))
    (if (local.get $code) (then (return (local.get $code))))
    (call $set_db (i32.const 32) (i32.const 6) (i32.load (i32.const 1024)) (i32.load (i32.const 1028))))

  ;; event type -> key "type"
  (func (export "event_type") (param $rid i32) (result i32)
    (drop (call $get_event_type (local.get $rid) (i32.const 1024) (i32.const 1028)))
    (call $set_db (i32.const 48) (i32.const 4) (i32.load (i32.const 1024)) (i32.load (i32.const 1028))))

  (func (export "unknown_rid") (param $rid i32) (result i32)
    (i32.or
      (call $get_data (i32.xor (local.get $rid) (i32.const 1)) (i32.const 1024) (i32.const 1028))
      (call $get_event_type (i32.xor (local.get $rid) (i32.const 1)) (i32.const 1024) (i32.const 1028))))

  ;; data under another number, read back -> key "payload"
  (func (export "hand_on") (param $rid i32) (result i32)
    (drop (call $set_data (i32.const 77) (i32.const 16) (i32.const 7)))
    (drop (call $get_data (i32.const 77) (i32.const 1024) (i32.const 1028)))
    (call $set_db (i32.const 0) (i32.const 7) (i32.load (i32.const 1024)) (i32.load (i32.const 1028))))

  (func (export "negative") (param i32) (result i32) (i32.const -7))
  (func (export "trap") (param i32) (result i32)
    (drop (call $log (i32.const 4) (i32.const 0) (i32.const 7)))
    (drop (call $set_db (i32.const 0) (i32.const 7) (i32.const 16) (i32.const 7)))
    unreachable)
  (func (export "out_of_bounds") (param i32) (result i32) (i32.load (i32.const -4)))
  (func (export "divide_by_zero") (param i32) (result i32) (i32.div_u (i32.const 1) (i32.const 0)))
  (func (export "loop") (param i32) (result i32) (loop $again (br $again)) unreachable)
  (func $recurse (export "recurse") (param i32) (result i32)
    (i32.add (call $recurse (local.get 0)) (i32.const 1)))

  ;; grows until it may not; returns the pages it has then
  (func (export "grow") (param i32) (result i32)
    (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    (loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (memory.size))

  ;; `calls` counts how often this instance ran: a fresh one has 1
  (func (export "fresh") (param i32) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
    (i32.mul (global.get $calls) (i32.load (i32.const 2048))))

  (func (export "abort") (param i32) (result i32)
    (call $abort (i32.const 68) (i32.const 100) (i32.const 3) (i32.const 5)) unreachable)
  (func (export "abort_without_text") (param i32) (result i32)
    (call $abort (i32.const 0) (i32.const 2) (i32.const 3) (i32.const 5))
    (call $abort (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 5)) (i32.const 0))
  (func (export "trace") (param i32) (result i32)
    (call $trace (i32.const 68) (i32.const 0) (f64.const 0) (f64.const 0) (f64.const 0) (f64.const 0) (f64.const 0))
    (call $trace (i32.const 68) (i32.const 2) (f64.const 1) (f64.const -2.5) (f64.const 9) (f64.const 9) (f64.const 9))
    (call $trace (i32.const 68) (i32.const -1) (f64.const 1) (f64.const 2) (f64.const 3) (f64.const inf) (f64.const nan))
    (i32.const 0))
  (func (export "seed") (param i32) (result i32)
    (f64.ge (call $seed) (f64.const 0)))

  (func (export "many_logs") (param i32) (result i32)
    (local $i i32)
    (loop $again
      (drop (call $log (i32.const 4) (i32.const 0) (i32.const 7)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $i) (i32.const 100000))))
    (i32.const 0))
  ;; 100 keys of 4 bytes with values of 1000
  (func (export "many_writes") (param i32) (result i32)
    (local $i i32)
    (loop $again
      (i32.store (i32.const 1024) (local.get $i))
      (drop (call $set_db (i32.const 1024) (i32.const 4) (i32.const 2048) (i32.const 1000)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $i) (i32.const 100))))
    (i32.const 0))
  ;; one key written 100 times with 1000 bytes
  (func (export "many_overwrites") (param i32) (result i32)
    (local $i i32)
    (loop $again
      (drop (call $set_db (i32.const 0) (i32.const 7) (i32.const 2048) (i32.const 1000)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $i) (i32.const 100))))
    (i32.const 0))
  (func (export "many_data") (param i32) (result i32)
    (local $i i32)
    (loop $again
      (drop (call $set_data (local.get $i) (i32.const 2048) (i32.const 1000)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $i) (i32.const 100))))
    (i32.const 0))
  (func (export "two_params") (param i32 i32) (result i32) (i32.const 0))
  (func (export "no_result") (param i32))
  (global (export "no_function") i32 (i32.const 0)))
