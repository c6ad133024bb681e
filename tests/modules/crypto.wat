;; Calls one function of module `fieldbrook` as its payload says: seven u32, the function and
;; three ranges (offset within the payload, size), then the bytes. Returns the function's
;; code and leaves what it handed back under "out".
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "fieldbrook" "verify_secp256k1"
    (func $verify_secp256k1 (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "fieldbrook" "verify_p256"
    (func $verify_p256 (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "fieldbrook" "verify_ed25519"
    (func $verify_ed25519 (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "fieldbrook" "recover_secp256k1"
    (func $recover_secp256k1 (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "fieldbrook" "recover_address"
    (func $recover_address (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "fieldbrook" "sha256" (func $sha256 (param i32 i32 i32 i32) (result i32)))
  (import "fieldbrook" "keccak256" (func $keccak256 (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "out")
  (global $top (mut i32) (i32.const 4096))
  (global $at (mut i32) (i32.const 0))

  (func $alloc (export "alloc") (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $top))
    (global.set $top (i32.add (local.get $at) (local.get $size)))
    (local.get $at))

  (func $place (param $word i32) (result i32)
    (i32.add (global.get $at) (i32.load (i32.add (global.get $at) (local.get $word)))))
  (func $size (param $word i32) (result i32)
    (i32.load (i32.add (global.get $at) (local.get $word))))

  (func $call (param $function i32) (result i32)
    (local $a i32) (local $b i32) (local $c i32) (local $d i32)
    (local.set $a (call $place (i32.const 4))) (local.set $b (call $size (i32.const 8)))
    (local.set $c (call $place (i32.const 12))) (local.set $d (call $size (i32.const 16)))
    (block $keccak (block $sha (block $address (block $recover (block $ed (block $p256 (block $k1
      (br_table $k1 $p256 $ed $recover $address $sha $keccak (local.get $function)))
      (return (call $verify_secp256k1 (local.get $a) (local.get $b) (local.get $c) (local.get $d)
        (call $place (i32.const 20)) (call $size (i32.const 24)))))
      (return (call $verify_p256 (local.get $a) (local.get $b) (local.get $c) (local.get $d)
        (call $place (i32.const 20)) (call $size (i32.const 24)))))
      (return (call $verify_ed25519 (local.get $a) (local.get $b) (local.get $c) (local.get $d)
        (call $place (i32.const 20)) (call $size (i32.const 24)))))
      (return (call $recover_secp256k1 (local.get $a) (local.get $b) (local.get $c) (local.get $d)
        (i32.const 24) (i32.const 28))))
      (return (call $recover_address (local.get $a) (local.get $b) (local.get $c) (local.get $d)
        (i32.const 24) (i32.const 28))))
      (return (call $sha256 (local.get $a) (local.get $b) (i32.const 24) (i32.const 28))))
    (call $keccak256 (local.get $a) (local.get $b) (i32.const 24) (i32.const 28)))

  (func (export "start") (param $rid i32) (result i32)
    (local $code i32)
    (if (call $get_data (local.get $rid) (i32.const 16) (i32.const 20)) (then unreachable))
    (global.set $at (i32.load (i32.const 16)))
    (local.set $code (call $call (i32.load (global.get $at))))
    (drop (call $set_db (i32.const 0) (i32.const 3) (i32.load (i32.const 24)) (i32.load (i32.const 28))))
    (local.get $code)))
