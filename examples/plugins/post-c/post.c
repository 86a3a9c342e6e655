/* Posts each part of a micro-batch as text, a line a row, in freestanding C. The URL is the plugin's whole `config`:
 * `{"url": "…"}`, without anything else in it. */
#include "pelton_sink.h"

static const pelton_field line[] = {{"text", PELTON_STRING, PELTON_NOT_NULL}};

static pelton_buffer lines;

static void add(pelton_row *row, const pelton_part *part) {
    (void)part;
    pelton_text text = pelton_get_text(row, 0);
    pelton_append(&lines, text.bytes, text.length);
    pelton_append(&lines, "\n", 1);
}

/* What stands between the last two quotation marks. */
static pelton_text url(void) {
    pelton_text config = pelton_get_config();
    uint32_t end = config.length;
    while (end && config.bytes[end - 1] != '"') end--;
    uint32_t start = end ? end - 1 : 0;
    while (start && config.bytes[start - 1] != '"') start--;
    return (pelton_text){config.bytes + start, end ? end - 1 - start : 0};
}

static void post(const pelton_part *part) {
    (void)part;
    const pelton_http_header type[] = {{pelton_string("content-type"), pelton_string("text/plain")}};
    pelton_text body = {(const char *)lines.bytes, lines.length};
    if (!body.length) return;
    pelton_response answer = pelton_post(url(), type, 1, body);
    lines = (pelton_buffer){0};
    if (answer.status / 100 != 2) pelton_fail_write(answer.body);
}

static const pelton_sink_function sinks[] = {
    {"post", "Posts each part of a micro-batch as lines of text.", PELTON_FIELDS(line), add, post},
};
PELTON_SINK_PLUGIN("post", "0.1.0", sinks)
