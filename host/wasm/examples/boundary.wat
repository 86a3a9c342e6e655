;; What a guest costs that does as little as possible: `identity` hands its rows back, `add` adds two columns of
;; 64-bit integers without nulls. The benchmark of the sandbox's wall and the crate's tests run it.
(module
  (memory (export "memory") 4)
  (global $heap (mut i32) (i32.const 4096))

  (data (i32.const 16) "boundary")
  (data (i32.const 32) "0.1.0")
  (data (i32.const 48) "identity")
  (data (i32.const 64) "add")
  (data (i32.const 80) "only int64 without nulls")
  ;; functions: {name, kind, doc}
  (data (i32.const 128)
    "\30\00\00\00\08\00\00\00" "\01\00\00\00" "\00\00\00\00\00\00\00\00"
    "\40\00\00\00\03\00\00\00" "\00\00\00\00" "\00\00\00\00\00\00\00\00")
  ;; manifest: {name, version, encoding, functions}
  (data (i32.const 192)
    "\10\00\00\00\08\00\00\00" "\20\00\00\00\05\00\00\00" "\00\00\00\00" "\80\00\00\00\02\00\00\00")
  ;; A schema message with one column, "sum", of 64-bit integers that may be null.
  (data (i32.const 512)
    "\ff\ff\ff\ff\70\00\00\00\10\00\00\00\0a\00\0c\00\08\00\0a\00\04\00\00\00\0c\00\00\00\10\00\00\00"
    "\04\00\01\00\08\00\08\00\00\00\04\00\08\00\00\00\04\00\00\00\01\00\00\00\10\00\00\00\0c\00\10\00"
    "\04\00\0c\00\0d\00\08\00\0c\00\00\00\0c\00\00\00\18\00\00\00\01\02\00\00\03\00\00\00\73\75\6d\00"
    "\08\00\0c\00\04\00\08\00\08\00\00\00\40\00\00\00\01\00\00\00\00\00\00\00")
  ;; The head of a record-batch message with one node and two buffers; lengths are filled in.
  (data (i32.const 1024)
    "\ff\ff\ff\ff\80\00\00\00\10\00\00\00\0c\00\14\00\10\00\12\00\04\00\08\00\0c\00\00\00\1c\00\00\00"
    "\00\00\00\00\00\00\00\00\04\00\03\00\0a\00\14\00\08\00\04\00\10\00\00\00\0c\00\00\00\10\00\00\00"
    "\00\00\00\00\00\00\00\00\1c\00\00\00\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00"
    "\00\00\00\00\02\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00"
    "\00\00\00\00\00\00\00\00")

  ;; Everything that was allocated is given back after the call.
  (func $reset (param i32) (global.set $heap (i32.const 4096)))
  (export "cabi_post_pelton:plugin/transform@0.1.0#open" (func $reset))
  (export "cabi_post_pelton:plugin/transform@0.1.0#process" (func $reset))
  (export "cabi_post_pelton:plugin/scalar@0.1.0#bind" (func $reset))
  (export "cabi_post_pelton:plugin/scalar@0.1.0#evaluate" (func $reset))

  (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32) (local $missing i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (local.set $missing
      (i32.sub (i32.shr_u (i32.add (global.get $heap) (i32.const 65535)) (i32.const 16)) (memory.size)))
    (if (i32.gt_s (local.get $missing) (i32.const 0))
      (then (if (i32.eq (memory.grow (local.get $missing)) (i32.const -1)) (then (unreachable)))))
    (local.get $at))

  (func (export "pelton:plugin/describe@0.1.0#describe") (result i32) (i32.const 192))

  ;; The output schema is the input schema.
  (func (export "pelton:plugin/transform@0.1.0#open") (param i32 i32 i32 i32 i32 i32) (result i32)
    (i32.store (i32.const 256) (i32.const 0))
    (i32.store (i32.const 260) (local.get 4))
    (i32.store (i32.const 264) (local.get 5))
    (i32.const 256))

  (func (export "pelton:plugin/transform@0.1.0#process")
    (param i64 i64 i32 i64 i64 i32 i32) (result i32)
    (call $answer (local.get 5) (local.get 6)))

  (func $answer (param $rows i32) (param $length i32) (result i32)
    (i32.store (i32.const 256) (i32.const 0))
    (i32.store (i32.const 260) (local.get $rows))
    (i32.store (i32.const 264) (local.get $length))
    (i64.store (i32.const 268) (i64.const 0))
    (i32.const 256))

  (func $refuse (result i32)
    (i32.store (i32.const 256) (i32.const 1))
    (i32.store (i32.const 260) (i32.const 1))
    (i32.store (i32.const 264) (i32.const 80))
    (i32.store (i32.const 268) (i32.const 24))
    (i32.const 256))

  (func (export "pelton:plugin/scalar@0.1.0#bind") (param i32 i32 i32 i32 i32 i32) (result i32)
    (i32.store (i32.const 256) (i32.const 0))
    (i32.store (i32.const 260) (i32.const 512))
    (i32.store (i32.const 264) (i32.const 120))
    (i32.const 256))

  ;; Where a flatbuffer table has the field of this slot.
  (func $field (param $table i32) (param $slot i32) (result i32)
    (i32.add (local.get $table)
      (i32.load16_u (i32.add
        (i32.sub (local.get $table) (i32.load (local.get $table)))
        (i32.add (i32.const 4) (i32.shl (local.get $slot) (i32.const 1)))))))

  ;; What an offset at this place points to.
  (func $follow (param $at i32) (result i32) (i32.add (local.get $at) (i32.load (local.get $at))))

  (func (export "pelton:plugin/scalar@0.1.0#evaluate")
    (param i64 i64 i32 i64 i64) (param $in i32) (param $length i32) (result i32)
    (local $batch i32) (local $rows i32) (local $buffers i32) (local $body i32) (local $nodes i32)
    (local $a i32) (local $b i32) (local $out i32) (local $to i32) (local $end i32)
    (local.set $batch
      (call $follow (call $field (call $follow (i32.add (local.get $in) (i32.const 8))) (i32.const 2))))
    (local.set $rows (i32.load (call $field (local.get $batch) (i32.const 0))))
    (local.set $nodes (call $follow (call $field (local.get $batch) (i32.const 1))))
    (local.set $buffers (call $follow (call $field (local.get $batch) (i32.const 2))))
    (local.set $body
      (i32.add (i32.add (local.get $in) (i32.const 8)) (i32.load (i32.add (local.get $in) (i32.const 4)))))
    ;; Two columns of two buffers, no nulls.
    (if (i32.or (i32.ne (i32.load (local.get $buffers)) (i32.const 4))
          (i32.or (i32.load (i32.add (local.get $nodes) (i32.const 12)))
            (i32.load (i32.add (local.get $nodes) (i32.const 28)))))
      (then (return (call $refuse))))
    (local.set $a (i32.add (local.get $body) (i32.load (i32.add (local.get $buffers) (i32.const 20)))))
    (local.set $b (i32.add (local.get $body) (i32.load (i32.add (local.get $buffers) (i32.const 52)))))
    (local.set $end (i32.shl (local.get $rows) (i32.const 3)))
    ;; Room for the head and, because pairs are added, an even number of rows.
    (local.set $out (call $realloc (i32.const 0) (i32.const 0) (i32.const 8)
      (i32.add (i32.const 160) (local.get $end))))
    (memory.copy (local.get $out) (i32.const 1024) (i32.const 136))
    (i32.store (i32.add (local.get $out) (i32.const 32)) (local.get $end))
    (i32.store (i32.add (local.get $out) (i32.const 64)) (local.get $rows))
    (i32.store (i32.add (local.get $out) (i32.const 80)) (local.get $rows))
    (i32.store (i32.add (local.get $out) (i32.const 128)) (local.get $end))
    (local.set $to (i32.add (local.get $out) (i32.const 136)))
    (local.set $end (i32.add (local.get $to) (local.get $end)))
    (block $done
      (loop $more
        (br_if $done (i32.ge_u (local.get $to) (local.get $end)))
        (v128.store (local.get $to)
          (i64x2.add (v128.load (local.get $a)) (v128.load (local.get $b))))
        (local.set $a (i32.add (local.get $a) (i32.const 16)))
        (local.set $b (i32.add (local.get $b) (i32.const 16)))
        (local.set $to (i32.add (local.get $to) (i32.const 16)))
        (br $more)))
    (call $answer (local.get $out) (i32.sub (local.get $end) (local.get $out)))))
