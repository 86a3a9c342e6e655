/* Write functions over groups with state in C: Spark's mapGroupsWithState, flatMapGroupsWithState and transformWithState.
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
 *
 * A processor has variables (values, lists, maps) in place of the one state, and named timers in place of the timeout;
 * examples/plugins/visits-c is one.
 */
#ifndef PELTON_GROUPS_H
#define PELTON_GROUPS_H

#include "pelton.h"

/* A function with one state leaves the fields for variables out. */
#pragma clang diagnostic ignored "-Wmissing-field-initializers"

/* One row a group; any number; any number, with variables and timers. */
typedef enum { PELTON_MAP_GROUPS, PELTON_FLAT_MAP_GROUPS, PELTON_PROCESSOR } pelton_form;

/* What timeouts and timers are measured by: the micro-batch's time, or the watermark. */
typedef enum { PELTON_NO_TIMEOUT, PELTON_PROCESSING_TIME, PELTON_EVENT_TIME } pelton_timeout;

typedef struct pelton_group pelton_group;

/* What a variable holds for a group: nothing or one value; values in the order in which they were appended; values by
 * key. */
typedef enum { PELTON_VALUE, PELTON_LIST, PELTON_MAP } pelton_variable_kind;

/* Which entries a call is given. Those that it is not given can be written all the same. */
typedef enum {
    PELTON_LOAD_EVERYTHING,
    PELTON_LOAD_NOTHING,
    PELTON_LOAD_LAST,     /* of a list the last `last` */
    PELTON_LOAD_KEYED_BY, /* of a map the entries whose keys stand in `columns` of the group's rows */
} pelton_load;

typedef struct {
    const char *name; /* names it for ever */
    pelton_variable_kind kind;
    const pelton_field *keys; /* of a map */
    uint32_t key_count;
    const pelton_field *values;
    uint32_t value_count;
    uint32_t version; /* counts up when stored values must be rewritten */
    uint64_t ttl_ms;  /* an entry is gone so long after it was last written; 0: it stays */
    pelton_load load;
    uint32_t last;
    const char *const *columns; /* one for each field of the key, all of them inputs */
    /* The version before: its number, the fields of its values, and what puts today's values in the place of them
     * (pelton_get_…: key and old values; pelton_put_…: key and new values, the key is there already). */
    uint32_t old_version;
    const pelton_field *old_values;
    uint32_t old_value_count;
    void (*migrate)(pelton_row *entry);
} pelton_variable;

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
    uint32_t state_version; /* counts up when the fields change; older state is then refused: `variables` can migrate it */
    const pelton_field *outputs;
    uint32_t output_count;
    void (*call)(pelton_group *group);
    const pelton_variable *variables; /* in place of `state` */
    uint32_t variable_count;
};

#define PELTON_VARIABLES_MAX 8u

struct pelton_group {
    pelton_row *key;   /* pelton_get_…: the key's columns */
    pelton_row *row;   /* pelton_get_…: the current row, after pelton_next_row; pelton_put_…, pelton_emit: an output row */
    pelton_row *state; /* pelton_get_…: the state as it was (0 and empty if there was none); pelton_put_…: the new one */
    pelton_row *entries[PELTON_VARIABLES_MAX];  /* by variable. pelton_get_…: the current entry, after pelton_next_entry;
                                                   pelton_put_…, pelton_put_entry: a new one. The key's fields come first */
    pelton_row *removals[PELTON_VARIABLES_MAX]; /* pelton_put_…: the key of an entry, for pelton_remove_entry */
};

typedef struct {
    pelton_text name;
    int64_t at; /* microseconds since the Unix epoch */
} pelton_timer;

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
/* Entries of variables: the next one that the call was given; set the value, append to the list, set the map's entry; take
 * the map's entry of a key away; take all away, also those that were not given. */
static bool pelton_next_entry(pelton_group *group, uint32_t variable);
static void pelton_put_entry(pelton_group *group, uint32_t variable);
static void pelton_remove_entry(pelton_group *group, uint32_t variable);
static void pelton_clear_entries(pelton_group *group, uint32_t variable);
/* The timer that the group is called for, if that is why; the next of its others; setting one, in place of the one of that
 * name; deleting one. */
static bool pelton_fired(const pelton_group *group, pelton_timer *timer);
static bool pelton_next_timer(pelton_group *group, pelton_timer *timer);
static void pelton_set_timer(pelton_group *group, pelton_text name, int64_t at);
static void pelton_delete_timer(pelton_group *group, pelton_text name);
/* Fails the whole micro-batch. */
static void pelton_fail_call(pelton_group *group, pelton_text message);

/* Beside functions over rows, or alone. */
#define PELTON_PLUGIN_WITH_GROUPS(name, version, functions, groups)                                            \
    static const pelton_plugin pelton_this = {name,   version,              functions,         PELTON_COUNT(functions), \
                                              groups, PELTON_COUNT(groups), pelton_group_texts,     NULL,  0, NULL};
#define PELTON_GROUPS_PLUGIN(name, version, groups) \
    static const pelton_plugin pelton_this = {name, version, NULL, 0, groups, PELTON_COUNT(groups), pelton_group_texts, NULL, 0, NULL};

#include "pelton_groups_runtime.h"

#endif
