;; Carries out the statement it is given and counts it under "count": one event, two stores.
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_sql_db" (func $set_sql (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "count")
  (global $top (mut i32) (i32.const 4096))

  (func (export "alloc") (param $size i32) (result i32)
    (global.get $top)
    (global.set $top (i32.add (global.get $top) (local.get $size))))

  (func (export "start") (param $rid i32) (result i32) (local $count i32)
    (if (call $get_data (local.get $rid) (i32.const 1024) (i32.const 1028)) (then unreachable))
    (if (call $set_sql (i32.load (i32.const 1024)) (i32.load (i32.const 1028)))
      (then unreachable))
    (if (i32.eqz (call $get_db (i32.const 0) (i32.const 5) (i32.const 1032) (i32.const 1036)))
      (then (local.set $count (i32.load (i32.load (i32.const 1032))))))
    (i32.store (i32.const 1040) (i32.add (local.get $count) (i32.const 1)))
    (if (call $set_db (i32.const 0) (i32.const 5) (i32.const 1040) (i32.const 4))
      (then unreachable))
    (i32.const 0)))
