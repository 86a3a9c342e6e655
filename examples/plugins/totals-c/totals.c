/* What each carrier's flights come to, and since when none came: a count and a sum for each group, kept by the host, in
 * freestanding C. */
#include "pelton_groups.h"

static const pelton_field carrier[] = {{"carrier", PELTON_STRING, PELTON_NULLABLE}};
static const pelton_field flight[] = {
    {"dep_delay", PELTON_DOUBLE, PELTON_NULLABLE},
    {"time_hour", PELTON_TIMESTAMP, PELTON_NOT_NULL},
};
static const pelton_field kept[] = {
    {"flights", PELTON_LONG, PELTON_NOT_NULL},
    {"minutes", PELTON_DOUBLE, PELTON_NOT_NULL},
    {"last", PELTON_TIMESTAMP, PELTON_NOT_NULL},
};
static const pelton_field shown[] = {
    {"carrier", PELTON_STRING, PELTON_NULLABLE}, {"flights", PELTON_LONG, PELTON_NOT_NULL},
    {"minutes", PELTON_DOUBLE, PELTON_NOT_NULL}, {"is_over", PELTON_BOOLEAN, PELTON_NOT_NULL},
};

/* A carrier is over when the watermark has passed its last flight by six hours. */
#define QUIET_MICROS (6 * 3600 * 1000000LL)

static void totals(pelton_group *group) {
    enum { FLIGHTS, MINUTES, LAST };
    int64_t flights = pelton_get_long(group->state, FLIGHTS), last = pelton_get_long(group->state, LAST);
    double minutes = pelton_get_double(group->state, MINUTES);
    while (pelton_next_row(group)) {
        flights++;
        minutes += pelton_get_double(group->row, 0);
        int64_t time = pelton_get_long(group->row, 1);
        last = time > last ? time : last;
    }
    bool is_over = pelton_has_timed_out(group);
    if (is_over) {
        pelton_remove_state(group);
    } else {
        pelton_put_long(group->state, FLIGHTS, flights);
        pelton_put_double(group->state, MINUTES, minutes);
        pelton_put_long(group->state, LAST, last);
        pelton_update_state(group);
        pelton_set_timeout(group, last + QUIET_MICROS);
    }
    if (!pelton_is_null(group->key, 0)) pelton_put_text(group->row, 0, pelton_get_text(group->key, 0));
    pelton_put_long(group->row, 1, flights);
    pelton_put_double(group->row, 2, minutes);
    pelton_put_long(group->row, 3, is_over);
    pelton_emit(group->row);
}

static const pelton_group_function groups[] = {
    {"totals", PELTON_MAP_GROUPS, "Flights and minutes of delay of each carrier.", PELTON_EVENT_TIME,
     PELTON_FIELDS(carrier), PELTON_FIELDS(flight), PELTON_FIELDS(kept), 1, PELTON_FIELDS(shown), totals},
};
PELTON_GROUPS_PLUGIN("totals", "0.1.0", groups)
