;; Never gets past `_initialize`.
(module
  (memory (export "memory") 1)
  (func (export "_initialize") (loop $again (br $again)))
  (func (export "start") (param i32) (result i32) (i32.const 0)))
