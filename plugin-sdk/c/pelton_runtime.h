/* The exports: what the host calls, in the canonical ABI by hand. Included by pelton.h; not for use by hand.
 *
 * Strings and lists are a pointer and a length; results lie in a return area whose first word is 0 for ok and 1 for
 * an error. An instance serves the one function that it was opened for.
 */
#ifndef PELTON_RUNTIME_H
#define PELTON_RUNTIME_H

#define PELTON_COLUMNS_MAX 64u

typedef struct {
    const char *name, *version;
    const pelton_function *functions;
    uint32_t function_count;
    const pelton_group_function *groups;
    uint32_t group_count;
    /* The name and the doc of a group function; NULL if there are none. */
    void (*group_texts)(uint32_t at, pelton_text *name, pelton_text *doc);
    const pelton_sink_function *sinks;
    uint32_t sink_count;
    void (*sink_texts)(uint32_t at, pelton_text *name, pelton_text *doc);
} pelton_plugin;

static const pelton_plugin pelton_this; /* PELTON_PLUGIN fills it in */

#define PELTON_PLUGIN(name, version, functions) \
    static const pelton_plugin pelton_this = {name, version, functions, PELTON_COUNT(functions), NULL, 0, NULL, NULL, 0, NULL};

__attribute__((import_module("pelton:plugin/host@0.1.0"), import_name("log"))) void
pelton_host_log(uint32_t level, const char *message, uint32_t length);
__attribute__((import_module("pelton:plugin/host@0.1.0"), import_name("count"))) void
pelton_host_count(const char *name, uint32_t length, uint64_t by);

/* An output column. `pending` is what was put for the row that is not emitted yet. */
typedef struct {
    pelton_buffer validity, values, text;
    uint32_t nulls, nulls_before; /* before the current input row */
    uint64_t pending;
    bool has_pending;
} pelton_output;

struct pelton_row {
    const pelton_function *function;
    pelton_column inputs[PELTON_COLUMNS_MAX];
    pelton_output outputs[PELTON_COLUMNS_MAX];
    uint32_t at;      /* the current input row */
    uint32_t emitted; /* output rows so far, and before the current input row */
    uint32_t emitted_before;
    bool refused;
    pelton_buffer reason;
    pelton_buffer rejected; /* row, reason's place, reason's length */
};

static pelton_row pelton_state;
static pelton_clock pelton_current_clock;
static pelton_text pelton_current_config;
static uint32_t pelton_area[12];

PELTON_INTERNAL pelton_clock pelton_get_clock(void) { return pelton_current_clock; }
PELTON_INTERNAL pelton_text pelton_get_config(void) { return pelton_current_config; }
PELTON_INTERNAL void pelton_log(pelton_level level, pelton_text message) {
    pelton_host_log(level, message.bytes, message.length);
}
PELTON_INTERNAL void pelton_add(pelton_text counter, uint64_t by) {
    pelton_host_count(counter.bytes, counter.length, by);
}

/* --- reading --- */

PELTON_INTERNAL bool pelton_is_null(const pelton_row *row, uint32_t column) {
    const uint8_t *validity = row->inputs[column].validity;
    return validity && !(validity[row->at / 8] >> row->at % 8 & 1);
}

PELTON_INTERNAL int64_t pelton_get_long(const pelton_row *row, uint32_t column) {
    const pelton_column *input = &row->inputs[column];
    const uint8_t *values = input->values.bytes;
    int32_t narrow;
    int64_t wide;
    int16_t small;
    if (pelton_is_null(row, column)) return 0;
    switch (input->layout) {
    case PELTON_BITS: return values[row->at / 8] >> row->at % 8 & 1;
    case PELTON_I8: return (int8_t)values[row->at];
    case PELTON_I16: __builtin_memcpy(&small, values + 2 * row->at, 2); return small;
    case PELTON_I32:
    case PELTON_DAYS: __builtin_memcpy(&narrow, values + 4 * row->at, 4); return narrow;
    case PELTON_I64:
    case PELTON_MICROS: __builtin_memcpy(&wide, values + 8 * row->at, 8); return wide;
    default: return (int64_t)pelton_get_double(row, column);
    }
}

PELTON_INTERNAL double pelton_get_double(const pelton_row *row, uint32_t column) {
    const pelton_column *input = &row->inputs[column];
    float narrow;
    double wide;
    if (pelton_is_null(row, column)) return 0;
    switch (input->layout) {
    case PELTON_F32: __builtin_memcpy(&narrow, input->values.bytes + 4 * row->at, 4); return narrow;
    case PELTON_F64: __builtin_memcpy(&wide, input->values.bytes + 8 * row->at, 8); return wide;
    case PELTON_UTF8:
    case PELTON_BYTES: return 0;
    default: return (double)pelton_get_long(row, column);
    }
}

PELTON_INTERNAL pelton_text pelton_get_text(const pelton_row *row, uint32_t column) {
    const pelton_column *input = &row->inputs[column];
    pelton_text text = {"", 0};
    uint32_t range[2];
    if (pelton_is_null(row, column) || input->text.bytes == NULL) return text;
    __builtin_memcpy(range, input->values.bytes + 4 * row->at, 8);
    if (range[0] > range[1] || range[1] > input->text.length) __builtin_trap();
    text.bytes = (const char *)input->text.bytes + range[0];
    text.length = range[1] - range[0];
    return text;
}

/* --- writing --- */

/* Where the texts of emitted rows end. */
PELTON_INTERNAL uint32_t pelton_text_end(const pelton_output *output) {
    uint32_t end = 0;
    if (output->values.length) __builtin_memcpy(&end, output->values.bytes + output->values.length - 4, 4);
    return end;
}

PELTON_INTERNAL void pelton_put_long(pelton_row *row, uint32_t column, int64_t value) {
    row->outputs[column].pending = (uint64_t)value;
    row->outputs[column].has_pending = true;
}
PELTON_INTERNAL void pelton_put_double(pelton_row *row, uint32_t column, double value) {
    __builtin_memcpy(&row->outputs[column].pending, &value, 8);
    row->outputs[column].has_pending = true;
}
PELTON_INTERNAL void pelton_append_text(pelton_row *row, uint32_t column, pelton_text value) {
    pelton_append(&row->outputs[column].text, value.bytes, value.length);
    row->outputs[column].has_pending = true;
}
PELTON_INTERNAL void pelton_append_long(pelton_row *row, uint32_t column, int64_t value) {
    pelton_append_decimal(&row->outputs[column].text, value);
    row->outputs[column].has_pending = true;
}
PELTON_INTERNAL void pelton_put_text(pelton_row *row, uint32_t column, pelton_text value) {
    row->outputs[column].text.length = pelton_text_end(&row->outputs[column]);
    pelton_append_text(row, column, value);
}

PELTON_INTERNAL void pelton_put_bit(pelton_buffer *bits, uint32_t at, bool value) {
    if (at / 8 >= bits->length) *pelton_extend(bits, 1) = 0;
    uint8_t bit = (uint8_t)(1u << at % 8);
    bits->bytes[at / 8] = (uint8_t)((bits->bytes[at / 8] & ~bit) | (value ? bit : 0));
}

PELTON_INTERNAL void pelton_flush(pelton_output *output, const pelton_field *field, uint32_t at, bool nullable) {
    bool is_null = !output->has_pending && nullable;
    uint64_t value = output->has_pending ? output->pending : 0;
    pelton_put_bit(&output->validity, at, !is_null);
    output->nulls += is_null;
    switch (field->type) {
    case PELTON_BOOLEAN: pelton_put_bit(&output->values, at, value != 0); break;
    case PELTON_INT:
    case PELTON_DATE: pelton_append(&output->values, &value, 4); break;
    case PELTON_STRING:
    case PELTON_BINARY: pelton_append(&output->values, &output->text.length, 4); break;
    default: pelton_append(&output->values, &value, 8); break;
    }
    output->has_pending = false;
}

PELTON_INTERNAL void pelton_emit(pelton_row *row) {
    const pelton_function *function = row->function;
    for (uint32_t i = 0; i < function->output_count; i++) {
        const pelton_field *field = &function->outputs[i];
        bool nullable = function->kind == PELTON_SCALAR || field->nullable == PELTON_NULLABLE;
        pelton_flush(&row->outputs[i], field, row->emitted, nullable);
    }
    row->emitted++;
}

PELTON_INTERNAL void pelton_refuse(pelton_row *row) { row->refused = true; }
PELTON_INTERNAL void pelton_reason(pelton_row *row, pelton_text part) {
    pelton_append(&row->reason, part.bytes, part.length);
}
PELTON_INTERNAL void pelton_reason_long(pelton_row *row, int64_t part) { pelton_append_decimal(&row->reason, part); }

/* Takes back what the current input row emitted. */
PELTON_INTERNAL void pelton_take_back(pelton_row *row) {
    for (uint32_t i = 0; i < row->function->output_count; i++) {
        pelton_output *output = &row->outputs[i];
        pelton_type type = row->function->outputs[i].type;
        uint32_t width = type == PELTON_LONG || type == PELTON_DOUBLE || type == PELTON_TIMESTAMP ? 8 : 4;
        uint32_t before = row->emitted_before, bits = (before + 7) / 8;
        output->values.length = type == PELTON_BOOLEAN ? bits : width * before;
        output->validity.length = bits;
        output->nulls = output->nulls_before;
        output->text.length = type == PELTON_STRING || type == PELTON_BINARY ? pelton_text_end(output) : 0;
        output->has_pending = false;
    }
    row->emitted = row->emitted_before;
}

/* --- the batch message --- */

PELTON_INTERNAL void pelton_message_buffer(pelton_buffer *message, uint32_t body, uint32_t *entry, const void *bytes,
                                           uint32_t length, bool leading_zero) {
    uint64_t place[2] = {message->length - body, (uint64_t)length + (leading_zero ? 4 : 0)};
    __builtin_memcpy(message->bytes + *entry, place, 16);
    *entry += 16;
    if (leading_zero) pelton_append(message, (const uint32_t[]){0}, 4);
    pelton_append(message, bytes, length);
    pelton_pad(message, 16);
}

/* The metadata has a fixed layout behind the 8 bytes of the prefix: vtables at 4 and 36, the message at 16, the batch
 * at 48, its nodes' count at 68, then the nodes, then the buffers. */
PELTON_INTERNAL pelton_buffer pelton_write_batch(pelton_row *row) {
    uint32_t nodes = row->function->output_count, buffers = 0;
    for (uint32_t i = 0; i < nodes; i++) {
        pelton_type type = row->function->outputs[i].type;
        buffers += type == PELTON_STRING || type == PELTON_BINARY ? 3 : 2;
    }
    uint32_t metadata = 88 + 16 * (nodes + buffers), body = 8 + metadata;
    uint32_t node = 8 + 72, entry = node + 16 * nodes + 8;
    pelton_buffer message = {0};
    __builtin_memset(pelton_extend(&message, body), 0, body);
    for (uint32_t i = 0; i < nodes; i++) {
        pelton_output *output = &row->outputs[i];
        pelton_type type = row->function->outputs[i].type;
        bool is_text = type == PELTON_STRING || type == PELTON_BINARY;
        __builtin_memcpy(message.bytes + node + 16 * i, (const uint64_t[]){row->emitted, output->nulls}, 16);
        pelton_message_buffer(&message, body, &entry, output->validity.bytes,
                              output->nulls ? output->validity.length : 0, false);
        pelton_message_buffer(&message, body, &entry, output->values.bytes, output->values.length, is_text);
        if (is_text)
            pelton_message_buffer(&message, body, &entry, output->text.bytes, pelton_text_end(output), false);
    }
    const uint32_t head[20] = {
        0xffffffff, metadata, 16, 12 | 20 << 16, 16 | 18 << 16, 4 | 8 << 16, 12, 28,
        message.length - body, 0, 4 | PELTON_HEADER_BATCH << 16, 10 | 20 << 16, 8 | 4 << 16, 16, 12, 16,
        row->emitted, 0, 12 + 16 * nodes, nodes,
    };
    __builtin_memcpy(message.bytes, head, sizeof head);
    __builtin_memcpy(message.bytes + 8 + 72 + 16 * nodes + 4, &buffers, 4);
    return message;
}

/* --- exports --- */

PELTON_INTERNAL uint32_t *pelton_done(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e) {
    uint32_t words[5] = {a, b, c, d, e};
    __builtin_memcpy(pelton_area, words, sizeof words);
    pelton_heap.call_is_over = true;
    return pelton_area;
}

/* An error of case 0 (unsuitable) or 1 (failed), its message put together from the parts up to NULL. */
PELTON_INTERNAL uint32_t *pelton_fail(uint32_t kind, const char *const *parts, pelton_text name) {
    pelton_buffer message = {0};
    for (; *parts; parts++) {
        pelton_text part = pelton_same(pelton_string(*parts), pelton_string("%")) ? name : pelton_string(*parts);
        pelton_append(&message, part.bytes, part.length);
    }
    return pelton_done(1, kind, (uint32_t)(uintptr_t)message.bytes, message.length, 0);
}

#define PELTON_FAIL(kind, name, ...) pelton_fail(kind, (const char *const[]){__VA_ARGS__, NULL}, name)

__attribute__((export_name("pelton:plugin/describe@0.1.0#describe"))) uint32_t *pelton_describe(void) {
    uint32_t rows = pelton_this.function_count, groups = pelton_this.group_count;
    uint32_t count = rows + groups + pelton_this.sink_count;
    uint32_t *list = pelton_allocate(20 * count);
    for (uint32_t i = 0; i < count; i++) {
        pelton_text name, doc;
        uint32_t kind = 2; /* stateful */
        if (i < rows) {
            const pelton_function *function = &pelton_this.functions[i];
            name = pelton_string(function->name), doc = pelton_string(function->doc), kind = function->kind;
        } else if (i < rows + groups) {
            pelton_this.group_texts(i - rows, &name, &doc);
        } else {
            pelton_this.sink_texts(i - rows - groups, &name, &doc);
            kind = 4; /* sink */
        }
        uint32_t words[5] = {(uint32_t)(uintptr_t)name.bytes, name.length, kind,
                             (uint32_t)(uintptr_t)doc.bytes, doc.length};
        __builtin_memcpy(list + 5 * i, words, sizeof words);
    }
    pelton_text name = pelton_string(pelton_this.name), version = pelton_string(pelton_this.version);
    uint32_t words[7] = {(uint32_t)(uintptr_t)name.bytes, name.length, (uint32_t)(uintptr_t)version.bytes,
                         version.length, 0 /* Arrow */, (uint32_t)(uintptr_t)list, count};
    __builtin_memcpy(pelton_area, words, sizeof words);
    return pelton_area;
}

PELTON_INTERNAL bool pelton_accepts(pelton_type wanted, const pelton_table *field) {
    pelton_layout layout = pelton_layout_of(field);
    pelton_table details = pelton_slot_table(field, 3);
    switch (wanted) {
    case PELTON_BOOLEAN: return layout == PELTON_BITS;
    case PELTON_INT: return layout >= PELTON_I8 && layout <= PELTON_I32;
    case PELTON_LONG: return layout >= PELTON_I8 && layout <= PELTON_I64;
    case PELTON_DOUBLE: return layout >= PELTON_I8 && layout <= PELTON_F64 && layout != PELTON_I64;
    case PELTON_STRING: return layout == PELTON_UTF8;
    case PELTON_BINARY: return layout == PELTON_BYTES;
    case PELTON_DATE: return layout == PELTON_DAYS;
    default: return layout == PELTON_MICROS && pelton_slot(&details, 1) != 0;
    }
}

/* Notes which column an input is read from; returns the failure or NULL. */
PELTON_INTERNAL uint32_t *pelton_take_column(pelton_row *row, uint32_t input, const pelton_table *field, uint32_t node,
                                             uint32_t buffer) {
    static const char *const wanted[] = {"boolean", "int", "long", "double", "string", "binary", "date", "timestamp"};
    const pelton_field *expected = &row->function->inputs[input];
    if (!pelton_accepts(expected->type, field))
        return PELTON_FAIL(0, pelton_string(expected->name), "column '", "%", "' is of type ", pelton_type_name(field),
                           ", but the function reads it as ", wanted[expected->type]);
    pelton_column column = {.layout = pelton_layout_of(field), .node = node, .buffer = buffer};
    row->inputs[input] = column;
    return NULL;
}

/* Finds the function's inputs in the schema; returns the failure or NULL. */
PELTON_INTERNAL uint32_t *pelton_match(pelton_row *row, const pelton_table *schema) {
    const pelton_function *function = row->function;
    uint32_t count = pelton_slot_count(schema, 1, 4), known = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        bool by_order = pass == 1 && known == 0 && function->kind == PELTON_SCALAR && count == function->input_count;
        for (uint32_t i = 0; i < function->input_count; i++) {
            uint32_t nodes = 0, buffers = 0, at = 0;
            pelton_text name = pelton_string(function->inputs[i].name);
            for (; at < count; at++) {
                pelton_table field = pelton_entry_table(schema, 1, at);
                if (by_order ? at == i : pelton_same(pelton_slot_text(&field, 0), name)) break;
                if (!pelton_measure(&field, 0, &nodes, &buffers)) at = count;
            }
            known += at < count;
            if (pass == 0) continue;
            if (at >= count) return PELTON_FAIL(0, name, "there is no column '", "%", "'");
            pelton_table field = pelton_entry_table(schema, 1, at);
            uint32_t *failure = pelton_take_column(row, i, &field, nodes, buffers);
            if (failure) return failure;
        }
    }
    return NULL;
}

PELTON_INTERNAL uint32_t *pelton_start(pelton_kind kind, pelton_text name, pelton_text config, pelton_bytes input) {
    const pelton_function *function = NULL;
    for (uint32_t i = 0; i < pelton_this.function_count; i++)
        if (pelton_this.functions[i].kind == kind && pelton_same(pelton_string(pelton_this.functions[i].name), name))
            function = &pelton_this.functions[i];
    if (!function)
        return PELTON_FAIL(0, name, "there is no ", kind == PELTON_SCALAR ? "scalar" : "transform", " function '", "%", "'");
    if (function->input_count > PELTON_COLUMNS_MAX || function->output_count > PELTON_COLUMNS_MAX)
        return PELTON_FAIL(0, name, "the function '", "%", "' has more than 64 columns");
    pelton_bytes body;
    pelton_table schema = pelton_header(input, PELTON_HEADER_SCHEMA, &body);
    if (!schema.at) return PELTON_FAIL(1, name, "the Arrow schema message is malformed");
    pelton_state.function = function;
    pelton_current_config = config;
    uint32_t *failure = pelton_match(&pelton_state, &schema);
    if (failure) return failure;
    pelton_field outputs[PELTON_COLUMNS_MAX];
    __builtin_memcpy(outputs, function->outputs, function->output_count * sizeof *outputs);
    if (kind == PELTON_SCALAR && function->output_count) outputs[0].name = function->name;
    pelton_buffer message = pelton_write_schema(outputs, function->output_count, kind == PELTON_SCALAR);
    pelton_heap.kept = pelton_heap.next;
    return pelton_done(0, (uint32_t)(uintptr_t)message.bytes, message.length, 0, 0);
}

/* Calls the function for one row; notes it if it is refused. */
PELTON_INTERNAL void pelton_call(pelton_row *row) {
    const pelton_function *function = row->function;
    uint32_t reason_start = row->reason.length;
    row->emitted_before = row->emitted;
    row->refused = false;
    for (uint32_t i = 0; i < function->output_count; i++) row->outputs[i].nulls_before = row->outputs[i].nulls;
    for (uint32_t i = 0; i < function->input_count && !row->refused; i++) {
        if (function->inputs[i].nullable == PELTON_NULLABLE || !pelton_is_null(row, i)) continue;
        pelton_refuse(row);
        pelton_reason(row, pelton_string("column '"));
        pelton_reason(row, pelton_string(function->inputs[i].name));
        pelton_reason(row, pelton_string("' is null"));
    }
    if (!row->refused) function->call(row);
    if (row->refused) {
        pelton_take_back(row);
        uint32_t noted[3] = {row->at, reason_start, row->reason.length - reason_start};
        pelton_append(&row->rejected, noted, sizeof noted);
    } else {
        row->reason.length = reason_start;
    }
    if (function->kind == PELTON_SCALAR) pelton_emit(row);
}

/* Finds the inputs' buffers in a batch, and how many rows it has. False if it is malformed. */
PELTON_INTERNAL bool pelton_bind(pelton_row *row, pelton_bytes input, uint32_t *count) {
    pelton_bytes body;
    pelton_table batch = pelton_header(input, PELTON_HEADER_BATCH, &body);
    uint64_t rows = (uint64_t)pelton_slot_number(&batch, 0, 8, 0);
    bool readable = batch.at && !pelton_slot(&batch, 3) && rows <= UINT32_MAX / 16;
    for (uint32_t i = 0; readable && i < row->function->input_count; i++)
        readable = pelton_bind_column(&row->inputs[i], &batch, body, (uint32_t)rows);
    *count = (uint32_t)rows;
    return readable;
}

/* Forgets what the last call put out. */
PELTON_INTERNAL void pelton_begin(pelton_row *row) {
    row->emitted = 0;
    row->reason = row->rejected = (pelton_buffer){0};
    __builtin_memset(row->outputs, 0, row->function->output_count * sizeof *row->outputs);
}

/* Makes places of the reasons' positions; how many rows were refused. */
PELTON_INTERNAL uint32_t pelton_finish_rejected(pelton_row *row) {
    uint32_t count = row->rejected.length / 12;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *reason = (uint32_t *)(void *)(row->rejected.bytes + 12 * i) + 1;
        *reason += (uint32_t)(uintptr_t)row->reason.bytes;
    }
    return count;
}

PELTON_INTERNAL uint32_t *pelton_run(pelton_clock clock, pelton_bytes input) {
    pelton_row *row = &pelton_state;
    pelton_text nothing = {"", 0};
    if (!row->function) return PELTON_FAIL(1, nothing, "no function is open on this instance");
    uint32_t rows;
    if (!pelton_bind(row, input, &rows)) return PELTON_FAIL(1, nothing, "the Arrow record batch message is malformed");
    pelton_current_clock = clock;
    pelton_begin(row);
    for (row->at = 0; row->at < rows; row->at++) pelton_call(row);
    pelton_buffer message = pelton_write_batch(row);
    uint32_t count = pelton_finish_rejected(row);
    return pelton_done(0, (uint32_t)(uintptr_t)message.bytes, message.length, (uint32_t)(uintptr_t)row->rejected.bytes,
                       count);
}

__attribute__((export_name("pelton:plugin/scalar@0.1.0#bind"))) uint32_t *
pelton_bind_scalar(const char *name, uint32_t name_length, const char *config, uint32_t config_length, const uint8_t *input,
            uint32_t input_length) {
    return pelton_start(PELTON_SCALAR, (pelton_text){name, name_length}, (pelton_text){config, config_length},
                        (pelton_bytes){input, input_length});
}

__attribute__((export_name("pelton:plugin/transform@0.1.0#open"))) uint32_t *
pelton_open(const char *name, uint32_t name_length, const char *config, uint32_t config_length, const uint8_t *input,
            uint32_t input_length) {
    return pelton_start(PELTON_TRANSFORM, (pelton_text){name, name_length}, (pelton_text){config, config_length},
                        (pelton_bytes){input, input_length});
}

__attribute__((export_name("pelton:plugin/scalar@0.1.0#evaluate"))) uint32_t *
pelton_evaluate(uint64_t batch_id, int64_t processing_time, uint32_t has_watermark, int64_t watermark, uint64_t seed,
                const uint8_t *rows, uint32_t length) {
    return pelton_run((pelton_clock){batch_id, processing_time, has_watermark != 0, watermark, seed},
                      (pelton_bytes){rows, length});
}

__attribute__((export_name("pelton:plugin/transform@0.1.0#process"))) uint32_t *
pelton_process(uint64_t batch_id, int64_t processing_time, uint32_t has_watermark, int64_t watermark, uint64_t seed,
               const uint8_t *rows, uint32_t length) {
    return pelton_evaluate(batch_id, processing_time, has_watermark, watermark, seed, rows, length);
}

#endif
