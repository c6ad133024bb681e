;; Reads its payload without exporting `alloc`, as some old applets do.
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "still here")
  (func (export "start") (param $rid i32) (result i32)
    (drop (call $log (i32.const 4) (i32.const 0) (i32.const 10)))
    (call $get_data (local.get $rid) (i32.const 16) (i32.const 20))))
