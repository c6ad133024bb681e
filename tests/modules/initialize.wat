;; A reactor: `_initialize` must run once, `_start` never.
(module
  (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (global $ran (mut i32) (i32.const 0))
  (func (export "_initialize") (global.set $ran (i32.add (global.get $ran) (i32.const 1))))
  (func (export "_start") unreachable)
  (func (export "start") (param i32) (result i32) (global.get $ran)))
