;; Hands its payload to the project's database as a request.
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_sql_db" (func $set_sql (param i32 i32) (result i32)))
  (import "env" "ws_get_sql_db" (func $get_sql (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "rows")
  (global $top (mut i32) (i32.const 4096))

  (func (export "alloc") (param $size i32) (result i32)
    (global.get $top)
    (global.set $top (i32.add (global.get $top) (local.get $size))))

  (func $take (param $rid i32)
    (if (call $get_data (local.get $rid) (i32.const 1024) (i32.const 1028)) (then unreachable)))

  (func $set (export "set") (param $rid i32) (result i32)
    (call $take (local.get $rid))
    (call $set_sql (i32.load (i32.const 1024)) (i32.load (i32.const 1028))))

  ;; leaves what it was given under "rows"
  (func (export "get") (param $rid i32) (result i32) (local $code i32)
    (call $take (local.get $rid))
    (local.set $code
      (call $get_sql (i32.load (i32.const 1024)) (i32.load (i32.const 1028))
        (i32.const 1032) (i32.const 1036)))
    (if (i32.eqz (local.get $code))
      (then (drop (call $set_db (i32.const 0) (i32.const 4)
        (i32.load (i32.const 1032)) (i32.load (i32.const 1036))))))
    (local.get $code))

  (func (export "set_and_trap") (param $rid i32) (result i32)
    (drop (call $set (local.get $rid)))
    unreachable)

  (func (export "set_wild") (param $rid i32) (result i32)
    (call $set_sql (i32.const 0xFFFFFFF0) (i32.const 10)))

  (func (export "get_wild") (param $rid i32) (result i32)
    (call $get_sql (i32.const 0) (i32.const 0xFFFFFFFF) (i32.const 1032) (i32.const 1036)))

  (func (export "get_into_the_wild") (param $rid i32) (result i32)
    (call $take (local.get $rid))
    (call $get_sql (i32.load (i32.const 1024)) (i32.load (i32.const 1028))
      (i32.const 1032) (i32.const 0xFFFFFFF0))))
