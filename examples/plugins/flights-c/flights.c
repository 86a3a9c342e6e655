/* Flights as departures and arrivals: the example plugin of ../flights-rust once more, in freestanding C. */
#include "pelton.h"

/* A flight that left more than 15 minutes late; a cancelled one (null) is not delayed. */
static const pelton_field delay[] = {{"dep_delay", PELTON_DOUBLE, PELTON_NULLABLE}};
static const pelton_field delayed[] = {{"is_delayed", PELTON_BOOLEAN, PELTON_NULLABLE}};

static void is_delayed(pelton_row *row) {
    pelton_put_long(row, 0, !pelton_is_null(row, 0) && pelton_get_double(row, 0) > 15);
}

/* A flight's name and route as shown on a board. */
static const pelton_field connection[] = {
    {"carrier", PELTON_STRING, PELTON_NOT_NULL},
    {"flight", PELTON_LONG, PELTON_NOT_NULL},
    {"origin", PELTON_STRING, PELTON_NOT_NULL},
    {"dest", PELTON_STRING, PELTON_NOT_NULL},
};
static const pelton_field shown[] = {
    {"flight", PELTON_STRING, PELTON_NOT_NULL},
    {"route", PELTON_STRING, PELTON_NOT_NULL},
};

static void board(pelton_row *row) {
    enum { CARRIER, FLIGHT, ORIGIN, DEST };
    enum { NAME, ROUTE };
    pelton_text carrier = pelton_get_text(row, CARRIER);
    for (uint32_t i = 0; i < carrier.length; i++) {
        char c = carrier.bytes[i];
        if (c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
        pelton_append_text(row, NAME, (pelton_text){&c, 1});
    }
    pelton_append_long(row, NAME, pelton_get_long(row, FLIGHT));
    pelton_put_text(row, ROUTE, pelton_get_text(row, ORIGIN));
    pelton_append_text(row, ROUTE, pelton_string("-"));
    pelton_append_text(row, ROUTE, pelton_get_text(row, DEST));
    pelton_emit(row);
}

/* A departure and an arrival of each flight. */
static const pelton_field flight[] = {
    {"carrier", PELTON_STRING, PELTON_NOT_NULL},
    {"flight", PELTON_LONG, PELTON_NOT_NULL},
    {"origin", PELTON_STRING, PELTON_NOT_NULL},
    {"dest", PELTON_STRING, PELTON_NOT_NULL},
    {"dep_time", PELTON_INT, PELTON_NULLABLE},
    {"dep_delay", PELTON_DOUBLE, PELTON_NULLABLE},
    {"arr_time", PELTON_INT, PELTON_NULLABLE},
    {"arr_delay", PELTON_DOUBLE, PELTON_NULLABLE},
    {"time_hour", PELTON_TIMESTAMP, PELTON_NOT_NULL},
};
enum { CARRIER, FLIGHT, ORIGIN, DEST, DEP_TIME, DEP_DELAY, ARR_TIME, ARR_DELAY, TIME_HOUR };
static const pelton_field event[] = {
    {"carrier", PELTON_STRING, PELTON_NOT_NULL}, {"flight", PELTON_LONG, PELTON_NOT_NULL},
    {"airport", PELTON_STRING, PELTON_NOT_NULL}, {"event", PELTON_STRING, PELTON_NOT_NULL},
    {"minute", PELTON_INT, PELTON_NOT_NULL},     {"delay", PELTON_DOUBLE, PELTON_NULLABLE},
    {"time_hour", PELTON_TIMESTAMP, PELTON_NOT_NULL},
};

/* Emits one event; refuses a clock time like 1260 (517 is 05:17, 2400 the midnight that ends the day). */
static bool emit_event(pelton_row *row, const char *name, uint32_t airport, uint32_t time_at, uint32_t delay_at) {
    int64_t time = pelton_get_long(row, time_at);
    if (time < 0 || time > 2400 || time % 100 > 59) {
        pelton_refuse(row);
        pelton_reason(row, pelton_string(flight[time_at].name));
        pelton_reason(row, pelton_string(" "));
        pelton_reason_long(row, time);
        pelton_reason(row, pelton_string(" is no time of day"));
        return false;
    }
    pelton_put_text(row, 0, pelton_get_text(row, CARRIER));
    pelton_put_long(row, 1, pelton_get_long(row, FLIGHT));
    pelton_put_text(row, 2, pelton_get_text(row, airport));
    pelton_put_text(row, 3, pelton_string(name));
    pelton_put_long(row, 4, time / 100 * 60 + time % 100);
    if (!pelton_is_null(row, delay_at)) pelton_put_double(row, 5, pelton_get_double(row, delay_at));
    pelton_put_long(row, 6, pelton_get_long(row, TIME_HOUR));
    pelton_emit(row);
    return true;
}

static void events(pelton_row *row) {
    if (!pelton_is_null(row, DEP_TIME) && !emit_event(row, "departure", ORIGIN, DEP_TIME, DEP_DELAY)) return;
    if (pelton_is_null(row, ARR_TIME) || !emit_event(row, "arrival", DEST, ARR_TIME, ARR_DELAY)) return;
    if (pelton_is_null(row, ARR_DELAY)) {
        pelton_refuse(row);
        pelton_reason(row, pelton_string("arr_time without arr_delay: the flight was diverted"));
    }
}

static const pelton_function functions[] = {
    {"is_delayed", PELTON_SCALAR, "A flight that left more than 15 minutes late.", PELTON_FIELDS(delay),
     PELTON_FIELDS(delayed), is_delayed},
    {"board", PELTON_TRANSFORM, "Names a flight and its route as a board does.", PELTON_FIELDS(connection),
     PELTON_FIELDS(shown), board},
    {"events", PELTON_TRANSFORM, "Makes a departure and an arrival of each flight.", PELTON_FIELDS(flight),
     PELTON_FIELDS(event), events},
};
PELTON_PLUGIN("flights", "0.1.0", functions)
