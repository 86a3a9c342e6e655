/* Write functions over groups with state in C: Spark's mapGroupsWithState and flatMapGroupsWithState.
 *
 *     #include "pelton_groups.h"
 *
 *     static const pelton_field user[] = {{"user", PELTON_STRING, PELTON_NULLABLE}};
 *     static const pelton_field payment[] = {{"amount", PELTON_LONG, PELTON_NOT_NULL}};
 *     static const pelton_field total[] = {{"sum", PELTON_LONG, PELTON_NOT_NULL}};
 *     static const pelton_field out[] = {{"user", PELTON_STRING, PELTON_NULLABLE}, {"sum", PELTON_LONG, PELTON_NOT_NULL}};
 *
 *     static void add_up(pelton_group *group) {
 *         int64_t sum = pelton_get_long(group->state, 0);
 *         while (pelton_next_row(group)) sum += pelton_get_long(group->row, 0);
 *         pelton_put_long(group->state, 0, sum);
 *         pelton_update_state(group);
 *         pelton_put_text(group->row, 0, pelton_get_text(group->key, 0));
 *         pelton_put_long(group->row, 1, sum);
 *         pelton_emit(group->row);
 *     }
 *
 *     static const pelton_group_function groups[] = {
 *         {"add_up", PELTON_MAP_GROUPS, "What each user has paid.", PELTON_NO_TIMEOUT, PELTON_FIELDS(user),
 *          PELTON_FIELDS(payment), PELTON_FIELDS(total), 1, PELTON_FIELDS(out), add_up},
 *     };
 *     PELTON_GROUPS_PLUGIN("payments", "0.1.0", groups)
 *
 * The function is called for each group that has rows, and for those whose timeout has passed. The state is one value
 * of the fields that it names; the host keeps it. Columns are matched as in pelton.h.
 */
#ifndef PELTON_GROUPS_H
#define PELTON_GROUPS_H

#include "pelton.h"

/* One row a group, or any number. */
typedef enum { PELTON_MAP_GROUPS, PELTON_FLAT_MAP_GROUPS } pelton_form;

/* What timeouts are measured by: the micro-batch's time, or the watermark. */
typedef enum { PELTON_NO_TIMEOUT, PELTON_PROCESSING_TIME, PELTON_EVENT_TIME } pelton_timeout;

typedef struct pelton_group pelton_group;

struct pelton_group_function {
    const char *name;
    pelton_form form;
    const char *doc;
    pelton_timeout timeout;
    const pelton_field *keys;
    uint32_t key_count;
    const pelton_field *inputs;
    uint32_t input_count;
    const pelton_field *state;
    uint32_t state_count;   /* 0: it keeps nothing but a timeout */
    uint32_t state_version; /* counts up when the fields change; older state is then refused */
    const pelton_field *outputs;
    uint32_t output_count;
    void (*call)(pelton_group *group);
};

struct pelton_group {
    pelton_row *key;   /* pelton_get_…: the key's columns */
    pelton_row *row;   /* pelton_get_…: the current row, after pelton_next_row; pelton_put_…, pelton_emit: an output row */
    pelton_row *state; /* pelton_get_…: the state as it was (0 and empty if there was none); pelton_put_…: the new one */
};

/* The next row of the group. Rows with a null in a NOT NULL input are refused and left out. */
static bool pelton_next_row(pelton_group *group);
static bool pelton_has_state(const pelton_group *group);
/* The group is called for its timeout, without rows. Every call clears the timeout. */
static bool pelton_has_timed_out(const pelton_group *group);
/* The state is what was put into group->state. */
static void pelton_update_state(pelton_group *group);
static void pelton_remove_state(pelton_group *group);
/* The timeout, in microseconds since the Unix epoch. It stays when the state is removed. */
static void pelton_set_timeout(pelton_group *group, int64_t at);
/* Refuses the current row: it goes to the dead letters. */
static void pelton_refuse_row(pelton_group *group, pelton_text reason);
/* Fails the whole micro-batch. */
static void pelton_fail_call(pelton_group *group, pelton_text message);

/* Beside functions over rows, or alone. */
#define PELTON_PLUGIN_WITH_GROUPS(name, version, functions, groups)                                            \
    static const pelton_plugin pelton_this = {name,   version,              functions,         PELTON_COUNT(functions), \
                                              groups, PELTON_COUNT(groups), pelton_group_texts};
#define PELTON_GROUPS_PLUGIN(name, version, groups) \
    static const pelton_plugin pelton_this = {name, version, NULL, 0, groups, PELTON_COUNT(groups), pelton_group_texts};

#include "pelton_groups_runtime.h"

#endif
