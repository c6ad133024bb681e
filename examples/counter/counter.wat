;; counter: counts a project's events in the key-value store and logs each payload.
;;
;; Memory: the first kilobyte holds the constants and cells below, the rest is the heap.
;;   16  "count"      key of the counter, a decimal number as text
;;   32  "count="     48  " payload="     the two parts of the log line
;;   64  payload pointer    68  payload length    cells that the node fills
;;   72  value pointer      76  value length      cells that the node fills
;;   96..127          digits of the counter, written from the end towards the front
(module
  (import "env" "ws_log" (func $log (param $level i32) (param $ptr i32) (param $len i32) (result i32)))
  (import "env" "ws_get_data"
    (func $get_data (param $rid i32) (param $ptr_cell i32) (param $len_cell i32) (result i32)))
  (import "env" "ws_get_db"
    (func $get_db (param $key i32) (param $key_len i32) (param $ptr_cell i32) (param $len_cell i32)
      (result i32)))
  (import "env" "ws_set_db"
    (func $set_db (param $key i32) (param $key_len i32) (param $value i32) (param $value_len i32)
      (result i32)))

  (memory (export "memory") 1)
  (data (i32.const 16) "count")
  (data (i32.const 32) "count=")
  (data (i32.const 48) " payload=")
  (data (i32.const 128) "the payload cannot be read")
  (data (i32.const 160) "the count cannot be saved")

  (global $heap (mut i32) (i32.const 1024))
  (global $info i32 (i32.const 4))
  (global $error i32 (i32.const 2))
  (global $digits_end i32 (i32.const 128))
  ;; The node keeps the first 1024 characters of a log line, which are 4096 bytes at most.
  (global $shown_limit i32 (i32.const 4096))

  ;; The node calls this to allocate memory for data that it passes. Nothing is freed, because
  ;; an instance lives for one event. Traps at the memory limit; the host function that
  ;; needed the memory then fails with that reason.
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
  (func $parse (param $ptr i32) (param $len i32) (result i64)
    (local $end i32)
    (local $digit i32)
    (local $number i64)
    (local.set $end (i32.add (local.get $ptr) (local.get $len)))
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

  ;; Copies $len bytes to $to; returns where the next ones go.
  (func $append (param $to i32) (param $from i32) (param $len i32) (result i32)
    (memory.copy (local.get $to) (local.get $from) (local.get $len))
    (i32.add (local.get $to) (local.get $len)))

  ;; Logs `count=<digits> payload=<payload>`.
  (func $report (param $digits i32)
    (local $digits_len i32)
    (local $shown i32)
    (local $line i32)
    (local $end i32)
    (local.set $digits_len (i32.sub (global.get $digits_end) (local.get $digits)))
    (local.set $shown (i32.load (i32.const 68)))
    (if (i32.gt_u (local.get $shown) (global.get $shown_limit))
      (then (local.set $shown (global.get $shown_limit))))
    (local.set $line
      (call $alloc
        (i32.add (i32.add (local.get $digits_len) (local.get $shown)) (i32.const 15))))
    (local.set $end (call $append (local.get $line) (i32.const 32) (i32.const 6)))
    (local.set $end (call $append (local.get $end) (local.get $digits) (local.get $digits_len)))
    (local.set $end (call $append (local.get $end) (i32.const 48) (i32.const 9)))
    (local.set $end
      (call $append (local.get $end) (i32.load (i32.const 64)) (local.get $shown)))
    (drop
      (call $log
        (global.get $info)
        (local.get $line)
        (i32.sub (local.get $end) (local.get $line)))))

  ;; The handler: one call per event, $rid names the event's payload.
  (func (export "start") (param $rid i32) (result i32)
    (local $count i64)
    (local $digits i32)
    (if (call $get_data (local.get $rid) (i32.const 64) (i32.const 68))
      (then
        (drop (call $log (global.get $error) (i32.const 128) (i32.const 26)))
        (return (i32.const -1))))
    ;; A missing key is not a failure: the count then starts at 0.
    (if (i32.eqz (call $get_db (i32.const 16) (i32.const 5) (i32.const 72) (i32.const 76)))
      (then
        (local.set $count (call $parse (i32.load (i32.const 72)) (i32.load (i32.const 76))))))
    (local.set $digits (call $format (i64.add (local.get $count) (i64.const 1))))
    (if
      (call $set_db
        (i32.const 16)
        (i32.const 5)
        (local.get $digits)
        (i32.sub (global.get $digits_end) (local.get $digits)))
      (then
        (drop (call $log (global.get $error) (i32.const 160) (i32.const 25)))
        (return (i32.const -1))))
    (call $report (local.get $digits))
    (i32.const 0)))
