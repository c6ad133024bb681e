;; Logs and then traps in its start section.
(module
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "begin")
  (func $begin (drop (call $log (i32.const 2) (i32.const 0) (i32.const 5))) unreachable)
  (start $begin)
  (func (export "start") (param i32) (result i32) (i32.const 0)))
