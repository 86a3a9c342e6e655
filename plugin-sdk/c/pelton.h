/* Write Pelton plugins in C: functions over rows, freestanding, a few kilobytes of Wasm.
 *
 * Include it in one source file, describe the functions, and end with PELTON_PLUGIN:
 *
 *     #include "pelton.h"
 *
 *     static const pelton_field in[] = {{"name", PELTON_STRING, PELTON_NOT_NULL}};
 *     static const pelton_field out[] = {{"length", PELTON_LONG, PELTON_NOT_NULL}};
 *
 *     static void length(pelton_row *row) {
 *         pelton_put_long(row, 0, pelton_get_text(row, 0).length);
 *         pelton_emit(row);
 *     }
 *
 *     static const pelton_function functions[] = {
 *         {"length", PELTON_TRANSFORM, "Bytes of a name.", PELTON_FIELDS(in), PELTON_FIELDS(out), length},
 *     };
 *     PELTON_PLUGIN("names", "0.1.0", functions)
 *
 * Columns are found by name; a missing one or one of another type is refused when the function is opened, with a
 * message that names it. A null in a NOT NULL input refuses its row. The input may have more columns, nested ones
 * too; a function reads and writes flat ones.
 *
 * Build: clang --target=wasm32 -O3 -ffreestanding -nostdlib -mbulk-memory -Wl,--no-entry -o names.wasm names.c
 *
 * There is no libc. Memory for the rows comes from a bump allocator that is emptied before the next call; a plugin
 * keeps nothing between calls.
 */
#ifndef PELTON_H
#define PELTON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Spark's types, as far as C functions take them. */
typedef enum {
    PELTON_BOOLEAN,   /* pelton_get_long: 0 or 1 */
    PELTON_INT,       /* pelton_get_long; takes byte and short columns too */
    PELTON_LONG,      /* pelton_get_long; takes byte, short and int columns too */
    PELTON_DOUBLE,    /* pelton_get_double; takes byte, short, int and float columns too */
    PELTON_STRING,    /* pelton_get_text: UTF-8 */
    PELTON_BINARY,    /* pelton_get_text */
    PELTON_DATE,      /* pelton_get_long: days since 1970-01-01 */
    PELTON_TIMESTAMP, /* pelton_get_long: microseconds since the Unix epoch */
} pelton_type;

/* Whether a column may hold nulls. */
typedef enum { PELTON_NOT_NULL, PELTON_NULLABLE } pelton_nullable;

typedef struct {
    const char *name;
    pelton_type type;
    pelton_nullable nullable;
} pelton_field;

/* A scalar function has one output column and puts one value for each row (pelton_put_…; without one it is null); its
 * inputs are matched by name or, if no name is known, in order. A transform function emits any number of rows. */
typedef enum { PELTON_SCALAR, PELTON_TRANSFORM } pelton_kind;

typedef struct {
    const char *bytes;
    uint32_t length;
} pelton_text;

typedef struct pelton_row pelton_row;

typedef struct {
    const char *name;
    pelton_kind kind;
    const char *doc;
    const pelton_field *inputs;
    uint32_t input_count;
    const pelton_field *outputs;
    uint32_t output_count;
    void (*call)(pelton_row *row);
} pelton_function;

/* Functions over groups with state are in pelton_groups.h, which includes this file. */
typedef struct pelton_group_function pelton_group_function;
/* Sink functions are in pelton_sink.h. */
typedef struct pelton_sink_function pelton_sink_function;

#define PELTON_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PELTON_FIELDS(array) (array), PELTON_COUNT(array)

/* Where the call stands; the same when it is replayed. */
typedef struct {
    uint64_t batch_id;
    int64_t processing_time; /* microseconds since the Unix epoch */
    bool has_watermark;
    int64_t watermark;
    uint64_t seed;
} pelton_clock;

/* Reading: `column` counts the function's inputs. A value of a null column is 0 or empty. */
static bool pelton_is_null(const pelton_row *row, uint32_t column);
static int64_t pelton_get_long(const pelton_row *row, uint32_t column);
static double pelton_get_double(const pelton_row *row, uint32_t column);
static pelton_text pelton_get_text(const pelton_row *row, uint32_t column);
static pelton_clock pelton_get_clock(void);
static pelton_text pelton_get_config(void); /* the plugin's `config` from the pipeline file, as JSON */

/* Writing: `column` counts the function's outputs. Columns that are not put before pelton_emit are null (or 0 and
 * empty, if they are NOT NULL). */
static void pelton_put_long(pelton_row *row, uint32_t column, int64_t value);
static void pelton_put_double(pelton_row *row, uint32_t column, double value);
static void pelton_put_text(pelton_row *row, uint32_t column, pelton_text value);
/* Adds to a text that was put before. */
static void pelton_append_text(pelton_row *row, uint32_t column, pelton_text value);
static void pelton_append_long(pelton_row *row, uint32_t column, int64_t value);
static void pelton_emit(pelton_row *row);

/* Refuses the input row: what was emitted for it is taken back, the row goes to the dead letters. The reason's parts
 * are put together: pelton_refuse(row); pelton_reason(row, pelton_string("…")); pelton_reason_long(row, 7); */
static void pelton_refuse(pelton_row *row);
static void pelton_reason(pelton_row *row, pelton_text part);
static void pelton_reason_long(pelton_row *row, int64_t part);

typedef enum { PELTON_TRACE, PELTON_DEBUG, PELTON_INFO, PELTON_WARN, PELTON_ERROR } pelton_level;
static void pelton_log(pelton_level level, pelton_text message);
static void pelton_add(pelton_text counter, uint64_t by);

/* A text from a C string, and whether two are the same. */
static inline pelton_text pelton_string(const char *text) {
    pelton_text made = {text, 0};
    while (text[made.length]) made.length++;
    return made;
}
static inline bool pelton_same(pelton_text a, pelton_text b) {
    if (a.length != b.length) return false;
    for (uint32_t i = 0; i < a.length; i++)
        if (a.bytes[i] != b.bytes[i]) return false;
    return true;
}

#include "pelton_memory.h"
#include "pelton_arrow.h"
#include "pelton_runtime.h"

#endif
