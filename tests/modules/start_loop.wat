;; Never gets past its start section.
(module
  (memory (export "memory") 1)
  (func $begin (loop $again (br $again)))
  (start $begin)
  (func (export "start") (param i32) (result i32) (i32.const 0)))
