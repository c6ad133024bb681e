;; Calls the host while it is instantiated, `alloc` included.
(module
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "ws_get_env" (func $get_env (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "COLOUR")
  (global $code (mut i32) (i32.const -1))
  (func (export "alloc") (param i32) (result i32) (i32.const 512))
  (func $begin
    (global.set $code (call $get_env (i32.const 0) (i32.const 6) (i32.const 64) (i32.const 68)))
    (drop (call $log (i32.const 4) (i32.load (i32.const 64)) (i32.load (i32.const 68))))
    (drop (call $set_db (i32.const 0) (i32.const 6) (i32.load (i32.const 64)) (i32.load (i32.const 68)))))
  (start $begin)
  (func (export "start") (param i32) (result i32)
    (drop (call $log (i32.const 4) (i32.const 0) (i32.const 6)))
    (global.get $code)))
