;; What each carrier's flights come to, and since when none came: the example plugin of ../totals-c once more, written by
;; hand: a function over groups whose state the host keeps. The README of ../flights-wat explains the layout of memory and of
;; Arrow messages; what reads and writes them is the same here.
;;
;; Conventions: a text of our own is an address of a length byte with the text behind it; a text of a message is an
;; address and a length. A table is a FlatBuffers table, 0 if it is not there. Reading past memory traps, and a column's
;; buffers are checked to lie within their message before they are read.
(module
  (memory (export "memory") 2)

  (global $next (mut i32) (i32.const 1984)) ;; the first free byte
  (global $kept (mut i32) (i32.const 1984)) ;; where calls start again
  (global $over (mut i32) (i32.const 0))    ;; the last call's results were read if the host asks for memory again
  (global $open (mut i32) (i32.const 0))    ;; whether the function is open
  (global $nodes (mut i32) (i32.const 0))   ;; what $measure has counted
  (global $buffers (mut i32) (i32.const 0))
  (global $body (mut i32) (i32.const 0))    ;; the body of the last message
  (global $body_length (mut i32) (i32.const 0))
  (global $emitted (mut i32) (i32.const 0)) ;; rows of the message that is written
  (global $rejected (mut i32) (i32.const 0)) ;; list of refused rows, 12 bytes each
  (global $refusals (mut i32) (i32.const 0))
  (global $changed (mut i32) (i32.const 0)) ;; list of the groups that changed; their actions, a byte each
  (global $actions (mut i32) (i32.const 0))
  (global $timeouts (mut i32) (i32.const 0)) ;; list of timeouts, 16 bytes each
  (global $waiting (mut i32) (i32.const 0)) ;; how many of them

  ;; Texts: a byte with the length, then the text.
  (data (i32.const 80) "\06totals")
  (data (i32.const 87) "\050.1.0")
  (data (i32.const 93) "-Flights and minutes of delay of each carrier.")
  (data (i32.const 139) "\07carrier")
  (data (i32.const 147) "\09dep_delay")
  (data (i32.const 157) "\09time_hour")
  (data (i32.const 167) "\05state")
  (data (i32.const 173) "\16there is no function '")
  (data (i32.const 196) "\01'")
  (data (i32.const 198) "\14there is no column '")
  (data (i32.const 219) "\08column '")
  (data (i32.const 228) "\0d' is of type ")
  (data (i32.const 242) "\1f, but the function reads it as ")
  (data (i32.const 274) "\09' is null")
  (data (i32.const 284) "%the Arrow schema message is malformed")
  (data (i32.const 322) "*an Arrow record batch message is malformed")
  (data (i32.const 365) "$no function is open on this instance")
  (data (i32.const 402) "\1ethe state has one version only")
  (data (i32.const 433) "\06string")
  (data (i32.const 440) "\06double")
  (data (i32.const 447) "\09timestamp")
  ;; Names of the layouts that $layout tells apart, 16 bytes each.
  (data (i32.const 464) "\07boolean")
  (data (i32.const 480) "\04byte")
  (data (i32.const 496) "\05short")
  (data (i32.const 512) "\03int")
  (data (i32.const 528) "\04long")
  (data (i32.const 544) "\05float")
  (data (i32.const 560) "\06double")
  (data (i32.const 576) "\06string")
  (data (i32.const 592) "\06binary")
  (data (i32.const 608) "\04date")
  (data (i32.const 624) "\09timestamp")
  (data (i32.const 640) "\0dtimestamp_ntz")
  (data (i32.const 656) "\0da nested type")
  ;; Columns that are read, 16 bytes each: the name, the layouts that will do (a bit each), the name of the type that is
  ;; asked for, whether a null refuses the row. The key has the first, the rows have the others.
  (data (i32.const 672) "\8b\00\00\00\80\00\00\00\b1\01\00\00\00\00\00\00") ;; carrier: string
  (data (i32.const 688) "\93\00\00\00~\00\00\00\b8\01\00\00\00\00\00\00") ;; dep_delay: double
  (data (i32.const 704) "\9d\00\00\00\00\04\00\00\bf\01\00\00\01\00\00\00") ;; time_hour: timestamp NOT NULL
  ;; What comes out: an Arrow IPC schema message, a table a line.
  (data (i32.const 720) "\ff\ff\ff\ffX\01\00\00") ;; a message of 344 bytes of metadata
  (data (i32.const 728) "\14\00\00\00") ;; offset of the root
  (data (i32.const 732) "\0c\00\13\00\10\00\12\00\0c\00\04\00\00\00\00\00\10\00\00\00\00\00\00\00\00\00\00\00\14\00\00\00\04\00\01\00") ;; Message: version 5, a schema
  (data (i32.const 768) "\08\00\0a\00\08\00\04\00\00\00\00\00\0c\00\00\00\08\00\00\00\00\00\00\00") ;; Schema: little-endian, columns
  (data (i32.const 792) "\04\00\00\00 \00\00\00X\00\00\00\9c\00\00\00\dc\00\00\00") ;; 4 columns
  (data (i32.const 812) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00\1c\00\00\00\1c\00\00\00\01\05\00\00") ;; Field: nullable
  (data (i32.const 848) "\07\00\00\00carrier\00") ;; "carrier"
  (data (i32.const 860) "\04\00\04\00\04\00\00\00") ;; its type: string
  (data (i32.const 868) "\00\00\00\00") ;; no children
  (data (i32.const 872) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00(\00\00\00\00\02\00\00") ;; Field: not null
  (data (i32.const 908) "\07\00\00\00flights\00") ;; "flights"
  (data (i32.const 920) "\08\00\09\00\04\00\08\00\08\00\00\00@\00\00\00\01\00\00\00") ;; its type: long
  (data (i32.const 940) "\00\00\00\00") ;; no children
  (data (i32.const 944) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00$\00\00\00\00\03\00\00") ;; Field: not null
  (data (i32.const 980) "\07\00\00\00minutes\00") ;; "minutes"
  (data (i32.const 992) "\06\00\06\00\04\00\00\00\08\00\00\00\02\00\00\00") ;; its type: double
  (data (i32.const 1008) "\00\00\00\00") ;; no children
  (data (i32.const 1012) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00\1c\00\00\00\1c\00\00\00\00\06\00\00") ;; Field: not null
  (data (i32.const 1048) "\07\00\00\00is_over\00") ;; "is_over"
  (data (i32.const 1060) "\04\00\04\00\04\00\00\00") ;; its type: boolean
  (data (i32.const 1068) "\00\00\00\00") ;; no children
  ;; What is kept of a group.
  (data (i32.const 1072) "\ff\ff\ff\ff0\01\00\00") ;; a message of 304 bytes of metadata
  (data (i32.const 1080) "\14\00\00\00") ;; offset of the root
  (data (i32.const 1084) "\0c\00\13\00\10\00\12\00\0c\00\04\00\00\00\00\00\10\00\00\00\00\00\00\00\00\00\00\00\14\00\00\00\04\00\01\00") ;; Message: version 5, a schema
  (data (i32.const 1120) "\08\00\0a\00\08\00\04\00\00\00\00\00\0c\00\00\00\08\00\00\00\00\00\00\00") ;; Schema: little-endian, columns
  (data (i32.const 1144) "\03\00\00\00\1c\00\00\00`\00\00\00\a0\00\00\00") ;; 3 columns
  (data (i32.const 1160) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00(\00\00\00\00\02\00\00") ;; Field: not null
  (data (i32.const 1196) "\07\00\00\00flights\00") ;; "flights"
  (data (i32.const 1208) "\08\00\09\00\04\00\08\00\08\00\00\00@\00\00\00\01\00\00\00") ;; its type: long
  (data (i32.const 1228) "\00\00\00\00") ;; no children
  (data (i32.const 1232) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00$\00\00\00\00\03\00\00") ;; Field: not null
  (data (i32.const 1268) "\07\00\00\00minutes\00") ;; "minutes"
  (data (i32.const 1280) "\06\00\06\00\04\00\00\00\08\00\00\00\02\00\00\00") ;; its type: double
  (data (i32.const 1296) "\00\00\00\00") ;; no children
  (data (i32.const 1300) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00$\00\00\004\00\00\00\00\0a\00\00") ;; Field: not null
  (data (i32.const 1336) "\04\00\00\00last\00\00\00\00") ;; "last"
  (data (i32.const 1348) "\08\00\0a\00\08\00\04\00\00\00\00\00\0c\00\00\00\08\00\00\00\02\00\00\00") ;; its type: timestamp
  (data (i32.const 1372) "\03\00\00\00UTC\00") ;; "UTC"
  (data (i32.const 1380) "\00\00\00\00") ;; no children
  ;; The columns that the host is to hand in: name, length.
  (data (i32.const 1392) "\94\00\00\00\09\00\00\00\9e\00\00\00\09\00\00\00")
  ;; The variable: name; a value (0); no key; its fields; version 1; no time to live; everything is loaded (1).
  (data (i32.const 1408) "\a8\00\00\00\05\00\00\00\00\00\00\00\10\00\00\00\00\00\00\000\04\00\008\01\00\00\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00")
  ;; What open answers: map-groups (0) by event time (2), the output, the reads, the variable.
  (data (i32.const 1472) "\00\00\00\00\00\02\00\00\d0\02\00\00`\01\00\00\01\00\00\00p\05\00\00\02\00\00\00\80\05\00\00\01\00\00\00")
  ;; The manifest's function: name, kind (2 stateful), doc; the manifest: name, version, encoding (0 is Arrow), functions.
  (data (i32.const 1508) "Q\00\00\00\06\00\00\00\02\00\00\00^\00\00\00-\00\00\00")
  (data (i32.const 1528) "Q\00\00\00\06\00\00\00X\00\00\00\05\00\00\00\00\00\00\00\e4\05\00\00\01\00\00\00")

  ;; Fixed places: the return area at 32; the columns that are read: carrier at 1568, dep_delay at 1600, time_hour at 1632, of the
  ;; state flights at 1664, minutes at 1696, last at 1728; those that are written: carrier at 1760, flights at 1792, minutes at 1824,
  ;; is_over at 1856, of the state at 1888, 1920, 1952.
  ;; Input column, 32 bytes: 0 layout, 4 node, 8 buffer, 12 validity or 0, 16 values, 20 text, 24 text's length.
  ;; Output column, 32 bytes: 0 validity or 0, 4 nulls, 8 values, 12 values' length, 16 text or 0, 20 text's length.

  ;; --- memory: a bump allocator that starts again at $kept with each call ---

  (func $room (param $bytes i32) (result i32) (local $at i32) (local $end i64) (local $have i64)
    (if (global.get $over) (then
      (global.set $next (global.get $kept))
      (global.set $over (i32.const 0))))
    (local.set $at (global.get $next))
    (local.set $end (i64.add (i64.extend_i32_u (local.get $at)) (i64.extend_i32_u (local.get $bytes))))
    (local.set $have (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)))
    (if (i64.gt_u (local.get $end) (local.get $have)) (then
      (if (i64.ge_u (local.get $end) (i64.const 0xffff0000)) (then (unreachable)))
      (if (i32.eq (i32.const -1) (memory.grow (i32.wrap_i64 (i64.shr_u
            (i64.add (i64.sub (local.get $end) (local.get $have)) (i64.const 65535)) (i64.const 16)))))
        (then (unreachable)))))
    (global.set $next (i32.wrap_i64 (local.get $end)))
    (local.get $at))

  ;; At a multiple of 16, which suits every Arrow buffer.
  (func $allocate (param $bytes i32) (result i32)
    (drop (call $room (i32.const 0)))
    (global.set $next (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
    (call $room (local.get $bytes)))

  (func (export "cabi_realloc") (param $old i32) (param $old_bytes i32) (param $align i32) (param $bytes i32)
    (result i32) (local $at i32)
    (local.set $at (call $allocate (local.get $bytes)))
    (memory.copy (local.get $at) (local.get $old)
      (select (local.get $old_bytes) (local.get $bytes) (i32.lt_u (local.get $old_bytes) (local.get $bytes))))
    (local.get $at))

  ;; Adds a text of our own, and one of a message, to the text that grows at the end of memory.
  (func $say (param $text i32)
    (call $say_bytes (i32.add (local.get $text) (i32.const 1)) (i32.load8_u (local.get $text))))
  (func $say_bytes (param $from i32) (param $length i32)
    (memory.copy (call $room (local.get $length)) (local.get $from) (local.get $length)))

  ;; Whether a text of a message is a text of our own.
  (func $same (param $at i32) (param $length i32) (param $text i32) (result i32)
    (if (i32.ne (local.get $length) (i32.load8_u (local.get $text))) (then (return (i32.const 0))))
    (block $differs
      (loop $next_byte
        (if (i32.eqz (local.get $length)) (then (return (i32.const 1))))
        (local.set $text (i32.add (local.get $text) (i32.const 1)))
        (br_if $differs (i32.ne (i32.load8_u (local.get $at)) (i32.load8_u (local.get $text))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (local.set $length (i32.sub (local.get $length) (i32.const 1)))
        (br $next_byte)))
    (i32.const 0))

  ;; --- FlatBuffers ---

  ;; Where a slot's value lies; 0 if it has its default.
  (func $slot (param $table i32) (param $slot i32) (result i32) (local $vtable i32) (local $entry i32)
    (if (i32.eqz (local.get $table)) (then (return (i32.const 0))))
    (local.set $vtable (i32.sub (local.get $table) (i32.load (local.get $table))))
    (local.set $entry (i32.add (i32.const 4) (i32.shl (local.get $slot) (i32.const 1))))
    (if (i32.gt_u (i32.add (local.get $entry) (i32.const 2)) (i32.load16_u (local.get $vtable)))
      (then (return (i32.const 0))))
    (local.set $entry (i32.load16_u (i32.add (local.get $vtable) (local.get $entry))))
    (select (i32.add (local.get $table) (local.get $entry)) (i32.const 0) (local.get $entry)))

  ;; The table, text or vector that a slot points to.
  (func $target (param $table i32) (param $slot i32) (result i32) (local $at i32)
    (local.set $at (call $slot (local.get $table) (local.get $slot)))
    (if (local.get $at) (then (return (i32.add (local.get $at) (i32.load (local.get $at))))))
    (i32.const 0))

  ;; A number of one byte; 0 if it is not there.
  (func $byte (param $table i32) (param $slot i32) (result i32) (local $at i32)
    (local.set $at (call $slot (local.get $table) (local.get $slot)))
    (if (local.get $at) (then (return (i32.load8_u (local.get $at)))))
    (i32.const 0))

  ;; A table of a vector.
  (func $entry (param $vector i32) (param $index i32) (result i32) (local $at i32)
    (local.set $at (i32.add (i32.add (local.get $vector) (i32.const 4)) (i32.shl (local.get $index) (i32.const 2))))
    (i32.add (local.get $at) (i32.load (local.get $at))))

  ;; --- Arrow messages ---

  ;; The header of a message of this kind (1 a schema, 3 a record batch), 0 if it is something else.
  (func $header (param $message i32) (param $length i32) (param $kind i32) (result i32) (local $metadata i32)
    (local $root i32)
    (if (i32.lt_u (local.get $length) (i32.const 16)) (then (return (i32.const 0))))
    (if (i32.ne (i32.load (local.get $message)) (i32.const -1)) (then (return (i32.const 0))))
    (local.set $metadata (i32.load offset=4 (local.get $message)))
    (if (i32.gt_u (local.get $metadata) (i32.sub (local.get $length) (i32.const 8))) (then (return (i32.const 0))))
    (global.set $body (i32.add (i32.add (local.get $message) (i32.const 8)) (local.get $metadata)))
    (global.set $body_length (i32.sub (i32.sub (local.get $length) (i32.const 8)) (local.get $metadata)))
    (local.set $root (i32.add (local.get $message) (i32.const 8)))
    (local.set $root (i32.add (local.get $root) (i32.load (local.get $root))))
    (if (i32.ne (call $byte (local.get $root) (i32.const 1)) (local.get $kind)) (then (return (i32.const 0))))
    (call $target (local.get $root) (i32.const 2)))

  ;; How a column's values lie: the place of its type in the list of names.
  (func $layout (param $field i32) (result i32) (local $kind i32) (local $type i32) (local $bits i32)
    (local.set $kind (call $byte (local.get $field) (i32.const 2)))
    (local.set $type (call $target (local.get $field) (i32.const 3)))
    (if (i32.eq (local.get $kind) (i32.const 6)) (then (return (i32.const 0)))) ;; boolean
    (if (i32.eq (local.get $kind) (i32.const 2)) (then ;; 8, 16, 32, 64 bits: 1, 2, 3, 4
      (local.set $bits (call $byte (local.get $type) (i32.const 0)))
      (return (i32.sub (i32.ctz (local.get $bits)) (i32.const 2)))))
    (if (i32.eq (local.get $kind) (i32.const 3)) (then ;; 1 is float, 2 double
      (return (i32.add (i32.const 4) (call $byte (local.get $type) (i32.const 0))))))
    (if (i32.eq (local.get $kind) (i32.const 5)) (then (return (i32.const 7)))) ;; string
    (if (i32.eq (local.get $kind) (i32.const 4)) (then (return (i32.const 8)))) ;; binary
    (if (i32.eq (local.get $kind) (i32.const 8)) (then (return (i32.const 9)))) ;; date
    (if (i32.eq (local.get $kind) (i32.const 10)) (then ;; with a zone or without
      (return (select (i32.const 10) (i32.const 11) (call $slot (local.get $type) (i32.const 1))))))
    (i32.const 12))

  ;; Counts the nodes and buffers of a column, nested ones included.
  (func $measure (param $field i32) (local $kind i32) (local $children i32) (local $i i32) (local $own i32)
    (local.set $kind (call $byte (local.get $field) (i32.const 2)))
    (local.set $own (i32.const 2))
    (if (i32.eq (local.get $kind) (i32.const 13)) (then (local.set $own (i32.const 1)))) ;; struct
    (if (i32.or (i32.eq (local.get $kind) (i32.const 4)) (i32.eq (local.get $kind) (i32.const 5)))
      (then (local.set $own (i32.const 3)))) ;; binary, string
    (global.set $nodes (i32.add (global.get $nodes) (i32.const 1)))
    (global.set $buffers (i32.add (global.get $buffers) (local.get $own)))
    (local.set $children (call $target (local.get $field) (i32.const 5)))
    (if (i32.eqz (local.get $children)) (then (return)))
    (block $done
      (loop $child
        (br_if $done (i32.ge_u (local.get $i) (i32.load (local.get $children))))
        (call $measure (call $entry (local.get $children) (local.get $i)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $child))))

  ;; The column of this name among the fields, 0 if there is none. $nodes and $buffers are then those of the columns before
  ;; it.
  (func $find (param $fields i32) (param $name i32) (result i32)
    (local $i i32) (local $field i32) (local $text i32)
    (global.set $nodes (i32.const 0))
    (global.set $buffers (i32.const 0))
    (block $none
      (loop $column
        (br_if $none (i32.ge_u (local.get $i) (i32.load (local.get $fields))))
        (local.set $field (call $entry (local.get $fields) (local.get $i)))
        (local.set $text (call $target (local.get $field) (i32.const 0)))
        (if (call $same (i32.add (local.get $text) (i32.const 4)) (i32.load (local.get $text)) (local.get $name))
          (then (return (local.get $field))))
        (call $measure (local.get $field))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $column)))
    (i32.const 0))

  ;; Finds a column that is read. Returns 0, or the return area with the error.
  (func $match (param $fields i32) (param $spec i32) (param $column i32) (result i32) (local $field i32) (local $layout i32)
    (local.set $field (call $find (local.get $fields) (i32.load (local.get $spec))))
    (if (i32.eqz (local.get $field)) (then (return (call $no_column (local.get $spec)))))
    (local.set $layout (call $layout (local.get $field)))
    (if (i32.eqz (i32.and (i32.load offset=4 (local.get $spec)) (i32.shl (i32.const 1) (local.get $layout))))
      (then (return (call $wrong_type (local.get $spec) (local.get $layout)))))
    (call $place (local.get $column) (local.get $layout) (global.get $nodes) (global.get $buffers))
    (i32.const 0))

  ;; Notes how a column lies in its messages.
  (func $place (param $column i32) (param $layout i32) (param $node i32) (param $buffer i32)
    (i32.store (local.get $column) (local.get $layout))
    (i32.store offset=4 (local.get $column) (local.get $node))
    (i32.store offset=8 (local.get $column) (local.get $buffer)))

  (func $no_column (param $spec i32) (result i32) (local $start i32)
    (local.set $start (call $room (i32.const 0)))
    (call $say (i32.const 198))
    (call $say (i32.load (local.get $spec)))
    (call $say (i32.const 196))
    (call $fail (i32.const 0) (local.get $start)))

  (func $wrong_type (param $spec i32) (param $layout i32) (result i32) (local $start i32)
    (local.set $start (call $room (i32.const 0)))
    (call $say (i32.const 219))
    (call $say (i32.load (local.get $spec)))
    (call $say (i32.const 228))
    (call $say (i32.add (i32.const 464) (i32.shl (local.get $layout) (i32.const 4))))
    (call $say (i32.const 242))
    (call $say (i32.load offset=8 (local.get $spec)))
    (call $fail (i32.const 0) (local.get $start)))

  ;; A buffer of a batch and its length; traps if it does not lie within the body.
  (func $buffer (param $batch i32) (param $index i32) (result i32 i32)
    (local $vector i32) (local $at i32) (local $offset i64) (local $length i64)
    (local.set $vector (call $target (local.get $batch) (i32.const 2)))
    (if (i32.ge_u (local.get $index) (i32.load (local.get $vector))) (then (unreachable)))
    (local.set $at (i32.add (i32.add (local.get $vector) (i32.const 4)) (i32.shl (local.get $index) (i32.const 4))))
    (local.set $offset (i64.load (local.get $at)))
    (local.set $length (i64.load offset=8 (local.get $at)))
    (if (i64.gt_u (local.get $offset) (i64.extend_i32_u (global.get $body_length))) (then (unreachable)))
    (if (i64.gt_u (local.get $length)
          (i64.sub (i64.extend_i32_u (global.get $body_length)) (local.get $offset))) (then (unreachable)))
    (i32.add (global.get $body) (i32.wrap_i64 (local.get $offset)))
    (i32.wrap_i64 (local.get $length)))

  ;; Finds an input column's buffers in a batch; traps if they are too short for its rows.
  (func $bind_column (param $column i32) (param $batch i32) (param $rows i32)
    (local $node i32) (local $index i32) (local $layout i32) (local $length i32) (local $needed i32)
    (local.set $node (call $target (local.get $batch) (i32.const 1)))
    (if (i32.ge_u (i32.load offset=4 (local.get $column)) (i32.load (local.get $node))) (then (unreachable)))
    (local.set $node (i32.add (i32.add (local.get $node) (i32.const 4))
      (i32.shl (i32.load offset=4 (local.get $column)) (i32.const 4))))
    (if (i64.ne (i64.load (local.get $node)) (i64.extend_i32_u (local.get $rows))) (then (unreachable)))
    (local.set $index (i32.load offset=8 (local.get $column)))
    (local.set $layout (i32.load (local.get $column)))
    (i32.store offset=12 (local.get $column) (i32.const 0))
    (if (i64.ne (i64.load offset=8 (local.get $node)) (i64.const 0)) (then ;; there are nulls
      (call $buffer (local.get $batch) (local.get $index))
      (local.set $length)
      (local.set $needed)
      (i32.store offset=12 (local.get $column) (local.get $needed))
      (if (i32.lt_u (local.get $length) (i32.shr_u (i32.add (local.get $rows) (i32.const 7)) (i32.const 3)))
        (then (unreachable)))))
    (call $buffer (local.get $batch) (i32.add (local.get $index) (i32.const 1)))
    (local.set $length)
    (local.set $needed)
    (i32.store offset=16 (local.get $column) (local.get $needed))
    (if (i32.eqz (local.get $rows)) (then (return)))
    (local.set $needed (i32.shl (local.get $rows) (call $shift (local.get $layout))))
    (if (i32.eq (local.get $layout) (i32.const 7)) (then
      (local.set $needed (i32.add (local.get $needed) (i32.const 4)))))
    (if (i32.lt_u (local.get $length) (local.get $needed)) (then (unreachable)))
    (if (i32.eq (local.get $layout) (i32.const 7)) (then
      (call $buffer (local.get $batch) (i32.add (local.get $index) (i32.const 2)))
      (local.set $length)
      (local.set $needed)
      (i32.store offset=20 (local.get $column) (local.get $needed))
      (i32.store offset=24 (local.get $column) (local.get $length)))))

  ;; The width of a layout's values (of a text: of its offsets) as a power of two, four bits each.
  (func $shift (param $layout i32) (result i32)
    (i32.and (i32.const 15) (i32.wrap_i64 (i64.shr_u (i64.const 0x332223232100)
      (i64.extend_i32_u (i32.shl (local.get $layout) (i32.const 2)))))))

  ;; Finds the buffers of so many columns in a message. Returns its rows, -1 if it is malformed; no bytes are no rows.
  (func $bind (param $message i32) (param $length i32) (param $column i32) (param $columns i32) (result i32)
    (local $batch i32) (local $at i32) (local $rows i32)
    (if (i32.eqz (local.get $length)) (then (return (i32.const 0))))
    (local.set $batch (call $header (local.get $message) (local.get $length) (i32.const 3)))
    (if (i32.or (i32.eqz (local.get $batch)) (call $slot (local.get $batch) (i32.const 3))) ;; 3: it is compressed
      (then (return (i32.const -1))))
    (local.set $at (call $slot (local.get $batch) (i32.const 0)))
    (if (local.get $at) (then (local.set $rows (i32.load (local.get $at)))))
    (if (i32.gt_u (local.get $rows) (i32.const 0x1000000)) (then (unreachable)))
    (loop $each
      (call $bind_column (local.get $column) (local.get $batch) (local.get $rows))
      (local.set $column (i32.add (local.get $column) (i32.const 32)))
      (local.set $columns (i32.sub (local.get $columns) (i32.const 1)))
      (br_if $each (local.get $columns)))
    (local.get $rows))

  ;; --- reading; $column is the address of an input column ---

  (func $is_null (param $column i32) (param $row i32) (result i32) (local $bits i32)
    (local.set $bits (i32.load offset=12 (local.get $column)))
    (if (i32.eqz (local.get $bits)) (then (return (i32.const 0))))
    (i32.eqz (i32.and (i32.const 1) (i32.shr_u
      (i32.load8_u (i32.add (local.get $bits) (i32.shr_u (local.get $row) (i32.const 3))))
      (i32.and (local.get $row) (i32.const 7))))))

  (func $get_long (param $column i32) (param $row i32) (result i64) (local $layout i32) (local $at i32)
    (local.set $layout (i32.load (local.get $column)))
    (local.set $at (i32.add (i32.load offset=16 (local.get $column))
      (i32.shl (local.get $row) (call $shift (local.get $layout)))))
    (if (i32.eq (local.get $layout) (i32.const 1)) (then (return (i64.load8_s (local.get $at)))))
    (if (i32.eq (local.get $layout) (i32.const 2)) (then (return (i64.load16_s (local.get $at)))))
    (if (i32.eq (local.get $layout) (i32.const 3)) (then (return (i64.load32_s (local.get $at)))))
    (i64.load (local.get $at)))

  (func $get_double (param $column i32) (param $row i32) (result f64) (local $layout i32) (local $at i32)
    (local.set $layout (i32.load (local.get $column)))
    (local.set $at (i32.add (i32.load offset=16 (local.get $column))
      (i32.shl (local.get $row) (call $shift (local.get $layout)))))
    (if (i32.eq (local.get $layout) (i32.const 6)) (then (return (f64.load (local.get $at)))))
    (if (i32.eq (local.get $layout) (i32.const 5)) (then (return (f64.promote_f32 (f32.load (local.get $at))))))
    (f64.convert_i64_s (call $get_long (local.get $column) (local.get $row))))

  ;; A text's place and length; traps if its offsets do not lie within the text.
  (func $get_text (param $column i32) (param $row i32) (result i32 i32) (local $start i32) (local $end i32)
    (local.set $start (i32.add (i32.load offset=16 (local.get $column)) (i32.shl (local.get $row) (i32.const 2))))
    (local.set $end (i32.load offset=4 (local.get $start)))
    (local.set $start (i32.load (local.get $start)))
    (if (i32.or (i32.gt_u (local.get $start) (local.get $end))
                (i32.gt_u (local.get $end) (i32.load offset=24 (local.get $column)))) (then (unreachable)))
    (i32.add (i32.load offset=20 (local.get $column)) (local.get $start))
    (i32.sub (local.get $end) (local.get $start)))

  ;; --- writing; $out is the address of an output column ---
  ;; Each column gets room for the most that can come out, so that nothing has to grow.

  ;; Room for $bytes of values without nulls.
  (func $start_values (param $out i32) (param $bytes i32)
    (memory.fill (local.get $out) (i32.const 0) (i32.const 32))
    (i32.store offset=8 (local.get $out) (call $allocate (local.get $bytes))))

  ;; Room for $rows texts of $bytes together. Before the first end there is a 0.
  (func $start_texts (param $out i32) (param $rows i32) (param $bytes i32)
    (call $start_values (local.get $out) (i32.shl (i32.add (local.get $rows) (i32.const 1)) (i32.const 2)))
    (i32.store offset=16 (local.get $out) (call $allocate (local.get $bytes)))
    (i32.store (i32.load offset=8 (local.get $out)) (i32.const 0))
    (i32.store offset=12 (local.get $out) (i32.const 4)))

  ;; Room for $rows bits, all 0.
  (func $bits (param $rows i32) (result i32) (local $bytes i32) (local $at i32)
    (local.set $bytes (i32.shr_u (i32.add (local.get $rows) (i32.const 7)) (i32.const 3)))
    (local.set $at (call $allocate (local.get $bytes)))
    (memory.fill (local.get $at) (i32.const 0) (local.get $bytes))
    (local.get $at))
  (func $set_bit (param $bits i32) (param $row i32)
    (local.set $bits (i32.add (local.get $bits) (i32.shr_u (local.get $row) (i32.const 3))))
    (i32.store8 (local.get $bits) (i32.or (i32.load8_u (local.get $bits))
      (i32.shl (i32.const 1) (i32.and (local.get $row) (i32.const 7))))))

  ;; Where the next value goes; the column is then $bytes longer.
  (func $grow (param $out i32) (param $bytes i32) (result i32) (local $length i32)
    (local.set $length (i32.load offset=12 (local.get $out)))
    (i32.store offset=12 (local.get $out) (i32.add (local.get $length) (local.get $bytes)))
    (i32.add (i32.load offset=8 (local.get $out)) (local.get $length)))
  (func $put_long (param $out i32) (param $value i64)
    (i64.store (call $grow (local.get $out) (i32.const 8)) (local.get $value)))
  (func $put_int (param $out i32) (param $value i32)
    (i32.store (call $grow (local.get $out) (i32.const 4)) (local.get $value)))
  (func $put_double (param $out i32) (param $value f64)
    (f64.store (call $grow (local.get $out) (i32.const 8)) (local.get $value)))

  ;; Where a text goes on.
  (func $text_end (param $out i32) (result i32)
    (i32.add (i32.load offset=16 (local.get $out)) (i32.load offset=20 (local.get $out))))
  (func $put_bytes (param $from i32) (param $length i32) (param $out i32)
    (memory.copy (call $text_end (local.get $out)) (local.get $from) (local.get $length))
    (i32.store offset=20 (local.get $out) (i32.add (i32.load offset=20 (local.get $out)) (local.get $length))))
  (func $end_text (param $out i32)
    (call $put_int (local.get $out) (i32.load offset=20 (local.get $out))))

  ;; --- refusing ---

  ;; Notes that a row is refused, for the reason that was said since $start.
  (func $refuse (param $row i32) (param $start i32) (local $at i32)
    (local.set $at (i32.add (global.get $rejected) (i32.mul (global.get $refusals) (i32.const 12))))
    (i32.store (local.get $at) (local.get $row))
    (i32.store offset=4 (local.get $at) (local.get $start))
    (i32.store offset=8 (local.get $at) (i32.sub (global.get $next) (local.get $start)))
    (global.set $refusals (i32.add (global.get $refusals) (i32.const 1))))

  ;; Refuses the row if its time is null; whether it did.
  (func $refuse_null (param $row i32) (result i32) (local $start i32)
    (if (i32.eqz (call $is_null (i32.const 1632) (local.get $row))) (then (return (i32.const 0))))
    (local.set $start (call $room (i32.const 0)))
    (call $say (i32.const 219))
    (call $say (i32.const 157))
    (call $say (i32.const 274))
    (call $refuse (local.get $row) (local.get $start))
    (i32.const 1))

  ;; --- totals: key carrier; inputs dep_delay, time_hour; state flights, minutes, last ---

  ;; A number of a list; traps where the next is less, or more than $most.
  (func $offset (param $offsets i32) (param $group i32) (param $most i32) (result i32 i32) (local $at i32)
    (local.set $at (i32.add (local.get $offsets) (i32.shl (local.get $group) (i32.const 2))))
    (if (i32.or (i32.gt_u (i32.load (local.get $at)) (i32.load offset=4 (local.get $at)))
                (i32.gt_u (i32.load offset=4 (local.get $at)) (local.get $most))) (then (unreachable)))
    (i32.load (local.get $at))
    (i32.load offset=4 (local.get $at)))

  (func $group (param $group i32) (param $row i32) (param $end i32) (param $entry i32) (param $has_state i32)
    (param $is_over i32) (local $flights i64) (local $minutes f64) (local $last i64)
    (if (local.get $has_state) (then
      (local.set $flights (call $get_long (i32.const 1664) (local.get $entry)))
      (local.set $minutes (call $get_double (i32.const 1696) (local.get $entry)))
      (local.set $last (call $get_long (i32.const 1728) (local.get $entry)))))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $row) (local.get $end)))
        (if (i32.eqz (call $refuse_null (local.get $row))) (then
          (local.set $flights (i64.add (local.get $flights) (i64.const 1)))
          (if (i32.eqz (call $is_null (i32.const 1600) (local.get $row))) (then
            (local.set $minutes
              (f64.add (local.get $minutes) (call $get_double (i32.const 1600) (local.get $row))))))
          (if (i64.gt_s (call $get_long (i32.const 1632) (local.get $row)) (local.get $last)) (then
            (local.set $last (call $get_long (i32.const 1632) (local.get $row)))))))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $each)))
    (i32.store (i32.add (global.get $changed) (i32.shl (local.get $group) (i32.const 2))) (local.get $group))
    (i32.store8 (i32.add (global.get $actions) (local.get $group))
      (i32.shl (local.get $is_over) (i32.const 1))) ;; 0 puts, 2 clears
    (if (i32.eqz (local.get $is_over)) (then
      (call $keep (local.get $group) (local.get $flights) (local.get $minutes) (local.get $last))))
    (call $show (local.get $group) (local.get $flights) (local.get $minutes) (local.get $is_over)))

  ;; A carrier is over when the watermark has passed its last flight by six hours.
  (func $keep (param $group i32) (param $flights i64) (param $minutes f64) (param $last i64) (local $at i32)
    (call $put_long (i32.const 1888) (local.get $flights))
    (call $put_double (i32.const 1920) (local.get $minutes))
    (call $put_long (i32.const 1952) (local.get $last))
    (local.set $at (i32.add (global.get $timeouts) (i32.shl (global.get $waiting) (i32.const 4))))
    (i32.store (local.get $at) (local.get $group))
    (i64.store offset=8 (local.get $at) (i64.add (local.get $last) (i64.const 21600000000)))
    (global.set $waiting (i32.add (global.get $waiting) (i32.const 1))))

  (func $show (param $group i32) (param $flights i64) (param $minutes f64) (param $is_over i32)
    (if (call $is_null (i32.const 1568) (local.get $group))
      (then (i32.store offset=4 (i32.const 1760) (i32.add (i32.load offset=4 (i32.const 1760)) (i32.const 1))))
      (else
        (call $set_bit (i32.load (i32.const 1760)) (local.get $group))
        (call $put_bytes (call $get_text (i32.const 1568) (local.get $group)) (i32.const 1760))))
    (call $end_text (i32.const 1760))
    (call $put_long (i32.const 1792) (local.get $flights))
    (call $put_double (i32.const 1824) (local.get $minutes))
    (if (local.get $is_over) (then (call $set_bit (i32.load offset=8 (i32.const 1856)) (local.get $group)))))

  ;; Room for what comes out of so many groups and rows.
  (func $begin (param $groups i32) (param $rows i32) (local $bits i32)
    (call $start_texts (i32.const 1760) (local.get $groups) (i32.load offset=24 (i32.const 1568)))
    (i32.store (i32.const 1760) (call $bits (local.get $groups)))
    (call $start_values (i32.const 1792) (i32.shl (local.get $groups) (i32.const 3)))
    (call $start_values (i32.const 1824) (i32.shl (local.get $groups) (i32.const 3)))
    (call $start_values (i32.const 1856) (i32.const 0))
    (i32.store offset=8 (i32.const 1856) (call $bits (local.get $groups)))
    (i32.store offset=12 (i32.const 1856) (i32.shr_u (i32.add (local.get $groups) (i32.const 7)) (i32.const 3)))
    (call $start_values (i32.const 1888) (i32.shl (local.get $groups) (i32.const 3)))
    (call $start_values (i32.const 1920) (i32.shl (local.get $groups) (i32.const 3)))
    (call $start_values (i32.const 1952) (i32.shl (local.get $groups) (i32.const 3)))
    (global.set $changed (call $allocate (i32.shl (local.get $groups) (i32.const 2))))
    (global.set $actions (call $allocate (local.get $groups)))
    (global.set $timeouts (call $allocate (i32.shl (local.get $groups) (i32.const 4))))
    (global.set $waiting (i32.const 0))
    (global.set $refusals (i32.const 0))
    (global.set $rejected (call $allocate (i32.mul (local.get $rows) (i32.const 12)))))

  ;; Calls the function for each group; traps if a list is shorter than there are groups.
  (func $groups (param $call i32) (param $groups i32) (param $rows i32) (param $state i32) (param $entries i32)
    (local $group i32) (local $is_over i32) (local $start i32) (local $end i32) (local $entry i32) (local $last i32)
    (if (i32.ne (i32.load offset=12 (local.get $state)) (i32.add (local.get $groups) (i32.const 1)))
      (then (unreachable)))
    (local.set $is_over (i32.eq (i32.load8_u offset=40 (local.get $call)) (i32.const 1)))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $group) (local.get $groups)))
        (call $offset (i32.load offset=60 (local.get $call)) (local.get $group) (local.get $rows))
        (local.set $end)
        (local.set $start)
        (call $offset (i32.load offset=8 (local.get $state)) (local.get $group) (local.get $entries))
        (local.set $last)
        (local.set $entry)
        (call $group (local.get $group) (local.get $start) (local.get $end) (local.get $entry)
          (i32.lt_u (local.get $entry) (local.get $last)) (local.get $is_over))
        (local.set $group (i32.add (local.get $group) (i32.const 1)))
        (br $each))))

  ;; --- the batch message ---
  ;; 8 bytes of prefix, then metadata of a fixed layout: the message's vtable at 4, the message at 16, the batch's vtable
  ;; at 36, the batch at 48, the nodes' count at 68, the nodes (16 bytes each), the buffers' count, the buffers.

  ;; A message of so many columns with $emitted rows, and its length.
  (func $write_batch (param $first i32) (param $columns i32) (result i32 i32)
    (local $buffers i32) (local $i i32) (local $out i32) (local $message i32) (local $body i32)
    (local $entry i32)
    (loop $count
      (local.set $out (i32.add (local.get $first) (i32.shl (local.get $i) (i32.const 5))))
      (local.set $buffers (i32.add (local.get $buffers)
        (select (i32.const 3) (i32.const 2) (i32.load offset=16 (local.get $out)))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $count (i32.lt_u (local.get $i) (local.get $columns))))
    (local.set $body (i32.add (i32.const 96)
      (i32.shl (i32.add (local.get $columns) (local.get $buffers)) (i32.const 4))))
    (local.set $message (call $allocate (local.get $body)))
    (memory.fill (local.get $message) (i32.const 0) (local.get $body))
    (local.set $entry (i32.add (i32.add (local.get $message) (i32.const 88)) (i32.shl (local.get $columns) (i32.const 4))))
    (local.set $body (call $allocate (i32.const 0)))
    (local.set $i (i32.const 0))
    (loop $column
      (local.set $out (i32.add (local.get $first) (i32.shl (local.get $i) (i32.const 5))))
      (call $write_node (local.get $out)
        (i32.add (i32.add (local.get $message) (i32.const 80)) (i32.shl (local.get $i) (i32.const 4))))
      (local.set $entry (call $write_column (local.get $out) (local.get $entry) (local.get $body)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $column (i32.lt_u (local.get $i) (local.get $columns))))
    (call $write_metadata (local.get $message) (local.get $body) (local.get $columns) (local.get $buffers))
    (local.get $message)
    (i32.sub (call $allocate (i32.const 0)) (local.get $message)))

  (func $write_node (param $out i32) (param $at i32)
    (i64.store (local.get $at) (i64.extend_i32_u (global.get $emitted)))
    (i64.store offset=8 (local.get $at) (i64.load32_u offset=4 (local.get $out))))

  ;; Appends a column's buffers to the body; returns where the next buffer's entry goes.
  (func $write_column (param $out i32) (param $entry i32) (param $body i32) (result i32) (local $bits i32)
    (if (i32.load offset=4 (local.get $out)) (then ;; there are nulls
      (local.set $bits (i32.shr_u (i32.add (global.get $emitted) (i32.const 7)) (i32.const 3)))))
    (call $write_buffer (local.get $entry) (local.get $body) (i32.load (local.get $out)) (local.get $bits))
    (call $write_buffer (i32.add (local.get $entry) (i32.const 16)) (local.get $body)
      (i32.load offset=8 (local.get $out)) (i32.load offset=12 (local.get $out)))
    (if (i32.eqz (i32.load offset=16 (local.get $out)))
      (then (return (i32.add (local.get $entry) (i32.const 32)))))
    (call $write_buffer (i32.add (local.get $entry) (i32.const 32)) (local.get $body)
      (i32.load offset=16 (local.get $out)) (i32.load offset=20 (local.get $out)))
    (i32.add (local.get $entry) (i32.const 48)))

  (func $write_buffer (param $entry i32) (param $body i32) (param $from i32) (param $length i32) (local $at i32)
    (local.set $at (call $allocate (local.get $length)))
    (memory.copy (local.get $at) (local.get $from) (local.get $length))
    (i64.store (local.get $entry) (i64.extend_i32_u (i32.sub (local.get $at) (local.get $body))))
    (i64.store offset=8 (local.get $entry) (i64.extend_i32_u (local.get $length))))

  (func $write_metadata (param $message i32) (param $body i32) (param $columns i32) (param $buffers i32)
    (i32.store (local.get $message) (i32.const -1))
    (i32.store offset=4 (local.get $message)
      (i32.sub (i32.sub (local.get $body) (local.get $message)) (i32.const 8)))
    (i32.store offset=8 (local.get $message) (i32.const 16)) ;; the root
    (i64.store offset=12 (local.get $message) (i64.const 0x001200100014000c)) ;; sizes 12, 20; version 16, kind 18 …
    (i32.store offset=20 (local.get $message) (i32.const 0x00080004)) ;; … header 4, body's length 8
    (i32.store offset=24 (local.get $message) (i32.const 12)) ;; the message: back to its vtable
    (i32.store offset=28 (local.get $message) (i32.const 28)) ;; to the header
    (i64.store offset=32 (local.get $message)
      (i64.extend_i32_u (i32.sub (call $allocate (i32.const 0)) (local.get $body)))) ;; the body's length
    (i32.store offset=40 (local.get $message) (i32.const 0x00030004)) ;; version 5, a record batch
    (i64.store offset=44 (local.get $message) (i64.const 0x000400080014000a)) ;; sizes 10, 20; length 8, nodes 4 …
    (i32.store offset=52 (local.get $message) (i32.const 16)) ;; … buffers 16
    (i32.store offset=56 (local.get $message) (i32.const 12)) ;; the batch: back to its vtable
    (i32.store offset=60 (local.get $message) (i32.const 16)) ;; to the nodes
    (i64.store offset=64 (local.get $message) (i64.extend_i32_u (global.get $emitted))) ;; rows
    (i32.store offset=72 (local.get $message)
      (i32.add (i32.const 12) (i32.shl (local.get $columns) (i32.const 4)))) ;; to the buffers
    (i32.store offset=76 (local.get $message) (local.get $columns))
    (i32.store offset=84 (i32.add (local.get $message) (i32.shl (local.get $columns) (i32.const 4)))
      (local.get $buffers)))

  ;; --- exports ---

  ;; An error with the message that was said since $start: case 0 unsuitable, 1 failed.
  (func $fail (param $case i32) (param $start i32) (result i32)
    (i32.store (i32.const 32) (i32.const 1))
    (i32.store (i32.const 36) (local.get $case))
    (i32.store (i32.const 40) (local.get $start))
    (i32.store (i32.const 44) (i32.sub (global.get $next) (local.get $start)))
    (global.set $over (i32.const 1))
    (i32.const 32))
  (func $fail_with (param $case i32) (param $text i32) (result i32) (local $start i32)
    (local.set $start (call $room (i32.const 0)))
    (call $say (local.get $text))
    (call $fail (local.get $case) (local.get $start)))

  (func (export "pelton:plugin/describe@0.1.0#describe") (result i32) (i32.const 1528))

  ;; The configuration is not needed here.
  (func (export "pelton:plugin/stateful@0.1.0#open")
    (param $name i32) (param $length i32) (param i32 i32) (param $key i32) (param $key_length i32)
    (param $input i32) (param $input_length i32) (result i32) (local $fields i32) (local $failure i32)
    (if (i32.eqz (call $same (local.get $name) (local.get $length) (i32.const 80)))
      (then (return (call $no_function (local.get $name) (local.get $length)))))
    (local.set $fields (call $target
      (call $header (local.get $key) (local.get $key_length) (i32.const 1)) (i32.const 1)))
    (if (i32.eqz (local.get $fields)) (then (return (call $fail_with (i32.const 1) (i32.const 284)))))
    (local.set $failure (call $match (local.get $fields) (i32.const 672) (i32.const 1568)))
    (if (local.get $failure) (then (return (local.get $failure))))
    (local.set $fields (call $target
      (call $header (local.get $input) (local.get $input_length) (i32.const 1)) (i32.const 1)))
    (if (i32.eqz (local.get $fields)) (then (return (call $fail_with (i32.const 1) (i32.const 284)))))
    (local.set $failure (call $match_rows (local.get $fields)))
    (if (local.get $failure) (then (return (local.get $failure))))
    ;; Of the state: a long, a double, a timestamp, as they were written.
    (call $place (i32.const 1664) (i32.const 4) (i32.const 0) (i32.const 0))
    (call $place (i32.const 1696) (i32.const 6) (i32.const 1) (i32.const 2))
    (call $place (i32.const 1728) (i32.const 10) (i32.const 2) (i32.const 4))
    (global.set $open (i32.const 1))
    (global.set $over (i32.const 1))
    (i32.const 1472))

  ;; Finds the columns of the rows. The host hands these two in alone, in the order that they have in the input.
  (func $match_rows (param $fields i32) (result i32) (local $failure i32) (local $first i32)
    (local.set $failure (call $match (local.get $fields) (i32.const 688) (i32.const 1600)))
    (if (local.get $failure) (then (return (local.get $failure))))
    (local.set $failure (call $match (local.get $fields) (i32.const 704) (i32.const 1632)))
    (if (local.get $failure) (then (return (local.get $failure))))
    (local.set $first (i32.lt_u (i32.load offset=4 (i32.const 1600)) (i32.load offset=4 (i32.const 1632))))
    (call $place (i32.const 1600) (i32.load (i32.const 1600))
      (i32.eqz (local.get $first)) (i32.shl (i32.eqz (local.get $first)) (i32.const 1)))
    (call $place (i32.const 1632) (i32.load (i32.const 1632))
      (local.get $first) (i32.shl (local.get $first) (i32.const 1)))
    (i32.const 0))

  (func $no_function (param $name i32) (param $length i32) (result i32) (local $start i32)
    (local.set $start (call $room (i32.const 0)))
    (call $say (i32.const 173))
    (call $say_bytes (local.get $name) (local.get $length))
    (call $say (i32.const 196))
    (call $fail (i32.const 0) (local.get $start)))

  ;; Of the call: 40 reason, 44 keys, 52 rows, 60 offsets, 68 state, each an address and a length.
  (func (export "pelton:plugin/stateful@0.1.0#process") (param $call i32) (result i32)
    (local $groups i32) (local $rows i32) (local $state i32) (local $entries i32)
    (if (i32.eqz (global.get $open)) (then (return (call $fail_with (i32.const 1) (i32.const 365)))))
    (if (i32.or (i32.eqz (i32.load offset=64 (local.get $call)))
                (i32.ne (i32.load offset=72 (local.get $call)) (i32.const 1))) (then (unreachable)))
    (local.set $groups (i32.sub (i32.load offset=64 (local.get $call)) (i32.const 1)))
    (local.set $state (i32.load offset=68 (local.get $call)))
    (local.set $rows (call $bind (i32.load offset=52 (local.get $call)) (i32.load offset=56 (local.get $call))
      (i32.const 1600) (i32.const 2)))
    (local.set $entries (call $bind (i32.load (local.get $state)) (i32.load offset=4 (local.get $state))
      (i32.const 1664) (i32.const 3)))
    (if (i32.or (i32.lt_s (local.get $rows) (i32.const 0)) (i32.or (i32.lt_s (local.get $entries) (i32.const 0))
          (i32.ne (local.get $groups) (call $bind (i32.load offset=44 (local.get $call))
            (i32.load offset=48 (local.get $call)) (i32.const 1568) (i32.const 1)))))
      (then (return (call $fail_with (i32.const 1) (i32.const 322)))))
    (call $begin (local.get $groups) (local.get $rows))
    (call $groups (local.get $call) (local.get $groups) (local.get $rows) (local.get $state) (local.get $entries))
    (call $answer (local.get $groups)))

  ;; 4 rows, 12 refused rows, 20 changes, 28 timeouts, 36 timers, each an address and a length. Of the changes: groups, actions,
  ;; rows to put, keys to remove.
  (func $answer (param $groups i32) (result i32) (local $changes i32) (local $at i32) (local $length i32)
    (local.set $changes (call $allocate (i32.const 32)))
    (i32.store (local.get $changes) (global.get $changed))
    (i32.store offset=4 (local.get $changes) (local.get $groups))
    (i32.store offset=8 (local.get $changes) (global.get $actions))
    (i32.store offset=12 (local.get $changes) (local.get $groups))
    (global.set $emitted (global.get $waiting)) ;; what is kept has a timeout
    (call $write_batch (i32.const 1888) (i32.const 3))
    (local.set $length)
    (local.set $at)
    (i32.store offset=16 (local.get $changes) (local.get $at))
    (i32.store offset=20 (local.get $changes) (local.get $length))
    (i32.store offset=24 (local.get $changes) (i32.const 16))
    (i32.store offset=28 (local.get $changes) (i32.const 0))
    (global.set $emitted (local.get $groups))
    (call $write_batch (i32.const 1760) (i32.const 4))
    (local.set $length)
    (local.set $at)
    (i32.store (i32.const 32) (i32.const 0))
    (i32.store (i32.const 36) (local.get $at))
    (i32.store (i32.const 40) (local.get $length))
    (i32.store (i32.const 44) (global.get $rejected))
    (i32.store (i32.const 48) (global.get $refusals))
    (i32.store (i32.const 52) (local.get $changes))
    (i32.store (i32.const 56) (i32.const 1))
    (i32.store (i32.const 60) (global.get $timeouts))
    (i32.store (i32.const 64) (global.get $waiting))
    (i32.store (i32.const 68) (i32.const 16)) ;; no timers
    (i32.store (i32.const 72) (i32.const 0))
    (global.set $over (i32.const 1))
    (i32.const 32))

  (func (export "pelton:plugin/stateful@0.1.0#migrate") (param i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $fail_with (i32.const 1) (i32.const 402)))
)
