/* The interface `sink` and the import `http`, in the canonical ABI by hand. Included by pelton_sink.h; not for use by hand. */
#ifndef PELTON_SINK_RUNTIME_H
#define PELTON_SINK_RUNTIME_H

static struct {
    const pelton_sink_function *function;
    pelton_function table; /* what the codec needs to know */
    pelton_row row;
    pelton_output_mode mode;
    bool has_failed;
    pelton_buffer failure;
} pelton_written;

static void pelton_sink_texts(uint32_t at, pelton_text *name, pelton_text *doc) {
    *name = pelton_string(pelton_this.sinks[at].name);
    *doc = pelton_string(pelton_this.sinks[at].doc);
}

PELTON_INTERNAL void pelton_fail_write(pelton_text message) {
    pelton_written.has_failed = true;
    pelton_written.failure.length = 0;
    pelton_append(&pelton_written.failure, message.bytes, message.length);
}

/* --- HTTP --- */

__attribute__((import_module("pelton:plugin/http@0.1.0"), import_name("send"))) void
pelton_host_send(const char *method, uint32_t method_length, const char *url, uint32_t url_length,
                 const pelton_http_header *headers, uint32_t count, const char *body, uint32_t body_length, uint32_t *result);

/* A header is four words in memory, as the host reads it: pointer and length of its name and of its value. */
PELTON_INTERNAL pelton_response pelton_http(pelton_text method, pelton_text url, const pelton_http_header *headers,
                                            uint32_t count, pelton_text body) {
    uint32_t result[6] = {0};
    pelton_host_send(method.bytes, method.length, url.bytes, url.length, headers, count, body.bytes, body.length, result);
    bool has_failed = result[0] & 0xff;
    pelton_text text = {(const char *)(uintptr_t)result[has_failed ? 2 : 4], result[has_failed ? 3 : 5]};
    return (pelton_response){has_failed ? 0 : result[1] & 0xffff, text};
}

/* --- exports --- */

__attribute__((export_name("pelton:plugin/sink@0.1.0#open"))) uint32_t *
pelton_open_sink(const char *name, uint32_t name_length, const char *config, uint32_t config_length, const uint8_t *input,
                 uint32_t input_length, uint32_t mode) {
    pelton_text wanted = {name, name_length};
    const pelton_sink_function *function = NULL;
    for (uint32_t i = 0; i < pelton_this.sink_count; i++)
        if (pelton_same(pelton_string(pelton_this.sinks[i].name), wanted)) function = &pelton_this.sinks[i];
    if (!function) return PELTON_FAIL(0, wanted, "there is no sink function '", "%", "'");
    if (function->input_count > PELTON_COLUMNS_MAX)
        return PELTON_FAIL(0, wanted, "the function '", "%", "' has more than 64 columns");
    pelton_bytes body;
    pelton_table schema = pelton_header((pelton_bytes){input, input_length}, PELTON_HEADER_SCHEMA, &body);
    if (!schema.at) return PELTON_FAIL(1, wanted, "the Arrow schema message is malformed");
    const pelton_function table = {"", PELTON_TRANSFORM, "", function->inputs, function->input_count, NULL, 0, NULL};
    pelton_written.function = function;
    pelton_written.table = table;
    pelton_written.row.function = &pelton_written.table;
    pelton_written.mode = (pelton_output_mode)mode;
    pelton_current_config = (pelton_text){config, config_length};
    uint32_t *failure = pelton_match(&pelton_written.row, &schema);
    if (failure) return failure;
    pelton_heap.kept = pelton_heap.next;
    return pelton_done(0, 0, 0, 0, 0);
}

/* Whether a row has all that it must have. */
PELTON_INTERNAL bool pelton_is_whole(pelton_row *row) {
    for (uint32_t i = 0; i < row->function->input_count; i++) {
        if (row->function->inputs[i].nullable == PELTON_NULLABLE || !pelton_is_null(row, i)) continue;
        pelton_fail_write(pelton_string("a value is null in the column "));
        pelton_text name = pelton_string(row->function->inputs[i].name);
        pelton_append(&pelton_written.failure, name.bytes, name.length);
        return false;
    }
    return true;
}

__attribute__((export_name("pelton:plugin/sink@0.1.0#write"))) uint32_t *
pelton_write(uint64_t batch_id, int64_t processing_time, uint32_t has_watermark, int64_t watermark, uint64_t seed,
             uint32_t number, uint32_t is_last, const uint8_t *input, uint32_t length) {
    pelton_text nothing = {"", 0};
    pelton_row *row = &pelton_written.row;
    if (!pelton_written.function) return PELTON_FAIL(1, nothing, "no sink function is open on this instance");
    uint32_t rows;
    if (!pelton_bind(row, (pelton_bytes){input, length}, &rows))
        return PELTON_FAIL(1, nothing, "the Arrow record batch message is malformed");
    pelton_current_clock = (pelton_clock){batch_id, processing_time, has_watermark != 0, watermark, seed};
    pelton_written.has_failed = false;
    pelton_written.failure = (pelton_buffer){0};
    const pelton_part part = {number, is_last != 0, pelton_written.mode};
    for (row->at = 0; row->at < rows && !pelton_written.has_failed; row->at++)
        if (pelton_is_whole(row)) pelton_written.function->write(row, &part);
    if (!pelton_written.has_failed && pelton_written.function->end) pelton_written.function->end(&part);
    if (!pelton_written.has_failed) return pelton_done(0, 0, 0, 0, 0);
    return pelton_done(1, 1, (uint32_t)(uintptr_t)pelton_written.failure.bytes, pelton_written.failure.length, 0);
}

#endif
