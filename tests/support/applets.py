"""Small applets that tests deploy."""

SENDER = b"""
;; Handlers: `publish` sends its payload to the topic "out/readings"; `loopback` to the topic
;; "sender", where a project takes events; `twice` publishes and then traps; `submit` gives its
;; payload as metrics; `call` as a request to the API, whose answer it stores under "answer";
;; `result` stores its payload under "result"; `transact` returns the code of a transaction.
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_mqtt_msg" (func $send (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_api_call" (func $api (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx" (func $tx (param i32 i32 i32 i32 i32) (result i32)))
  (import "stat" "ws_submit_metrics" (func $metrics (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "out/readings")
  (data (i32.const 80) "sender")
  (data (i32.const 96) "answer")
  (data (i32.const 112) "result")
  (global $heap (mut i32) (i32.const 4096))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func $payload (param $rid i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4))))
  (func $publish (export "publish") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (call $send (i32.const 64) (i32.const 12) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "loopback") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (call $send (i32.const 80) (i32.const 6) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "twice") (param $rid i32) (result i32)
    (drop (call $publish (local.get $rid))) unreachable)
  (func (export "submit") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (call $metrics (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "call") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (drop (call $api
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12)))
    (call $set_db
      (i32.const 96) (i32.const 6) (i32.load (i32.const 8)) (i32.load (i32.const 12))))
  (func (export "result") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (call $set_db
      (i32.const 112) (i32.const 6) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "transact") (param $rid i32) (result i32)
    (call $payload (local.get $rid))
    (call $tx (i32.const 4690)
      (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 8) (i32.const 12))))
"""

TALLY = b"""
;; Handlers: `start` counts events under "count" (u64, little-endian) and logs its payload;
;; `echo` keeps the payload under "last"; `seven` returns 7; `fail` writes and then traps;
;; `spin` never ends; `burn` computes for a while and then traps; `greedy` asks for memory until it
;; is refused and returns the pages it got.
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "count")
  (data (i32.const 80) "last")
  (global $heap (mut i32) (i32.const 4096))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (block $fits
      (loop $more
        (br_if $fits (i32.le_u (global.get $heap) (i32.shl (memory.size) (i32.const 16))))
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))
        (br $more)))
    (local.get $at))
  (func $count
    (i64.store (i32.const 128) (i64.const 0))
    (if (i32.eqz (call $get_db (i32.const 64) (i32.const 5) (i32.const 0) (i32.const 4)))
      (then (i64.store (i32.const 128) (i64.load (i32.load (i32.const 0))))))
    (i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
    (drop (call $set_db (i32.const 64) (i32.const 5) (i32.const 128) (i32.const 8))))
  (func (export "start") (param $rid i32) (result i32)
    (call $count)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (drop (call $log (i32.const 4) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
    (i32.const 0))
  (func (export "quiet") (param $rid i32) (result i32)
    (call $count)
    (i32.const 0))
  (func (export "echo") (param $rid i32) (result i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (call $set_db (i32.const 80) (i32.const 4) (i32.load (i32.const 0)) (i32.load (i32.const 4))))
  (func (export "seven") (param $rid i32) (result i32) (i32.const 7))
  (func (export "fail") (param $rid i32) (result i32)
    (call $count)
    (unreachable))
  (func (export "spin") (param $rid i32) (result i32)
    (call $count)
    (loop $for_ever (br $for_ever))
    (i32.const 0))
  (func (export "burn") (param $rid i32) (result i32) (local $i i32)
    (loop $more
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $i) (i32.const 50000000))))
    (unreachable))
  (func (export "greedy") (param $rid i32) (result i32)
    (loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    (memory.size)))
"""

UNLINKABLE = b"""
(module (import "env" "ws_teleport" (func (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "start") (param i32) (result i32) (i32.const 0)))
"""

COLOUR = b"""
;; `start` stores the project's variable COLOUR under "colour", or returns 8 without one.
(module
  (import "env" "ws_get_env" (func $get_env (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "COLOUR")
  (data (i32.const 80) "colour")
  (func (export "alloc") (param i32) (result i32) (i32.const 4096))
  (func (export "start") (param i32) (result i32) (local $code i32)
    (local.set $code
      (call $get_env (i32.const 64) (i32.const 6) (i32.const 0) (i32.const 4)))
    (if (local.get $code) (then (return (local.get $code))))
    (call $set_db (i32.const 80) (i32.const 6) (i32.load (i32.const 0)) (i32.load (i32.const 4)))))
"""

LEDGER = b"""
;; `start` counts logs under "count", and under "again" those whose number it has had before
;; (u64, little-endian). A log's number is its first indexed argument; the payload of a log begins
;; with an address and topics that are all of the same size, so it stands at a place of its own.
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "count")
  (data (i32.const 80) "again")
  (global $heap (mut i32) (i32.const 4096))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func $count (param $name i32)
    (i64.store (i32.const 128) (i64.const 0))
    (if (i32.eqz (call $get_db (local.get $name) (i32.const 5) (i32.const 0) (i32.const 4)))
      (then (i64.store (i32.const 128) (i64.load (i32.load (i32.const 0))))))
    (i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
    (drop (call $set_db (local.get $name) (i32.const 5) (i32.const 128) (i32.const 8))))
  (func (export "start") (param $rid i32) (result i32) (local $number i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (local.set $number (i32.add (i32.load (i32.const 0)) (i32.const 186)))
    (call $count (i32.const 64))
    (if (i32.eqz (call $get_db (local.get $number) (i32.const 16) (i32.const 8) (i32.const 12)))
      (then (call $count (i32.const 80))))
    (call $set_db (local.get $number) (i32.const 16) (i32.const 64) (i32.const 1))))
"""
