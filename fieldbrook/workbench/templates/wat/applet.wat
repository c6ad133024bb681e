;; {{name}}: counts its events under the key `count`, and logs each.
;;
;; Memory: the first kilobyte holds the constants and cells below, the rest is the heap.
;;   16  "count"      key of the counter, a decimal number as text
;;   32  "count="     48  " bytes="       the two parts of the log line
;;   64  payload pointer    68  payload size      cells that the node fills
;;   72  value pointer      76  value size        cells that the node fills
;;   96..127          digits of a number, written from the end towards the front
;;   128..255         the log line
(module
  (import "env" "ws_log" (func $log (param $level i32) (param $ptr i32) (param $size i32) (result i32)))
  (import "env" "ws_get_data"
    (func $get_data (param $rid i32) (param $ptr_cell i32) (param $size_cell i32) (result i32)))
  (import "env" "ws_get_db"
    (func $get_db (param $key i32) (param $key_size i32) (param $ptr_cell i32) (param $size_cell i32)
      (result i32)))
  (import "env" "ws_set_db"
    (func $set_db (param $key i32) (param $key_size i32) (param $value i32) (param $size i32)
      (result i32)))

  (memory (export "memory") 1)
  (data (i32.const 16) "count")
  (data (i32.const 32) "count=")
  (data (i32.const 48) " bytes=")

  (global $heap (mut i32) (i32.const 1024))
  (global $info i32 (i32.const 4))  ;; a level of $log: 2 error, 3 warning, 4 info, 5 debug
  (global $digits_end i32 (i32.const 128))
  (global $line i32 (i32.const 128))

  ;; The node calls this to allocate memory for data, e.g. a payload. Nothing is freed, because
  ;; an instance lives for one event.
  (func $alloc (export "alloc") (param $size i32) (result i32)
    (local $start i32)
    (local $end i64)
    (local $missing i64)
    (local.set $start (global.get $heap))
    (local.set $end
      (i64.and
        (i64.add
          (i64.add (i64.extend_i32_u (local.get $start)) (i64.extend_i32_u (local.get $size)))
          (i64.const 7))
        (i64.const -8)))
    (if (i64.gt_u (local.get $end) (i64.const 0xffff0000)) (then (unreachable)))
    (local.set $missing
      (i64.sub (local.get $end) (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16))))
    (if (i64.gt_s (local.get $missing) (i64.const 0))
      (then
        (if
          (i32.eq
            (memory.grow
              (i32.wrap_i64
                (i64.shr_u (i64.add (local.get $missing) (i64.const 0xffff)) (i64.const 16))))
            (i32.const -1))
          (then (unreachable)))))
    (global.set $heap (i32.wrap_i64 (local.get $end)))
    (local.get $start))

  ;; Parses the decimal number at the start of the text at $ptr; 0 if there is none.
  (func $parse (param $ptr i32) (param $size i32) (result i64)
    (local $end i32)
    (local $digit i32)
    (local $number i64)
    (local.set $end (i32.add (local.get $ptr) (local.get $size)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $ptr) (local.get $end)))
        (local.set $digit (i32.sub (i32.load8_u (local.get $ptr)) (i32.const 48)))
        (br_if $done (i32.gt_u (local.get $digit) (i32.const 9)))
        (local.set $number
          (i64.add
            (i64.mul (local.get $number) (i64.const 10))
            (i64.extend_i32_u (local.get $digit))))
        (local.set $ptr (i32.add (local.get $ptr) (i32.const 1)))
        (br $next)))
    (local.get $number))

  ;; Writes the decimal digits of $number; returns where they start. They end at $digits_end.
  (func $format (param $number i64) (result i32)
    (local $ptr i32)
    (local.set $ptr (global.get $digits_end))
    (loop $next
      (local.set $ptr (i32.sub (local.get $ptr) (i32.const 1)))
      (i32.store8 (local.get $ptr)
        (i32.add
          (i32.wrap_i64 (i64.rem_u (local.get $number) (i64.const 10)))
          (i32.const 48)))
      (local.set $number (i64.div_u (local.get $number) (i64.const 10)))
      (br_if $next (i64.ne (local.get $number) (i64.const 0))))
    (local.get $ptr))

  ;; Copies $size bytes to $to; returns where the next ones go.
  (func $append (param $to i32) (param $from i32) (param $size i32) (result i32)
    (memory.copy (local.get $to) (local.get $from) (local.get $size))
    (i32.add (local.get $to) (local.get $size)))

  (func $append_number (param $to i32) (param $number i64) (result i32)
    (local $digits i32)
    (local.set $digits (call $format (local.get $number)))
    (call $append
      (local.get $to)
      (local.get $digits)
      (i32.sub (global.get $digits_end) (local.get $digits))))

  ;; The handler: called once for each event; $rid is the event's id.
  (func (export "start") (param $rid i32) (result i32)
    (local $count i64)
    (local $digits i32)
    (local $end i32)
    (local $code i32)
    ;; `unreachable` ends the run: the node discards its writes, answers -1, and keeps the event as
    ;; a dead letter.
    (if (call $get_data (local.get $rid) (i32.const 64) (i32.const 68))
      (then (unreachable)))
    ;; A missing key (code 2) is not a failure: the count then starts at 0.
    (local.set $code (call $get_db (i32.const 16) (i32.const 5) (i32.const 72) (i32.const 76)))
    (if (i32.eqz (local.get $code))
      (then
        (local.set $count (call $parse (i32.load (i32.const 72)) (i32.load (i32.const 76)))))
      (else
        (if (i32.ne (local.get $code) (i32.const 2)) (then (unreachable)))))
    (local.set $count (i64.add (local.get $count) (i64.const 1)))
    (local.set $digits (call $format (local.get $count)))
    (if
      (call $set_db
        (i32.const 16)
        (i32.const 5)
        (local.get $digits)
        (i32.sub (global.get $digits_end) (local.get $digits)))
      (then (unreachable)))
    (local.set $end (call $append (global.get $line) (i32.const 32) (i32.const 6)))
    (local.set $end (call $append_number (local.get $end) (local.get $count)))
    (local.set $end (call $append (local.get $end) (i32.const 48) (i32.const 7)))
    (local.set $end
      (call $append_number (local.get $end) (i64.extend_i32_u (i32.load (i32.const 68)))))
    (drop
      (call $log
        (global.get $info)
        (global.get $line)
        (i32.sub (local.get $end) (global.get $line))))
    (i32.const 0)))
