/* Arrow IPC messages: schemas and record batches, every length checked. Included by pelton.h; not for use by hand.
 *
 * Slot numbers are those of Arrow's Schema.fbs and Message.fbs. A message is 8 bytes (a mark and the metadata's
 * length), the metadata (a FlatBuffer) and the body.
 */
#ifndef PELTON_ARROW_H
#define PELTON_ARROW_H

/* A piece of memory, and a table in one. `at` 0 means: not there. */
typedef struct {
    const uint8_t *bytes;
    uint32_t length;
} pelton_bytes;

typedef struct {
    pelton_bytes in;
    uint32_t at;
    uint32_t vtable;
    uint32_t vtable_length;
} pelton_table;

/* `length` bytes at `at`, as a number; 0 if they are not all there. */
PELTON_INTERNAL uint64_t pelton_number(pelton_bytes in, uint64_t at, uint32_t length) {
    uint64_t value = 0;
    if (at + length <= in.length) __builtin_memcpy(&value, in.bytes + at, length);
    return value;
}
#define pelton_u32(in, at) ((uint32_t)pelton_number(in, at, 4))

PELTON_INTERNAL pelton_table pelton_table_at(pelton_bytes in, uint64_t at) {
    pelton_table table = {in, 0, 0, 0};
    if (at == 0 || at + 4 > in.length) return table;
    int64_t vtable = (int64_t)at - (int32_t)pelton_u32(in, at);
    if (vtable < 0 || vtable + 4 > in.length) return table;
    table.at = (uint32_t)at;
    table.vtable = (uint32_t)vtable;
    table.vtable_length = (uint32_t)pelton_number(in, (uint32_t)vtable, 2);
    return table;
}

/* Where a slot's value lies; 0 if it has its default. */
PELTON_INTERNAL uint64_t pelton_slot(const pelton_table *table, uint32_t slot) {
    uint32_t entry = 4 + 2 * slot;
    if (table->at == 0 || entry + 2 > table->vtable_length) return 0;
    uint64_t offset = pelton_number(table->in, (uint64_t)table->vtable + entry, 2);
    return offset ? table->at + offset : 0;
}

PELTON_INTERNAL int64_t pelton_slot_number(const pelton_table *table, uint32_t slot, uint32_t length, int64_t missing) {
    uint64_t at = pelton_slot(table, slot);
    return at ? (int64_t)pelton_number(table->in, at, length) : missing;
}

PELTON_INTERNAL uint64_t pelton_slot_target(const pelton_table *table, uint32_t slot) {
    uint64_t at = pelton_slot(table, slot);
    return at ? at + pelton_u32(table->in, at) : 0;
}

PELTON_INTERNAL pelton_table pelton_slot_table(const pelton_table *table, uint32_t slot) {
    return pelton_table_at(table->in, pelton_slot_target(table, slot));
}

/* The number of entries of a vector, if all of them are there. */
PELTON_INTERNAL uint32_t pelton_slot_count(const pelton_table *table, uint32_t slot, uint32_t entry_length) {
    uint64_t at = pelton_slot_target(table, slot);
    uint32_t count = at ? pelton_u32(table->in, at) : 0;
    return at + 4 + (uint64_t)count * entry_length <= table->in.length ? count : 0;
}

PELTON_INTERNAL pelton_table pelton_entry_table(const pelton_table *table, uint32_t slot, uint32_t index) {
    uint64_t at = pelton_slot_target(table, slot) + 4 + 4 * (uint64_t)index;
    return pelton_table_at(table->in, at + pelton_u32(table->in, at));
}

PELTON_INTERNAL pelton_text pelton_slot_text(const pelton_table *table, uint32_t slot) {
    pelton_text text = {"", 0};
    uint64_t at = pelton_slot_target(table, slot);
    uint32_t length = at ? pelton_u32(table->in, at) : 0;
    if (at && at + 4 + length <= table->in.length) {
        text.bytes = (const char *)table->in.bytes + at + 4;
        text.length = length;
    }
    return text;
}

/* Splits a message; returns the header table of the wanted kind (at 0 if it is not one). */
PELTON_INTERNAL pelton_table pelton_header(pelton_bytes message, uint32_t kind, pelton_bytes *body) {
    pelton_table nothing = {message, 0, 0, 0};
    uint32_t length = pelton_u32(message, 4);
    if (pelton_u32(message, 0) != 0xffffffffu || (uint64_t)length + 8 > message.length) return nothing;
    pelton_bytes metadata = {message.bytes + 8, length};
    body->bytes = metadata.bytes + length;
    body->length = message.length - 8 - length;
    pelton_table root = pelton_table_at(metadata, pelton_u32(metadata, 0));
    if (pelton_slot_number(&root, 1, 1, 0) != kind) return nothing;
    return pelton_slot_table(&root, 2);
}

enum { PELTON_HEADER_SCHEMA = 1, PELTON_HEADER_BATCH = 3 };
enum { PELTON_FB_INT = 2, PELTON_FB_FLOAT, PELTON_FB_BINARY, PELTON_FB_UTF8, PELTON_FB_BOOL };
enum { PELTON_FB_DATE = 8, PELTON_FB_TIMESTAMP = 10, PELTON_FB_LIST = 12, PELTON_FB_STRUCT = 13, PELTON_FB_MAP = 17 };

/* How values lie in memory; PELTON_OTHER can be skipped, not read. */
typedef enum {
    PELTON_BITS, PELTON_I8, PELTON_I16, PELTON_I32, PELTON_I64, PELTON_F32, PELTON_F64, PELTON_UTF8, PELTON_BYTES,
    PELTON_DAYS, PELTON_MICROS, PELTON_OTHER,
} pelton_layout;

PELTON_INTERNAL pelton_layout pelton_layout_of(const pelton_table *field) {
    pelton_table details = pelton_slot_table(field, 3);
    switch (pelton_slot_number(field, 2, 1, 0)) {
    case PELTON_FB_BOOL: return PELTON_BITS;
    case PELTON_FB_INT:
        switch (pelton_slot_number(&details, 0, 4, 0)) {
        case 8: return PELTON_I8;
        case 16: return PELTON_I16;
        case 32: return PELTON_I32;
        default: return PELTON_I64;
        }
    case PELTON_FB_FLOAT: return pelton_slot_number(&details, 0, 2, 0) == 2 ? PELTON_F64 : PELTON_F32;
    case PELTON_FB_UTF8: return PELTON_UTF8;
    case PELTON_FB_BINARY: return PELTON_BYTES;
    case PELTON_FB_DATE: return PELTON_DAYS;
    case PELTON_FB_TIMESTAMP: return PELTON_MICROS;
    default: return PELTON_OTHER;
    }
}

/* Spark's name of a column's type, for messages. */
PELTON_INTERNAL const char *pelton_type_name(const pelton_table *field) {
    static const char *const names[] = {"boolean", "byte",   "short",  "int",  "long",      "float",
                                        "double",  "string", "binary", "date", "timestamp", "a nested type"};
    pelton_layout layout = pelton_layout_of(field);
    pelton_table details = pelton_slot_table(field, 3);
    if (layout == PELTON_MICROS && !pelton_slot(&details, 1)) return "timestamp_ntz";
    return names[layout];
}

/* Counts the nodes and buffers of a column, nested ones included. False if it is nested too deeply. */
PELTON_INTERNAL bool pelton_measure(const pelton_table *field, uint32_t depth, uint32_t *nodes, uint32_t *buffers) {
    int64_t kind = pelton_slot_number(field, 2, 1, 0);
    if (depth > 64) return false;
    *nodes += 1;
    *buffers += kind == PELTON_FB_STRUCT ? 1 : kind == PELTON_FB_UTF8 || kind == PELTON_FB_BINARY ? 3 : 2;
    uint32_t children = pelton_slot_count(field, 5, 4);
    for (uint32_t i = 0; i < children; i++) {
        pelton_table child = pelton_entry_table(field, 5, i);
        if (!pelton_measure(&child, depth + 1, nodes, buffers)) return false;
    }
    return true;
}

/* A column of a batch. */
typedef struct {
    pelton_layout layout;
    uint32_t node, buffer; /* its places in the metadata */
    const uint8_t *validity; /* null if nothing is null */
    pelton_bytes values;
    pelton_bytes text;
} pelton_column;

PELTON_INTERNAL bool pelton_buffer_at(const pelton_table *batch, pelton_bytes body, uint32_t index, pelton_bytes *out) {
    if (index >= pelton_slot_count(batch, 2, 16)) return false;
    uint64_t at = pelton_slot_target(batch, 2) + 4 + 16 * (uint64_t)index;
    uint64_t offset = pelton_number(batch->in, at, 8), length = pelton_number(batch->in, at + 8, 8);
    if (offset > body.length || length > body.length - offset) return false;
    out->bytes = body.bytes + offset;
    out->length = (uint32_t)length;
    return true;
}

/* The bytes of a value; 0 for bits. */
PELTON_INTERNAL uint32_t pelton_width(pelton_layout layout) {
    static const uint8_t widths[] = {0, 1, 2, 4, 8, 4, 8, 4, 4, 4, 8, 0};
    return widths[layout];
}

/* Finds a column's buffers in a batch of `rows` rows. False if the batch is malformed. */
PELTON_INTERNAL bool pelton_bind_column(pelton_column *column, const pelton_table *batch, pelton_bytes body,
                                        uint32_t rows) {
    pelton_bytes validity;
    if (column->node >= pelton_slot_count(batch, 1, 16)) return false;
    uint64_t node = pelton_slot_target(batch, 1) + 4 + 16 * (uint64_t)column->node;
    if (pelton_number(batch->in, node, 8) != rows) return false;
    if (!pelton_buffer_at(batch, body, column->buffer, &validity)) return false;
    if (!pelton_buffer_at(batch, body, column->buffer + 1, &column->values)) return false;
    bool has_nulls = pelton_number(batch->in, node + 8, 8) != 0;
    if (has_nulls && validity.length < (rows + 7) / 8) return false;
    column->validity = has_nulls ? validity.bytes : NULL;
    bool is_text = column->layout == PELTON_UTF8 || column->layout == PELTON_BYTES;
    uint64_t needed = column->layout == PELTON_BITS ? (rows + 7) / 8
                                                    : ((uint64_t)rows + is_text) * pelton_width(column->layout);
    if (rows != 0 && column->values.length < needed) return false;
    return !is_text || pelton_buffer_at(batch, body, column->buffer + 2, &column->text);
}

/* Appends a table: values by falling size, so that each is aligned. `sizes` has 0 for an absent slot; `places` gets
 * where each value lies. The table starts 4 bytes off a multiple of 8. Returns its place. */
PELTON_INTERNAL uint32_t pelton_write_table(pelton_buffer *out, uint32_t count, const uint8_t *sizes,
                                            const uint64_t *values, uint32_t *places) {
    uint32_t vtable = out->length, vtable_length = 4 + 2 * count;
    __builtin_memset(pelton_extend(out, vtable_length), 0, vtable_length);
    while (out->length % 8 != 4) *pelton_extend(out, 1) = 0;
    uint32_t table = out->length, back = table - vtable;
    pelton_append(out, &back, 4);
    for (uint32_t size = 8; size; size /= 2)
        for (uint32_t i = 0; i < count; i++) {
            if (sizes[i] != size) continue;
            uint16_t offset = (uint16_t)(out->length - table);
            __builtin_memcpy(out->bytes + vtable + 4 + 2 * i, &offset, 2);
            places[i] = out->length;
            pelton_append(out, &values[i], size);
        }
    uint16_t lengths[2] = {(uint16_t)vtable_length, (uint16_t)(out->length - table)};
    pelton_pad(out, 4);
    __builtin_memcpy(out->bytes + vtable, lengths, 4);
    return table;
}

/* Makes the offset at `from` point to `to`. */
PELTON_INTERNAL void pelton_point(pelton_buffer *out, uint32_t from, uint32_t to) {
    uint32_t distance = to - from;
    __builtin_memcpy(out->bytes + from, &distance, 4);
}

PELTON_INTERNAL void pelton_write_string(pelton_buffer *out, uint32_t from, const char *string) {
    pelton_text text = pelton_string(string);
    pelton_pad(out, 4);
    pelton_point(out, from, out->length);
    pelton_append(out, &text.length, 4);
    pelton_append(out, text.bytes, text.length + 1);
    pelton_pad(out, 4);
}

PELTON_INTERNAL void pelton_write_field(pelton_buffer *out, uint32_t from, const pelton_field *field, bool nullable) {
    static const uint8_t kinds[] = {PELTON_FB_BOOL, PELTON_FB_INT,    PELTON_FB_INT,  PELTON_FB_FLOAT,
                                    PELTON_FB_UTF8, PELTON_FB_BINARY, PELTON_FB_DATE, PELTON_FB_TIMESTAMP};
    uint32_t places[6], details[2];
    /* name, nullable, the type's kind, its details, no dictionary, children */
    uint64_t values[6] = {0, nullable, kinds[field->type], 0, 0, 0};
    pelton_point(out, from, pelton_write_table(out, 6, (const uint8_t[]){4, 1, 1, 4, 0, 4}, values, places));
    pelton_write_string(out, places[0], field->name);
    /* Int: bits, signed. FloatingPoint: 2 is double. Date: 0 is days. Timestamp: 2 is microseconds, then the zone. */
    uint64_t integer[2] = {field->type == PELTON_INT ? 32 : 64, 1}, two[2] = {2, 0}, zero[1] = {0};
    uint32_t table;
    switch (field->type) {
    case PELTON_INT:
    case PELTON_LONG: table = pelton_write_table(out, 2, (const uint8_t[]){4, 1}, integer, details); break;
    case PELTON_DOUBLE: table = pelton_write_table(out, 1, (const uint8_t[]){2}, two, details); break;
    case PELTON_DATE: table = pelton_write_table(out, 1, (const uint8_t[]){2}, zero, details); break;
    case PELTON_TIMESTAMP: table = pelton_write_table(out, 2, (const uint8_t[]){2, 4}, two, details); break;
    default: table = pelton_write_table(out, 0, NULL, NULL, details); break;
    }
    pelton_point(out, places[3], table);
    if (field->type == PELTON_TIMESTAMP) pelton_write_string(out, details[1], "UTC");
    pelton_point(out, places[5], out->length);
    pelton_append(out, zero, 4);
}

/* A schema message. */
PELTON_INTERNAL pelton_buffer pelton_write_schema(const pelton_field *fields, uint32_t count, bool all_nullable) {
    pelton_buffer out = {0};
    uint32_t message[4], schema[2], fields_at;
    pelton_append(&out, (const uint32_t[]){0}, 4);
    /* version 5, header kind, header, body length; endianness, fields */
    pelton_point(&out, 0, pelton_write_table(&out, 4, (const uint8_t[]){2, 1, 4, 8},
                                             (const uint64_t[]){4, PELTON_HEADER_SCHEMA, 0, 0}, message));
    pelton_point(&out, message[2],
                 pelton_write_table(&out, 2, (const uint8_t[]){2, 4}, (const uint64_t[]){0, 0}, schema));
    pelton_point(&out, schema[1], out.length);
    pelton_append(&out, &count, 4);
    fields_at = out.length;
    __builtin_memset(pelton_extend(&out, 4 * count), 0, 4 * count);
    for (uint32_t i = 0; i < count; i++)
        pelton_write_field(&out, fields_at + 4 * i, &fields[i], all_nullable || fields[i].nullable == PELTON_NULLABLE);
    pelton_pad(&out, 8);
    pelton_buffer whole = {0};
    pelton_append(&whole, (const uint32_t[]){0xffffffffu, out.length}, 8);
    pelton_append(&whole, out.bytes, out.length);
    return whole;
}

#endif
