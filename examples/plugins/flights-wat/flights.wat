;; Flights as departures and arrivals: the example plugin of ../flights-rust once more, written by hand, to show that
;; any Wasm will do and how little the contract needs. Its README explains the layout of memory and of Arrow messages.
;;
;; Conventions: a text of our own is an address of a length byte with the text behind it; a text of a message is an
;; address and a length. A table is a FlatBuffers table, 0 if it is not there. Reading past memory traps, and a column's
;; buffers are checked to lie within their message before they are read.
(module
  (type $rows_code (func (param $rows i32)))
  (memory (export "memory") 2)

  (global $next (mut i32) (i32.const 2816)) ;; the first free byte
  (global $kept (mut i32) (i32.const 2816)) ;; where calls start again
  (global $over (mut i32) (i32.const 0))    ;; the last call's results were read if the host asks for memory again
  (global $open (mut i32) (i32.const 0))    ;; the open function's record
  (global $nodes (mut i32) (i32.const 0))   ;; what $measure has counted
  (global $buffers (mut i32) (i32.const 0))
  (global $body (mut i32) (i32.const 0))    ;; the body of the last message
  (global $body_length (mut i32) (i32.const 0))
  (global $emitted (mut i32) (i32.const 0)) ;; rows put out
  (global $rejected (mut i32) (i32.const 0)) ;; list of refused rows, 12 bytes each
  (global $refusals (mut i32) (i32.const 0))

  ;; Texts: a byte with the length, then the text.
  (data (i32.const 64) "\07flights")
  (data (i32.const 72) "\050.1.0")
  (data (i32.const 78) "\0ais_delayed")
  (data (i32.const 89) "\05board")
  (data (i32.const 95) "\06events")
  (data (i32.const 102) "-A flight that left more than 15 minutes late.")
  (data (i32.const 148) "-Names a flight and its route as a board does.")
  (data (i32.const 194) "0Makes a departure and an arrival of each flight.")
  (data (i32.const 243) "\07carrier")
  (data (i32.const 251) "\06flight")
  (data (i32.const 258) "\06origin")
  (data (i32.const 265) "\04dest")
  (data (i32.const 270) "\08dep_time")
  (data (i32.const 279) "\09dep_delay")
  (data (i32.const 289) "\08arr_time")
  (data (i32.const 298) "\09arr_delay")
  (data (i32.const 308) "\09time_hour")
  (data (i32.const 318) "\09departure")
  (data (i32.const 328) "\07arrival")
  (data (i32.const 336) "\06scalar")
  (data (i32.const 343) "\09transform")
  (data (i32.const 353) "\0cthere is no ")
  (data (i32.const 366) "\0b function '")
  (data (i32.const 378) "\01'")
  (data (i32.const 380) "\14there is no column '")
  (data (i32.const 401) "\08column '")
  (data (i32.const 410) "\0d' is of type ")
  (data (i32.const 424) "\1f, but the function reads it as ")
  (data (i32.const 456) "\09' is null")
  (data (i32.const 466) "%the Arrow schema message is malformed")
  (data (i32.const 504) "+the Arrow record batch message is malformed")
  (data (i32.const 548) "$no function is open on this instance")
  (data (i32.const 585) "\01 ")
  (data (i32.const 587) "\12 is no time of day")
  (data (i32.const 606) "3arr_time without arr_delay: the flight was diverted")
  (data (i32.const 658) "\01-")
  ;; Names of the layouts that $layout tells apart, 16 bytes each.
  (data (i32.const 672) "\07boolean")
  (data (i32.const 688) "\04byte")
  (data (i32.const 704) "\05short")
  (data (i32.const 720) "\03int")
  (data (i32.const 736) "\04long")
  (data (i32.const 752) "\05float")
  (data (i32.const 768) "\06double")
  (data (i32.const 784) "\06string")
  (data (i32.const 800) "\06binary")
  (data (i32.const 816) "\04date")
  (data (i32.const 832) "\09timestamp")
  (data (i32.const 848) "\0dtimestamp_ntz")
  (data (i32.const 864) "\0da nested type")
  ;; Inputs of the functions, 16 bytes each: the name, the layouts that will do (a bit each), the name of the type
  ;; that is asked for, whether a null refuses the row.
  (data (i32.const 880) "\17\01\00\00n\00\00\00\00\03\00\00\00\00\00\00") ;; dep_delay: double
  (data (i32.const 896) "\f3\00\00\00\80\00\00\00\10\03\00\00\01\00\00\00") ;; carrier: string NOT NULL
  (data (i32.const 912) "\fb\00\00\00\1e\00\00\00\e0\02\00\00\01\00\00\00") ;; flight: long NOT NULL
  (data (i32.const 928) "\02\01\00\00\80\00\00\00\10\03\00\00\01\00\00\00") ;; origin: string NOT NULL
  (data (i32.const 944) "\09\01\00\00\80\00\00\00\10\03\00\00\01\00\00\00") ;; dest: string NOT NULL
  (data (i32.const 960) "\f3\00\00\00\80\00\00\00\10\03\00\00\01\00\00\00") ;; carrier: string NOT NULL
  (data (i32.const 976) "\fb\00\00\00\1e\00\00\00\e0\02\00\00\01\00\00\00") ;; flight: long NOT NULL
  (data (i32.const 992) "\02\01\00\00\80\00\00\00\10\03\00\00\01\00\00\00") ;; origin: string NOT NULL
  (data (i32.const 1008) "\09\01\00\00\80\00\00\00\10\03\00\00\01\00\00\00") ;; dest: string NOT NULL
  (data (i32.const 1024) "\0e\01\00\00\0e\00\00\00\d0\02\00\00\00\00\00\00") ;; dep_time: int
  (data (i32.const 1040) "\17\01\00\00n\00\00\00\00\03\00\00\00\00\00\00") ;; dep_delay: double
  (data (i32.const 1056) "!\01\00\00\0e\00\00\00\d0\02\00\00\00\00\00\00") ;; arr_time: int
  (data (i32.const 1072) "*\01\00\00n\00\00\00\00\03\00\00\00\00\00\00") ;; arr_delay: double
  (data (i32.const 1088) "4\01\00\00\00\04\00\00@\03\00\00\01\00\00\00") ;; time_hour: timestamp NOT NULL
  ;; What is_delayed puts out: an Arrow IPC schema message, a table a line.
  (data (i32.const 1104) "\ff\ff\ff\ff\90\00\00\00") ;; a message of 144 bytes of metadata
  (data (i32.const 1112) "\14\00\00\00") ;; offset of the root
  (data (i32.const 1116) "\0c\00\13\00\10\00\12\00\0c\00\04\00\00\00\00\00\10\00\00\00\00\00\00\00\00\00\00\00\14\00\00\00\04\00\01\00") ;; Message: version 5, a schema
  (data (i32.const 1152) "\08\00\0a\00\08\00\04\00\00\00\00\00\0c\00\00\00\08\00\00\00\00\00\00\00") ;; Schema: little-endian, columns
  (data (i32.const 1176) "\01\00\00\00\18\00\00\00") ;; 1 columns
  (data (i32.const 1184) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\00\00\00\00\14\00\00\00\10\00\00\00 \00\00\00 \00\00\00\01\06\00\00") ;; Field: nullable
  (data (i32.const 1224) "\0a\00\00\00is_delayed\00\00") ;; "is_delayed"
  (data (i32.const 1240) "\04\00\04\00\04\00\00\00") ;; its type: boolean
  (data (i32.const 1248) "\00\00\00\00") ;; no children
  (data (i32.const 1252) "\00\00\00\00") ;; padding
  ;; What board puts out.
  (data (i32.const 1264) "\ff\ff\ff\ff\d0\00\00\00") ;; a message of 208 bytes of metadata
  (data (i32.const 1272) "\14\00\00\00") ;; offset of the root
  (data (i32.const 1276) "\0c\00\13\00\10\00\12\00\0c\00\04\00\00\00\00\00\10\00\00\00\00\00\00\00\00\00\00\00\14\00\00\00\04\00\01\00") ;; Message: version 5, a schema
  (data (i32.const 1312) "\08\00\0a\00\08\00\04\00\00\00\00\00\0c\00\00\00\08\00\00\00\00\00\00\00") ;; Schema: little-endian, columns
  (data (i32.const 1336) "\02\00\00\00\18\00\00\00T\00\00\00") ;; 2 columns
  (data (i32.const 1348) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00 \00\00\00\00\05\00\00") ;; Field: not null
  (data (i32.const 1384) "\06\00\00\00flight\00\00") ;; "flight"
  (data (i32.const 1396) "\04\00\04\00\00\00\00\00\08\00\00\00") ;; its type: string
  (data (i32.const 1408) "\00\00\00\00") ;; no children
  (data (i32.const 1412) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00 \00\00\00\00\05\00\00") ;; Field: not null
  (data (i32.const 1448) "\05\00\00\00route\00\00\00") ;; "route"
  (data (i32.const 1460) "\04\00\04\00\00\00\00\00\08\00\00\00") ;; its type: string
  (data (i32.const 1472) "\00\00\00\00") ;; no children
  (data (i32.const 1476) "\00\00\00\00") ;; padding
  ;; What events puts out.
  (data (i32.const 1488) "\ff\ff\ff\ffX\02\00\00") ;; a message of 600 bytes of metadata
  (data (i32.const 1496) "\14\00\00\00") ;; offset of the root
  (data (i32.const 1500) "\0c\00\13\00\10\00\12\00\0c\00\04\00\00\00\00\00\10\00\00\00\00\00\00\00\00\00\00\00\14\00\00\00\04\00\01\00") ;; Message: version 5, a schema
  (data (i32.const 1536) "\08\00\0a\00\08\00\04\00\00\00\00\00\0c\00\00\00\08\00\00\00\00\00\00\00") ;; Schema: little-endian, columns
  (data (i32.const 1560) "\07\00\00\000\00\00\00l\00\00\00\b0\00\00\00\ec\00\00\00(\01\00\00l\01\00\00\b0\01\00\00") ;; 7 columns
  (data (i32.const 1592) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\00\00\00\00\14\00\00\00\10\00\00\00 \00\00\00 \00\00\00\00\05\00\00") ;; Field: not null
  (data (i32.const 1632) "\07\00\00\00carrier\00") ;; "carrier"
  (data (i32.const 1644) "\04\00\04\00\00\00\00\00\08\00\00\00") ;; its type: string
  (data (i32.const 1656) "\00\00\00\00") ;; no children
  (data (i32.const 1660) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00(\00\00\00\00\02\00\00") ;; Field: not null
  (data (i32.const 1696) "\06\00\00\00flight\00\00") ;; "flight"
  (data (i32.const 1708) "\08\00\09\00\04\00\08\00\08\00\00\00@\00\00\00\01\00\00\00") ;; its type: long
  (data (i32.const 1728) "\00\00\00\00") ;; no children
  (data (i32.const 1732) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00 \00\00\00\00\05\00\00") ;; Field: not null
  (data (i32.const 1768) "\07\00\00\00airport\00") ;; "airport"
  (data (i32.const 1780) "\04\00\04\00\00\00\00\00\08\00\00\00") ;; its type: string
  (data (i32.const 1792) "\00\00\00\00") ;; no children
  (data (i32.const 1796) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00 \00\00\00\00\05\00\00") ;; Field: not null
  (data (i32.const 1832) "\05\00\00\00event\00\00\00") ;; "event"
  (data (i32.const 1844) "\04\00\04\00\00\00\00\00\08\00\00\00") ;; its type: string
  (data (i32.const 1856) "\00\00\00\00") ;; no children
  (data (i32.const 1860) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00(\00\00\00\00\02\00\00") ;; Field: not null
  (data (i32.const 1896) "\06\00\00\00minute\00\00") ;; "minute"
  (data (i32.const 1908) "\08\00\09\00\04\00\08\00\08\00\00\00 \00\00\00\01\00\00\00") ;; its type: int
  (data (i32.const 1928) "\00\00\00\00") ;; no children
  (data (i32.const 1932) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\10\00\00\00\10\00\00\00 \00\00\00$\00\00\00\01\03\00\00") ;; Field: nullable
  (data (i32.const 1968) "\05\00\00\00delay\00\00\00") ;; "delay"
  (data (i32.const 1980) "\06\00\06\00\04\00\00\00\08\00\00\00\02\00\00\00") ;; its type: double
  (data (i32.const 1996) "\00\00\00\00") ;; no children
  (data (i32.const 2000) "\10\00\12\00\04\00\10\00\11\00\08\00\00\00\0c\00\00\00\00\00\14\00\00\00\10\00\00\00(\00\00\008\00\00\00\00\0a\00\00") ;; Field: not null
  (data (i32.const 2040) "\09\00\00\00time_hour\00\00\00") ;; "time_hour"
  (data (i32.const 2056) "\08\00\0a\00\08\00\04\00\00\00\00\00\0c\00\00\00\08\00\00\00\02\00\00\00") ;; its type: timestamp
  (data (i32.const 2080) "\03\00\00\00UTC\00") ;; "UTC"
  (data (i32.const 2088) "\00\00\00\00") ;; no children
  (data (i32.const 2092) "\00\00\00\00") ;; padding
  ;; The functions, 32 bytes each: name, kind (0 scalar, 1 transform), inputs, how many, schema message, its length,
  ;; place in the table of code, how many columns come out.
  (data (i32.const 2096) "N\00\00\00\00\00\00\00p\03\00\00\01\00\00\00P\04\00\00\98\00\00\00\00\00\00\00\01\00\00\00") ;; is_delayed
  (data (i32.const 2128) "Y\00\00\00\01\00\00\00\80\03\00\00\04\00\00\00\f0\04\00\00\d8\00\00\00\01\00\00\00\02\00\00\00") ;; board
  (data (i32.const 2160) "_\00\00\00\01\00\00\00\c0\03\00\00\09\00\00\00\d0\05\00\00`\02\00\00\02\00\00\00\07\00\00\00") ;; events
  ;; The manifest's functions: name, kind, doc.
  (data (i32.const 2192) "O\00\00\00\0a\00\00\00\00\00\00\00g\00\00\00-\00\00\00")
  (data (i32.const 2212) "Z\00\00\00\05\00\00\00\01\00\00\00\95\00\00\00-\00\00\00")
  (data (i32.const 2232) "`\00\00\00\06\00\00\00\01\00\00\00\c3\00\00\000\00\00\00")
  ;; The manifest: name, version, encoding (0 is Arrow), functions.
  (data (i32.const 2252) "A\00\00\00\07\00\00\00I\00\00\00\05\00\00\00\00\00\00\00\90\08\00\00\03\00\00\00")

  ;; Fixed places: the return area at 32, the input columns at 2304, the output columns at 2592.
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
  (func $say_number (param $value i64)
    (global.set $next (call $digits (call $room (i32.const 20)) (local.get $value))))

  ;; Writes a number in decimal digits at $at and returns the end; there are 20 bytes of room.
  (func $digits (param $at i32) (param $value i64) (result i32)
    (local $rest i64) (local $length i32) (local $end i32)
    (local.set $rest (local.get $value))
    (if (i64.lt_s (local.get $value) (i64.const 0)) (then
      (i32.store8 (local.get $at) (i32.const 0x2d)) ;; -
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $rest (i64.sub (i64.const 0) (local.get $value)))))
    (local.set $value (local.get $rest))
    (loop $count
      (local.set $length (i32.add (local.get $length) (i32.const 1)))
      (local.set $value (i64.div_u (local.get $value) (i64.const 10)))
      (br_if $count (i64.ne (local.get $value) (i64.const 0))))
    (local.set $end (i32.add (local.get $at) (local.get $length)))
    (local.set $at (local.get $end))
    (loop $write
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at)
        (i32.add (i32.const 0x30) (i32.wrap_i64 (i64.rem_u (local.get $rest) (i64.const 10)))))
      (local.set $rest (i64.div_u (local.get $rest) (i64.const 10)))
      (br_if $write (i64.ne (local.get $rest) (i64.const 0))))
    (local.get $end))

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

  ;; The column of this name (or number $order, if that is not negative) among the fields, 0 if there is none. $nodes and
  ;; $buffers are then those of the columns before it.
  (func $find (param $fields i32) (param $name i32) (param $order i32) (result i32)
    (local $i i32) (local $field i32) (local $text i32)
    (global.set $nodes (i32.const 0))
    (global.set $buffers (i32.const 0))
    (block $none
      (loop $column
        (br_if $none (i32.ge_u (local.get $i) (i32.load (local.get $fields))))
        (local.set $field (call $entry (local.get $fields) (local.get $i)))
        (local.set $text (call $target (local.get $field) (i32.const 0)))
        (if (i32.eq (local.get $i) (local.get $order)) (then (return (local.get $field))))
        (if (i32.lt_s (local.get $order) (i32.const 0)) (then
          (if (call $same (i32.add (local.get $text) (i32.const 4)) (i32.load (local.get $text)) (local.get $name))
            (then (return (local.get $field))))))
        (call $measure (local.get $field))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $column)))
    (i32.const 0))

  ;; Finds the open function's inputs. Returns 0, or the return area with the error.
  (func $match (param $fields i32) (result i32)
    (local $i i32) (local $spec i32) (local $field i32) (local $column i32) (local $layout i32) (local $order i32)
    (local.set $order (i32.const -1))
    ;; The arguments of an expression have no names: a scalar's one input then is the one column that there is.
    (if (i32.and (i32.eqz (i32.load offset=4 (global.get $open))) (i32.eq (i32.load (local.get $fields)) (i32.const 1)))
      (then (local.set $order (i32.const 0))))
    (block $done
      (loop $input
        (br_if $done (i32.ge_u (local.get $i) (i32.load offset=12 (global.get $open))))
        (local.set $spec (i32.add (i32.load offset=8 (global.get $open)) (i32.shl (local.get $i) (i32.const 4))))
        (local.set $column (i32.add (i32.const 2304) (i32.shl (local.get $i) (i32.const 5))))
        (local.set $field (call $find (local.get $fields) (i32.load (local.get $spec)) (local.get $order)))
        (if (i32.eqz (local.get $field)) (then (return (call $no_column (local.get $spec)))))
        (local.set $layout (call $layout (local.get $field)))
        (if (i32.eqz (i32.and (i32.load offset=4 (local.get $spec)) (i32.shl (i32.const 1) (local.get $layout))))
          (then (return (call $wrong_type (local.get $spec) (local.get $layout)))))
        (i32.store (local.get $column) (local.get $layout))
        (i32.store offset=4 (local.get $column) (global.get $nodes))
        (i32.store offset=8 (local.get $column) (global.get $buffers))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $input)))
    (i32.const 0))

  (func $no_column (param $spec i32) (result i32) (local $start i32)
    (local.set $start (call $room (i32.const 0)))
    (call $say (i32.const 380))
    (call $say (i32.load (local.get $spec)))
    (call $say (i32.const 378))
    (call $fail (i32.const 0) (local.get $start)))

  (func $wrong_type (param $spec i32) (param $layout i32) (result i32) (local $start i32)
    (local.set $start (call $room (i32.const 0)))
    (call $say (i32.const 401))
    (call $say (i32.load (local.get $spec)))
    (call $say (i32.const 410))
    (call $say (i32.add (i32.const 672) (i32.shl (local.get $layout) (i32.const 4))))
    (call $say (i32.const 424))
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
  (func $put_own (param $text i32) (param $out i32)
    (call $put_bytes (i32.add (local.get $text) (i32.const 1)) (i32.load8_u (local.get $text)) (local.get $out)))
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

  ;; Refuses the row if an input is null that must not be; whether it did.
  (func $refuse_null (param $row i32) (result i32) (local $i i32) (local $spec i32) (local $start i32)
    (block $none
      (loop $input
        (br_if $none (i32.ge_u (local.get $i) (i32.load offset=12 (global.get $open))))
        (local.set $spec (i32.add (i32.load offset=8 (global.get $open)) (i32.shl (local.get $i) (i32.const 4))))
        (if (i32.and (i32.load offset=12 (local.get $spec))
              (call $is_null (i32.add (i32.const 2304) (i32.shl (local.get $i) (i32.const 5))) (local.get $row)))
          (then
            (local.set $start (call $room (i32.const 0)))
            (call $say (i32.const 401))
            (call $say (i32.load (local.get $spec)))
            (call $say (i32.const 456))
            (call $refuse (local.get $row) (local.get $start))
            (return (i32.const 1))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $input)))
    (i32.const 0))

  ;; --- is_delayed: input dep_delay; output is_delayed ---

  (func $is_delayed (param $rows i32) (local $row i32) (local $bits i32)
    (call $start_values (i32.const 2592) (i32.const 0))
    (local.set $bits (call $bits (local.get $rows)))
    (i32.store offset=8 (i32.const 2592) (local.get $bits))
    (i32.store offset=12 (i32.const 2592) (i32.shr_u (i32.add (local.get $rows) (i32.const 7)) (i32.const 3)))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $row) (local.get $rows)))
        (if (i32.eqz (call $is_null (i32.const 2304) (local.get $row))) (then
          (if (f64.gt (call $get_double (i32.const 2304) (local.get $row)) (f64.const 15))
            (then (call $set_bit (local.get $bits) (local.get $row))))))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $each)))
    (global.set $emitted (local.get $rows)))

  ;; --- board: inputs carrier, flight, origin, dest; outputs flight, route ---

  (func $board (param $rows i32) (local $row i32)
    (call $start_texts (i32.const 2592) (local.get $rows)
      (i32.add (i32.load offset=24 (i32.const 2304)) (i32.mul (local.get $rows) (i32.const 20))))
    (call $start_texts (i32.const 2624) (local.get $rows)
      (i32.add (local.get $rows)
        (i32.add (i32.load offset=24 (i32.const 2368)) (i32.load offset=24 (i32.const 2400)))))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $row) (local.get $rows)))
        (if (i32.eqz (call $refuse_null (local.get $row))) (then (call $board_row (local.get $row))))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $each))))

  (func $board_row (param $row i32) (local $start i32) (local $end i32)
    (local.set $start (call $text_end (i32.const 2592)))
    (call $put_bytes (call $get_text (i32.const 2304) (local.get $row)) (i32.const 2592))
    (call $capitals (local.get $start) (call $text_end (i32.const 2592)))
    (local.set $end (call $digits (call $text_end (i32.const 2592))
      (call $get_long (i32.const 2336) (local.get $row))))
    (i32.store offset=20 (i32.const 2592) (i32.sub (local.get $end) (i32.load offset=16 (i32.const 2592))))
    (call $end_text (i32.const 2592))
    (call $put_bytes (call $get_text (i32.const 2368) (local.get $row)) (i32.const 2624))
    (call $put_own (i32.const 658) (i32.const 2624))
    (call $put_bytes (call $get_text (i32.const 2400) (local.get $row)) (i32.const 2624))
    (call $end_text (i32.const 2624))
    (global.set $emitted (i32.add (global.get $emitted) (i32.const 1))))

  ;; Writes the letters a to z in capitals.
  (func $capitals (param $at i32) (param $end i32) (local $c i32)
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $c (i32.load8_u (local.get $at)))
        (if (i32.lt_u (i32.sub (local.get $c) (i32.const 0x61)) (i32.const 26))
          (then (i32.store8 (local.get $at) (i32.sub (local.get $c) (i32.const 0x20)))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $each))))

  ;; --- events: inputs carrier, flight, origin, dest, dep_time, dep_delay, arr_time, arr_delay, time_hour;
  ;; outputs carrier, flight, airport, event, minute, delay, time_hour ---

  (func $events (param $rows i32) (local $row i32) (local $most i32)
    (local.set $most (i32.shl (local.get $rows) (i32.const 1)))
    (call $start_texts (i32.const 2592) (local.get $most)
      (i32.shl (i32.load offset=24 (i32.const 2304)) (i32.const 1)))
    (call $start_values (i32.const 2624) (i32.shl (local.get $most) (i32.const 3)))
    (call $start_texts (i32.const 2656) (local.get $most)
      (i32.add (i32.load offset=24 (i32.const 2368)) (i32.load offset=24 (i32.const 2400))))
    (call $start_texts (i32.const 2688) (local.get $most) (i32.mul (local.get $most) (i32.const 9)))
    (call $start_values (i32.const 2720) (i32.shl (local.get $most) (i32.const 2)))
    (call $start_values (i32.const 2752) (i32.shl (local.get $most) (i32.const 3)))
    (i32.store (i32.const 2752) (call $bits (local.get $most)))
    (call $start_values (i32.const 2784) (i32.shl (local.get $most) (i32.const 3)))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $row) (local.get $rows)))
        (if (i32.eqz (call $refuse_null (local.get $row))) (then
          (if (i32.eqz (call $refuse_flight (local.get $row))) (then (call $events_row (local.get $row))))))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $each))))

  ;; Refuses a flight with an impossible clock time or a diversion; whether it did.
  (func $refuse_flight (param $row i32) (result i32) (local $start i32)
    (if (call $refuse_time (local.get $row) (i32.const 2432) (i32.const 270)) (then (return (i32.const 1))))
    (if (call $refuse_time (local.get $row) (i32.const 2496) (i32.const 289)) (then (return (i32.const 1))))
    (if (i32.or (call $is_null (i32.const 2496) (local.get $row))
                (i32.eqz (call $is_null (i32.const 2528) (local.get $row)))) (then (return (i32.const 0))))
    (local.set $start (call $room (i32.const 0)))
    (call $say (i32.const 606))
    (call $refuse (local.get $row) (local.get $start))
    (i32.const 1))

  ;; A clock time is HHMM: 517 is 05:17, 2400 the midnight that ends the day.
  (func $refuse_time (param $row i32) (param $column i32) (param $name i32) (result i32)
    (local $time i32) (local $start i32)
    (if (call $is_null (local.get $column) (local.get $row)) (then (return (i32.const 0))))
    (local.set $time (i32.wrap_i64 (call $get_long (local.get $column) (local.get $row))))
    (if (i32.and (i32.le_u (local.get $time) (i32.const 2400))
                 (i32.le_u (i32.rem_u (local.get $time) (i32.const 100)) (i32.const 59)))
      (then (return (i32.const 0))))
    (local.set $start (call $room (i32.const 0)))
    (call $say (local.get $name))
    (call $say (i32.const 585))
    (call $say_number (i64.extend_i32_s (local.get $time)))
    (call $say (i32.const 587))
    (call $refuse (local.get $row) (local.get $start))
    (i32.const 1))

  (func $events_row (param $row i32)
    (if (i32.eqz (call $is_null (i32.const 2432) (local.get $row))) (then
      (call $event (local.get $row) (i32.const 2368) (i32.const 318) (i32.const 2432) (i32.const 2464))))
    (if (i32.eqz (call $is_null (i32.const 2496) (local.get $row))) (then
      (call $event (local.get $row) (i32.const 2400) (i32.const 328) (i32.const 2496) (i32.const 2528)))))

  (func $event (param $row i32) (param $airport i32) (param $name i32) (param $time i32) (param $delay i32)
    (local $clock i32)
    (local.set $clock (i32.wrap_i64 (call $get_long (local.get $time) (local.get $row))))
    (call $put_bytes (call $get_text (i32.const 2304) (local.get $row)) (i32.const 2592))
    (call $end_text (i32.const 2592))
    (call $put_long (i32.const 2624) (call $get_long (i32.const 2336) (local.get $row)))
    (call $put_bytes (call $get_text (local.get $airport) (local.get $row)) (i32.const 2656))
    (call $end_text (i32.const 2656))
    (call $put_own (local.get $name) (i32.const 2688))
    (call $end_text (i32.const 2688))
    (call $put_int (i32.const 2720) (i32.add
      (i32.mul (i32.div_u (local.get $clock) (i32.const 100)) (i32.const 60))
      (i32.rem_u (local.get $clock) (i32.const 100))))
    (if (call $is_null (local.get $delay) (local.get $row))
      (then
        (call $put_double (i32.const 2752) (f64.const 0))
        (i32.store offset=4 (i32.const 2752) (i32.add (i32.load offset=4 (i32.const 2752)) (i32.const 1))))
      (else
        (call $put_double (i32.const 2752) (call $get_double (local.get $delay) (local.get $row)))
        (call $set_bit (i32.load (i32.const 2752)) (global.get $emitted))))
    (call $put_long (i32.const 2784) (call $get_long (i32.const 2560) (local.get $row)))
    (global.set $emitted (i32.add (global.get $emitted) (i32.const 1))))

  (table funcref (elem $is_delayed $board $events))

  ;; --- the batch message ---
  ;; 8 bytes of prefix, then metadata of a fixed layout: the message's vtable at 4, the message at 16, the batch's vtable
  ;; at 36, the batch at 48, the nodes' count at 68, the nodes (16 bytes each), the buffers' count, the buffers.

  (func $write_batch (result i32 i32)
    (local $columns i32) (local $buffers i32) (local $i i32) (local $out i32) (local $message i32) (local $body i32)
    (local $entry i32)
    (local.set $columns (i32.load offset=28 (global.get $open)))
    (loop $count
      (local.set $out (i32.add (i32.const 2592) (i32.shl (local.get $i) (i32.const 5))))
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
      (local.set $out (i32.add (i32.const 2592) (i32.shl (local.get $i) (i32.const 5))))
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

  (func (export "pelton:plugin/describe@0.1.0#describe") (result i32) (i32.const 2252))

  ;; Opens the function of this kind and name: bind and open are the same.
  (func $start (param $kind i32) (param $name i32) (param $length i32) (param $input i32) (param $input_length i32)
    (result i32) (local $fields i32) (local $record i32) (local $failure i32)
    (local.set $record (i32.const 2096))
    (block $found
      (loop $each
        (br_if $found (i32.and (i32.eq (i32.load offset=4 (local.get $record)) (local.get $kind))
          (call $same (local.get $name) (local.get $length) (i32.load (local.get $record)))))
        (local.set $record (i32.add (local.get $record) (i32.const 32)))
        (br_if $each (i32.lt_u (local.get $record) (i32.const 2192))))
      (return (call $no_function (local.get $kind) (local.get $name) (local.get $length))))
    (global.set $open (local.get $record))
    (local.set $fields (call $target
      (call $header (local.get $input) (local.get $input_length) (i32.const 1)) (i32.const 1)))
    (if (i32.eqz (local.get $fields)) (then (return (call $fail_with (i32.const 1) (i32.const 466)))))
    (local.set $failure (call $match (local.get $fields)))
    (if (local.get $failure) (then (return (local.get $failure))))
    (i32.store (i32.const 32) (i32.const 0))
    (i32.store (i32.const 36) (i32.load offset=16 (local.get $record)))
    (i32.store (i32.const 40) (i32.load offset=20 (local.get $record)))
    (global.set $over (i32.const 1))
    (i32.const 32))

  (func $no_function (param $kind i32) (param $name i32) (param $length i32) (result i32) (local $start i32)
    (local.set $start (call $room (i32.const 0)))
    (call $say (i32.const 353))
    (call $say (select (i32.const 343) (i32.const 336) (local.get $kind)))
    (call $say (i32.const 366))
    (call $say_bytes (local.get $name) (local.get $length))
    (call $say (i32.const 378))
    (call $fail (i32.const 0) (local.get $start)))

  ;; Processes a batch: evaluate and process are the same.
  (func $run (param $input i32) (param $length i32) (result i32)
    (local $batch i32) (local $rows i32) (local $i i32) (local $at i32)
    (if (i32.eqz (global.get $open)) (then (return (call $fail_with (i32.const 1) (i32.const 548)))))
    (local.set $batch (call $header (local.get $input) (local.get $length) (i32.const 3)))
    (if (i32.or (i32.eqz (local.get $batch)) (call $slot (local.get $batch) (i32.const 3))) ;; 3: it is compressed
      (then (return (call $fail_with (i32.const 1) (i32.const 504)))))
    (local.set $at (call $slot (local.get $batch) (i32.const 0)))
    (if (local.get $at) (then (local.set $rows (i32.load (local.get $at)))))
    (if (i32.gt_u (local.get $rows) (i32.const 0x1000000)) (then (unreachable)))
    (loop $input_column
      (call $bind_column (i32.add (i32.const 2304) (i32.shl (local.get $i) (i32.const 5)))
        (local.get $batch) (local.get $rows))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $input_column (i32.lt_u (local.get $i) (i32.load offset=12 (global.get $open)))))
    (global.set $emitted (i32.const 0))
    (global.set $refusals (i32.const 0))
    (global.set $rejected (call $allocate (i32.mul (local.get $rows) (i32.const 12))))
    (call_indirect (type $rows_code) (local.get $rows) (i32.load offset=24 (global.get $open)))
    (call $write_batch)
    (local.set $length)
    (local.set $input)
    (i32.store (i32.const 32) (i32.const 0))
    (i32.store (i32.const 36) (local.get $input))
    (i32.store (i32.const 40) (local.get $length))
    (i32.store (i32.const 44) (global.get $rejected))
    (i32.store (i32.const 48) (global.get $refusals))
    (global.set $over (i32.const 1))
    (i32.const 32))

  ;; The clock's five fields are not needed here, nor is the configuration.
  (func (export "pelton:plugin/scalar@0.1.0#bind")
    (param $name i32) (param $length i32) (param i32 i32) (param $input i32) (param $input_length i32) (result i32)
    (call $start (i32.const 0) (local.get $name) (local.get $length) (local.get $input) (local.get $input_length)))
  (func (export "pelton:plugin/scalar@0.1.0#evaluate")
    (param i64 i64 i32 i64 i64) (param $rows i32) (param $length i32) (result i32)
    (call $run (local.get $rows) (local.get $length)))
  (func (export "pelton:plugin/transform@0.1.0#open")
    (param $name i32) (param $length i32) (param i32 i32) (param $input i32) (param $input_length i32) (result i32)
    (call $start (i32.const 1) (local.get $name) (local.get $length) (local.get $input) (local.get $input_length)))
  (func (export "pelton:plugin/transform@0.1.0#process")
    (param i64 i64 i32 i64 i64) (param $rows i32) (param $length i32) (result i32)
    (call $run (local.get $rows) (local.get $length)))
)
