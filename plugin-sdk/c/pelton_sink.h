/* Write sink functions in C: rows in, nothing out. Spark's foreachBatch.
 *
 *     #include "pelton_sink.h"
 *
 *     static const pelton_field alert[] = {{"text", PELTON_STRING, PELTON_NOT_NULL}};
 *
 *     static void post(pelton_row *row, const pelton_part *part) {
 *         pelton_response answer =
 *             pelton_post(pelton_string("https://hooks.example.com/alerts"), NULL, 0, pelton_get_text(row, 0));
 *         if (answer.status / 100 != 2) pelton_fail_write(answer.body);
 *     }
 *
 *     static const pelton_sink_function sinks[] = {
 *         {"alerts", "Posts each alert.", PELTON_FIELDS(alert), post, NULL},
 *     };
 *     PELTON_SINK_PLUGIN("alerts", "0.1.0", sinks)
 *
 * `write` is called for each row, `end` (if there is one) after the rows of each part: a large micro-batch comes in several,
 * one after the other, an empty one in a single part without rows. After a failure or a crash the whole micro-batch comes
 * again, with the same rows and parts. A null in a NOT NULL input fails it. Columns are matched as in pelton.h.
 */
#ifndef PELTON_SINK_H
#define PELTON_SINK_H

#include "pelton.h"

/* Which rows a micro-batch brings: new ones, changed ones, or the whole result. */
typedef enum { PELTON_APPEND, PELTON_UPDATE, PELTON_COMPLETE } pelton_output_mode;

typedef struct {
    uint32_t number; /* from 0 */
    bool is_last;
    pelton_output_mode mode;
} pelton_part;

struct pelton_sink_function {
    const char *name;
    const char *doc;
    const pelton_field *inputs;
    uint32_t input_count;
    void (*write)(pelton_row *row, const pelton_part *part);
    void (*end)(const pelton_part *part);
};

/* Fails the micro-batch; no further row of the part is written. */
static void pelton_fail_write(pelton_text message);

typedef struct {
    pelton_text name, value;
} pelton_http_header;

/* What came back. Without an answer the status is 0, and the body says why. */
typedef struct {
    uint32_t status;
    pelton_text body;
} pelton_response;

/* Sends a request to a host that the pipeline file allows, and waits for the answer. Only while rows are written. The host
 * adds an Idempotency-Key, which is the same when the micro-batch comes again. */
static pelton_response pelton_http(pelton_text method, pelton_text url, const pelton_http_header *headers, uint32_t count,
                                   pelton_text body);
static inline pelton_response pelton_post(pelton_text url, const pelton_http_header *headers, uint32_t count,
                                          pelton_text body) {
    return pelton_http(pelton_string("POST"), url, headers, count, body);
}

#define PELTON_SINK_PLUGIN(name, version, sinks) \
    static const pelton_plugin pelton_this = {name, version, NULL, 0, NULL, 0, NULL, sinks, PELTON_COUNT(sinks), pelton_sink_texts};

#include "pelton_sink_runtime.h"

#endif
