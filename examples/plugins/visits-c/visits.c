/* Visits of users in freestanding C: a processor with a value, a list, a map and two timers, whose map has had another
 * version. The same function as `visits` in plugin-sdk/conformance/guest. */
#include "pelton_groups.h"

static const pelton_field user[] = {{"user", PELTON_STRING, PELTON_NOT_NULL}};
static const pelton_field visit[] = {
    {"page", PELTON_STRING, PELTON_NOT_NULL},
    {"at", PELTON_TIMESTAMP, PELTON_NOT_NULL},
};
static const pelton_field number[] = {{"value", PELTON_LONG, PELTON_NOT_NULL}};
static const pelton_field text[] = {{"value", PELTON_STRING, PELTON_NOT_NULL}};
static const pelton_field page_key[] = {{"key", PELTON_STRING, PELTON_NOT_NULL}};
static const pelton_field page_before[] = {{"visits", PELTON_LONG, PELTON_NOT_NULL}};
static const pelton_field page[] = {
    {"visits", PELTON_LONG, PELTON_NOT_NULL},
    {"last", PELTON_TIMESTAMP, PELTON_NULLABLE},
};
static const pelton_field shown[] = {
    {"user", PELTON_STRING, PELTON_NOT_NULL},   {"event", PELTON_STRING, PELTON_NOT_NULL},
    {"visits", PELTON_LONG, PELTON_NOT_NULL},   {"recent", PELTON_STRING, PELTON_NOT_NULL},
    {"pages", PELTON_LONG, PELTON_NOT_NULL},
};

enum { COUNT, RECENT, PAGES };           /* variables */
enum { KEY, VISITS, LAST };              /* fields of a page's entry */
enum { USER, EVENT, SEEN, LATELY, HOW_MANY }; /* columns that come out */

/* The version before had no time. */
static void migrate_page(pelton_row *entry) {
    pelton_put_long(entry, VISITS, pelton_get_long(entry, VISITS));
}

static const char *const by_page[] = {"page"};
static const pelton_variable variables[] = {
    {.name = "count", .kind = PELTON_VALUE, .values = number, .value_count = 1, .version = 1},
    {.name = "recent", .kind = PELTON_LIST, .values = text, .value_count = 1, .version = 1, .load = PELTON_LOAD_LAST, .last = 2},
    {.name = "pages", .kind = PELTON_MAP, .keys = page_key, .key_count = 1, .values = page, .value_count = 2, .version = 2,
     .ttl_ms = 86400000, .load = PELTON_LOAD_KEYED_BY, .columns = by_page, .old_version = 1, .old_values = page_before,
     .old_value_count = 1, .migrate = migrate_page},
};

/* The pages of a call: those that were given, and those that its rows add. */
#define PAGES_MAX 256u
static struct {
    pelton_text key[PAGES_MAX];
    int64_t visits[PAGES_MAX];
    bool is_there[PAGES_MAX];
    uint32_t count;
} pages;

static uint32_t find_page(pelton_group *group, pelton_text key) {
    uint32_t at = 0;
    while (at < pages.count && !pelton_same(pages.key[at], key)) at++;
    if (at == PAGES_MAX) {
        pelton_fail_call(group, pelton_string("a user has visited more pages at a time than this plugin can count"));
        return 0;
    }
    if (at == pages.count) {
        pages.key[at] = key, pages.visits[at] = 0, pages.is_there[at] = false;
        pages.count++;
    }
    return at;
}

static void visit_page(pelton_group *group, pelton_text key, int64_t time) {
    uint32_t at = find_page(group, key);
    pages.visits[at]++;
    pages.is_there[at] = true;
    pelton_put_text(group->entries[PAGES], KEY, key);
    pelton_put_long(group->entries[PAGES], VISITS, pages.visits[at]);
    pelton_put_long(group->entries[PAGES], LAST, time);
    pelton_put_entry(group, PAGES);
}

static void forget_page(pelton_group *group, pelton_text key) {
    pages.is_there[find_page(group, key)] = false;
    pelton_put_text(group->removals[PAGES], KEY, key);
    pelton_remove_entry(group, PAGES);
}

/* Adds to the pages that come out. */
static void add_recent(pelton_group *group, pelton_text key, bool *is_first) {
    if (!*is_first) pelton_append_text(group->row, LATELY, pelton_string(","));
    pelton_append_text(group->row, LATELY, key);
    *is_first = false;
}

#define MINUTE_MICROS (60 * 1000000LL)

static void visits(pelton_group *group) {
    pelton_text logout = pelton_string("logout"), login = pelton_string("login"), goodbye = pelton_string("goodbye");
    pelton_text forget = pelton_string("forget"), empty = {"", 0};
    pelton_timer timer;
    bool is_fired = pelton_fired(group, &timer), is_first = true;
    bool forgets = is_fired && pelton_same(timer.name, forget);
    int64_t count = 0, now = pelton_get_clock().processing_time;
    if (pelton_next_entry(group, COUNT)) count = pelton_get_long(group->entries[COUNT], 0);
    pages.count = 0;
    while (pelton_next_entry(group, PAGES)) {
        uint32_t at = find_page(group, pelton_get_text(group->entries[PAGES], KEY));
        pages.visits[at] = pelton_get_long(group->entries[PAGES], VISITS);
        pages.is_there[at] = true;
    }
    pelton_put_text(group->row, LATELY, empty);
    while (pelton_next_entry(group, RECENT) && !forgets)
        add_recent(group, pelton_get_text(group->entries[RECENT], 0), &is_first);
    while (pelton_next_row(group)) {
        pelton_text key = pelton_get_text(group->row, 0);
        count++;
        pelton_put_text(group->entries[RECENT], 0, key);
        pelton_put_entry(group, RECENT);
        add_recent(group, key, &is_first);
        visit_page(group, key, pelton_get_long(group->row, 1));
        pelton_put_long(group->entries[COUNT], 0, count);
        pelton_put_entry(group, COUNT);
        if (pelton_same(key, logout)) {
            forget_page(group, login);
            pelton_delete_timer(group, goodbye);
        }
    }
    if (!is_fired) {
        pelton_set_timer(group, goodbye, now + 10 * MINUTE_MICROS);
        pelton_set_timer(group, forget, now + 24 * 60 * MINUTE_MICROS);
    }
    if (forgets) {
        pelton_clear_entries(group, COUNT);
        pelton_clear_entries(group, RECENT);
        pelton_clear_entries(group, PAGES);
        count = pages.count = 0;
    }
    int64_t there = 0;
    for (uint32_t i = 0; i < pages.count; i++) there += pages.is_there[i];
    pelton_put_text(group->row, USER, pelton_get_text(group->key, 0));
    pelton_put_text(group->row, EVENT, is_fired ? timer.name : pelton_string("visit"));
    pelton_put_long(group->row, SEEN, count);
    pelton_put_long(group->row, HOW_MANY, there);
    pelton_emit(group->row);
}

static const pelton_group_function groups[] = {
    {.name = "visits", .form = PELTON_PROCESSOR, .doc = "Visits of users: how many, the last pages, each page.",
     .timeout = PELTON_PROCESSING_TIME, .keys = user, .key_count = 1, .inputs = visit, .input_count = 2, .outputs = shown,
     .output_count = 5, .call = visits, .variables = variables, .variable_count = PELTON_COUNT(variables)},
};
PELTON_GROUPS_PLUGIN("visits", "0.1.0", groups)
