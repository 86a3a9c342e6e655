/* The interface `stateful`, in the canonical ABI by hand. Included by pelton_groups.h; not for use by hand.
 *
 * Keys, rows and the entries of each variable are tables that the codec of pelton_runtime.h reads and writes. The one
 * state of a function without variables is a variable, too: its name is `state`.
 */
#ifndef PELTON_GROUPS_RUNTIME_H
#define PELTON_GROUPS_RUNTIME_H

/* What is read and written of a variable. */
typedef struct {
    pelton_field fields[PELTON_COLUMNS_MAX]; /* the key's, then the value's */
    uint32_t field_count;
    pelton_row entry, removal;
    pelton_bytes offsets;
    uint32_t end; /* of the group's entries */
    pelton_buffer changed, actions;
} pelton_kept;

static struct {
    const pelton_group_function *function;
    const pelton_variable *variables;
    uint32_t variable_count;
    pelton_variable state; /* as a variable */
    pelton_function tables[2 + 2 * PELTON_VARIABLES_MAX]; /* what the codec needs to know */
    pelton_row key, row;
    pelton_kept kept[PELTON_VARIABLES_MAX];
    uint32_t group, row_end;
    bool has_timed_out, has_state, has_failed;
    pelton_bytes fired, pending; /* timers, 24 bytes each */
    uint32_t next_pending;
    pelton_buffer failure, timeouts, timers;
} pelton_grouped;

static void pelton_group_texts(uint32_t at, pelton_text *name, pelton_text *doc) {
    *name = pelton_string(pelton_this.groups[at].name);
    *doc = pelton_string(pelton_this.groups[at].doc);
}

/* --- what functions use --- */

PELTON_INTERNAL bool pelton_next_row(pelton_group *group) {
    pelton_row *row = group->row;
    while (++row->at < pelton_grouped.row_end) {
        uint32_t column = 0, count = row->function->input_count;
        while (column < count && !(row->function->inputs[column].nullable == PELTON_NOT_NULL && pelton_is_null(row, column)))
            column++;
        if (column == count) return true;
        pelton_buffer reason = {0};
        pelton_append(&reason, "column '", 8);
        pelton_text name = pelton_string(row->function->inputs[column].name);
        pelton_append(&reason, name.bytes, name.length);
        pelton_append(&reason, "' is null", 9);
        pelton_refuse_row(group, (pelton_text){(const char *)reason.bytes, reason.length});
    }
    row->at = pelton_grouped.row_end - 1;
    return false;
}

PELTON_INTERNAL bool pelton_has_state(const pelton_group *group) {
    (void)group;
    return pelton_grouped.has_state;
}
PELTON_INTERNAL bool pelton_has_timed_out(const pelton_group *group) {
    (void)group;
    return pelton_grouped.has_timed_out;
}

PELTON_INTERNAL void pelton_note_change(uint32_t variable, uint8_t action) {
    pelton_kept *kept = &pelton_grouped.kept[variable];
    pelton_append(&kept->changed, &pelton_grouped.group, 4);
    pelton_append(&kept->actions, &action, 1);
}
PELTON_INTERNAL bool pelton_next_entry(pelton_group *group, uint32_t variable) {
    pelton_row *entry = group->entries[variable];
    if (entry->at + 1 < pelton_grouped.kept[variable].end) return ++entry->at, true;
    return false;
}
PELTON_INTERNAL void pelton_put_entry(pelton_group *group, uint32_t variable) {
    pelton_emit(group->entries[variable]);
    pelton_note_change(variable, 0);
}
PELTON_INTERNAL void pelton_remove_entry(pelton_group *group, uint32_t variable) {
    pelton_emit(group->removals[variable]);
    pelton_note_change(variable, 1);
}
PELTON_INTERNAL void pelton_clear_entries(pelton_group *group, uint32_t variable) {
    (void)group;
    pelton_note_change(variable, 2);
}
PELTON_INTERNAL void pelton_update_state(pelton_group *group) { pelton_put_entry(group, 0); }
PELTON_INTERNAL void pelton_remove_state(pelton_group *group) { pelton_clear_entries(group, 0); }

PELTON_INTERNAL uint32_t pelton_timer_at(pelton_bytes timers, uint32_t at, pelton_timer *timer) {
    uint32_t words[3];
    __builtin_memcpy(words, timers.bytes + 24 * at, 12);
    timer->name = (pelton_text){(const char *)(uintptr_t)words[1], words[2]};
    __builtin_memcpy(&timer->at, timers.bytes + 24 * at + 16, 8);
    return words[0];
}
PELTON_INTERNAL bool pelton_fired(const pelton_group *group, pelton_timer *timer) {
    (void)group;
    return pelton_grouped.fired.length && (pelton_timer_at(pelton_grouped.fired, pelton_grouped.group, timer), true);
}
/* They come by group. */
PELTON_INTERNAL bool pelton_next_timer(pelton_group *group, pelton_timer *timer) {
    (void)group;
    for (; pelton_grouped.next_pending < pelton_grouped.pending.length; pelton_grouped.next_pending++) {
        uint32_t of = pelton_timer_at(pelton_grouped.pending, pelton_grouped.next_pending, timer);
        if (of > pelton_grouped.group) return false;
        if (of == pelton_grouped.group) return pelton_grouped.next_pending++, true;
    }
    return false;
}
PELTON_INTERNAL void pelton_change_timer(pelton_text name, bool is_set, int64_t at) {
    uint8_t *copy = pelton_allocate(name.length ? name.length : 1);
    __builtin_memcpy(copy, name.bytes, name.length);
    const uint32_t words[6] = {pelton_grouped.group, (uint32_t)(uintptr_t)copy, name.length, 0, is_set, 0};
    pelton_append(&pelton_grouped.timers, words, sizeof words);
    pelton_append(&pelton_grouped.timers, &at, 8);
}
PELTON_INTERNAL void pelton_set_timer(pelton_group *group, pelton_text name, int64_t at) {
    (void)group;
    pelton_change_timer(name, true, at);
}
PELTON_INTERNAL void pelton_delete_timer(pelton_group *group, pelton_text name) {
    (void)group;
    pelton_change_timer(name, false, 0);
}

/* A group's timeout is noted once; the last time counts. */
PELTON_INTERNAL void pelton_set_timeout(pelton_group *group, int64_t at) {
    (void)group;
    pelton_buffer *timeouts = &pelton_grouped.timeouts;
    uint32_t last = 0;
    if (timeouts->length) __builtin_memcpy(&last, timeouts->bytes + timeouts->length - 16, 4);
    if (timeouts->length && last == pelton_grouped.group) timeouts->length -= 16;
    const uint32_t head[2] = {pelton_grouped.group, 0};
    pelton_append(timeouts, head, 8);
    pelton_append(timeouts, &at, 8);
}

PELTON_INTERNAL void pelton_refuse_row(pelton_group *group, pelton_text reason) {
    pelton_row *row = group->row;
    uint32_t noted[3] = {row->at, row->reason.length, reason.length};
    pelton_append(&row->reason, reason.bytes, reason.length);
    pelton_append(&row->rejected, noted, sizeof noted);
}

PELTON_INTERNAL void pelton_fail_call(pelton_group *group, pelton_text message) {
    (void)group;
    pelton_grouped.has_failed = true;
    pelton_grouped.failure.length = 0;
    pelton_append(&pelton_grouped.failure, message.bytes, message.length);
}

/* --- opening --- */

PELTON_INTERNAL void pelton_table_of(uint32_t at, pelton_row *row, const pelton_field *inputs, uint32_t input_count,
                                     const pelton_field *outputs, uint32_t output_count) {
    pelton_function table = {"", PELTON_TRANSFORM, "", inputs, input_count, outputs, output_count, NULL};
    pelton_grouped.tables[at] = table;
    row->function = &pelton_grouped.tables[at];
}

/* The columns that the host will hand in: those that are inputs, in the schema's order. */
PELTON_INTERNAL uint32_t *pelton_match_reads(pelton_row *row, const pelton_table *schema, pelton_buffer *names) {
    uint32_t nodes = 0, buffers = 0, count = pelton_slot_count(schema, 1, 4), input_count = row->function->input_count;
    uint64_t found = 0;
    for (uint32_t at = 0; at < count; at++) {
        pelton_table field = pelton_entry_table(schema, 1, at);
        pelton_text name = pelton_slot_text(&field, 0);
        for (uint32_t i = 0; i < input_count; i++) {
            if (!pelton_same(pelton_string(row->function->inputs[i].name), name)) continue;
            uint32_t *failure = pelton_take_column(row, i, &field, nodes, buffers);
            if (failure) return failure;
            found |= 1ull << i;
            pelton_text kept = pelton_string(row->function->inputs[i].name);
            uint32_t words[2] = {(uint32_t)(uintptr_t)kept.bytes, kept.length};
            pelton_append(names, words, sizeof words);
            pelton_measure(&field, 0, &nodes, &buffers);
        }
    }
    for (uint32_t i = 0; i < input_count; i++)
        if (!(found >> i & 1))
            return PELTON_FAIL(0, pelton_string(row->function->inputs[i].name), "there is no column '", "%", "'");
    return NULL;
}

/* Entries come as they were written. */
PELTON_INTERNAL void pelton_match_entries(pelton_row *row) {
    static const uint8_t layouts[] = {PELTON_BITS, PELTON_I32,   PELTON_I64,  PELTON_F64,
                                      PELTON_UTF8, PELTON_BYTES, PELTON_DAYS, PELTON_MICROS};
    uint32_t buffer = 0;
    for (uint32_t i = 0; i < row->function->input_count; i++) {
        pelton_type type = row->function->inputs[i].type;
        pelton_column column = {.layout = (pelton_layout)layouts[type], .node = i, .buffer = buffer};
        row->inputs[i] = column;
        buffer += type == PELTON_STRING || type == PELTON_BINARY ? 3 : 2;
    }
}

/* Makes tables of a variable, and writes what it is: 64 bytes. */
PELTON_INTERNAL void pelton_open_variable(uint32_t at, uint8_t *out) {
    static const uint32_t loads[] = {1, 0, 2, 3};
    const pelton_variable *variable = &pelton_grouped.variables[at];
    pelton_kept *kept = &pelton_grouped.kept[at];
    kept->field_count = variable->key_count + variable->value_count;
    __builtin_memcpy(kept->fields, variable->keys, variable->key_count * sizeof *kept->fields);
    __builtin_memcpy(kept->fields + variable->key_count, variable->values, variable->value_count * sizeof *kept->fields);
    pelton_table_of(2 + 2 * at, &kept->entry, kept->fields, kept->field_count, kept->fields, kept->field_count);
    pelton_table_of(3 + 2 * at, &kept->removal, NULL, 0, kept->fields, variable->key_count);
    pelton_match_entries(&kept->entry);
    pelton_text name = pelton_string(variable->name);
    pelton_buffer value = pelton_write_schema(variable->values, variable->value_count, false), key = {0};
    if (variable->key_count) key = pelton_write_schema(variable->keys, variable->key_count, false);
    uint32_t words[16] = {
        (uint32_t)(uintptr_t)name.bytes, name.length, (uint32_t)variable->kind,
        key.length ? (uint32_t)(uintptr_t)key.bytes : PELTON_ALIGN, key.length,
        (uint32_t)(uintptr_t)value.bytes, value.length, variable->version, variable->ttl_ms != 0,
        0, 0, 0, loads[variable->load], variable->last, 0, 0,
    };
    __builtin_memcpy(words + 10, &variable->ttl_ms, 8);
    if (variable->load == PELTON_LOAD_KEYED_BY) {
        pelton_buffer columns = {0};
        for (uint32_t i = 0; i < variable->key_count; i++) {
            pelton_text column = pelton_string(variable->columns[i]);
            const uint32_t place[2] = {(uint32_t)(uintptr_t)column.bytes, column.length};
            pelton_append(&columns, place, sizeof place);
        }
        words[13] = (uint32_t)(uintptr_t)columns.bytes, words[14] = variable->key_count;
    }
    __builtin_memcpy(out, words, sizeof words);
}

/* The variables of a function: its own, or its one state. */
PELTON_INTERNAL void pelton_find_variables(const pelton_group_function *function) {
    pelton_variable state = {.name = "state", .kind = PELTON_VALUE, .values = function->state,
                             .value_count = function->state_count, .version = function->state_version};
    pelton_grouped.state = state;
    bool has_own = function->variable_count != 0;
    pelton_grouped.variables = has_own ? function->variables : &pelton_grouped.state;
    pelton_grouped.variable_count = has_own ? function->variable_count : function->state_count != 0;
}

PELTON_INTERNAL uint32_t *pelton_open_group(const pelton_group_function *function, pelton_bytes key, pelton_bytes input) {
    pelton_bytes body;
    pelton_text nothing = {"", 0};
    pelton_table keys = pelton_header(key, PELTON_HEADER_SCHEMA, &body);
    pelton_table rows = pelton_header(input, PELTON_HEADER_SCHEMA, &body);
    if (!keys.at || !rows.at) return PELTON_FAIL(1, nothing, "the Arrow schema message is malformed");
    pelton_grouped.function = function;
    pelton_find_variables(function);
    pelton_table_of(0, &pelton_grouped.key, function->keys, function->key_count, NULL, 0);
    pelton_table_of(1, &pelton_grouped.row, function->inputs, function->input_count, function->outputs,
                    function->output_count);
    pelton_buffer names = {0};
    uint32_t *failure = pelton_match(&pelton_grouped.key, &keys);
    if (!failure) failure = pelton_match_reads(&pelton_grouped.row, &rows, &names);
    if (failure) return failure;
    pelton_buffer output = pelton_write_schema(function->outputs, function->output_count, false);
    uint32_t count = pelton_grouped.variable_count;
    uint8_t *variables = pelton_allocate(64 * count + 1);
    for (uint32_t at = 0; at < count; at++) pelton_open_variable(at, variables + 64 * at);
    const uint32_t words[9] = {
        0, (uint32_t)function->form | (uint32_t)function->timeout << 8,
        (uint32_t)(uintptr_t)output.bytes, output.length,
        1, names.length ? (uint32_t)(uintptr_t)names.bytes : PELTON_ALIGN, names.length / 8,
        (uint32_t)(uintptr_t)variables, count,
    };
    __builtin_memcpy(pelton_area, words, sizeof words);
    pelton_heap.kept = pelton_heap.next;
    pelton_heap.call_is_over = true;
    return pelton_area;
}

/* --- a call --- */

/* A list that is described at this place: its pointer and its length. */
PELTON_INTERNAL pelton_bytes pelton_given(const uint8_t *at) {
    uint32_t words[2];
    __builtin_memcpy(words, at, 8);
    return (pelton_bytes){(const uint8_t *)(uintptr_t)words[0], words[1]};
}

PELTON_INTERNAL uint32_t pelton_offset(pelton_bytes offsets, uint32_t at) {
    uint32_t offset;
    __builtin_memcpy(&offset, offsets.bytes + 4 * at, 4);
    return offset;
}

/* One more than there are groups, never falling, within the rows. */
PELTON_INTERNAL bool pelton_fits(pelton_bytes offsets, uint32_t groups, uint32_t rows) {
    if (offsets.length != groups + 1) return false;
    for (uint32_t i = 0; i < groups; i++)
        if (pelton_offset(offsets, i) > pelton_offset(offsets, i + 1)) return false;
    return pelton_offset(offsets, groups) <= rows;
}

/* Calls the function for the one state. Without one its fields read as null. */
PELTON_INTERNAL void pelton_call_with_state(pelton_group *group) {
    static const uint8_t all_null[1] = {0};
    pelton_row *state = group->state;
    pelton_grouped.has_state = pelton_grouped.variable_count && state->at + 1 < pelton_grouped.kept[0].end;
    if (pelton_grouped.has_state) {
        state->at++;
        pelton_grouped.function->call(group);
        return;
    }
    const uint8_t *kept[PELTON_COLUMNS_MAX];
    uint32_t count = pelton_grouped.variable_count ? state->function->input_count : 0;
    for (uint32_t i = 0; i < count; i++) kept[i] = state->inputs[i].validity, state->inputs[i].validity = all_null;
    state->at = 0;
    pelton_grouped.function->call(group);
    for (uint32_t i = 0; i < count; i++) state->inputs[i].validity = kept[i];
}

PELTON_INTERNAL void pelton_call_groups(uint32_t groups, pelton_bytes offsets) {
    pelton_group group = {.key = &pelton_grouped.key, .row = &pelton_grouped.row, .state = &pelton_grouped.kept[0].entry};
    for (uint32_t i = 0; i < PELTON_VARIABLES_MAX; i++)
        group.entries[i] = &pelton_grouped.kept[i].entry, group.removals[i] = &pelton_grouped.kept[i].removal;
    for (uint32_t at = 0; at < groups && !pelton_grouped.has_failed; at++) {
        pelton_grouped.group = at;
        pelton_grouped.key.at = at;
        pelton_grouped.row.at = pelton_offset(offsets, at) - 1;
        pelton_grouped.row_end = pelton_offset(offsets, at + 1);
        for (uint32_t i = 0; i < pelton_grouped.variable_count; i++) {
            pelton_kept *kept = &pelton_grouped.kept[i];
            kept->entry.at = pelton_offset(kept->offsets, at) - 1;
            kept->end = pelton_offset(kept->offsets, at + 1);
        }
        if (pelton_grouped.function->form == PELTON_PROCESSOR) pelton_grouped.function->call(&group);
        else pelton_call_with_state(&group);
    }
}

PELTON_INTERNAL uint32_t *pelton_answer_groups(void) {
    pelton_row *row = &pelton_grouped.row;
    uint32_t rejected = pelton_finish_rejected(row), count = pelton_grouped.variable_count;
    pelton_buffer rows = pelton_write_batch(row);
    uint8_t *changes = pelton_allocate(32 * count + 1);
    for (uint32_t i = 0; i < count; i++) {
        pelton_kept *kept = &pelton_grouped.kept[i];
        pelton_buffer put = {0}, removed = {0};
        if (kept->entry.emitted) put = pelton_write_batch(&kept->entry);
        if (kept->removal.emitted) removed = pelton_write_batch(&kept->removal);
        const uint32_t change[8] = {
            (uint32_t)(uintptr_t)kept->changed.bytes, kept->changed.length / 4,
            (uint32_t)(uintptr_t)kept->actions.bytes, kept->actions.length,
            (uint32_t)(uintptr_t)put.bytes, put.length, (uint32_t)(uintptr_t)removed.bytes, removed.length,
        };
        __builtin_memcpy(changes + 32 * i, change, sizeof change);
    }
    const uint32_t words[11] = {
        0, (uint32_t)(uintptr_t)rows.bytes, rows.length,
        (uint32_t)(uintptr_t)row->rejected.bytes, rejected,
        (uint32_t)(uintptr_t)changes, count,
        (uint32_t)(uintptr_t)pelton_grouped.timeouts.bytes, pelton_grouped.timeouts.length / 16,
        (uint32_t)(uintptr_t)pelton_grouped.timers.bytes, pelton_grouped.timers.length / 32,
    };
    __builtin_memcpy(pelton_area, words, sizeof words);
    pelton_heap.call_is_over = true;
    return pelton_area;
}

/* Finds the entries of each variable; false if they are malformed. */
PELTON_INTERNAL bool pelton_bind_state(pelton_bytes state, uint32_t groups) {
    if (state.length != pelton_grouped.variable_count) return false;
    for (uint32_t i = 0; i < state.length; i++) {
        pelton_kept *kept = &pelton_grouped.kept[i];
        uint32_t stored;
        kept->offsets = pelton_given(state.bytes + 16 * i + 8);
        if (!pelton_bind(&kept->entry, pelton_given(state.bytes + 16 * i), &stored) ||
            !pelton_fits(kept->offsets, groups, stored))
            return false;
        pelton_begin(&kept->entry);
        pelton_begin(&kept->removal);
        kept->changed = kept->actions = (pelton_buffer){0};
    }
    return true;
}

PELTON_INTERNAL bool pelton_are_timers(pelton_bytes timers, uint32_t groups) {
    pelton_timer timer;
    for (uint32_t i = 0; i < timers.length; i++)
        if (pelton_timer_at(timers, i, &timer) >= groups) return false;
    return true;
}

/* --- migration --- */

PELTON_INTERNAL void pelton_copy_column(pelton_row *row, uint32_t column) {
    pelton_type type = row->function->outputs[column].type;
    if (pelton_is_null(row, column)) return;
    if (type == PELTON_STRING || type == PELTON_BINARY) pelton_put_text(row, column, pelton_get_text(row, column));
    else if (type == PELTON_DOUBLE) pelton_put_double(row, column, pelton_get_double(row, column));
    else pelton_put_long(row, column, pelton_get_long(row, column));
}

/* Entries of the version before, one after the other. */
PELTON_INTERNAL uint32_t *pelton_migrate_entries(uint32_t at, pelton_bytes old, pelton_bytes entries) {
    static pelton_field fields[PELTON_COLUMNS_MAX];
    static pelton_function table;
    static pelton_row row;
    const pelton_variable *variable = &pelton_grouped.variables[at];
    const pelton_kept *kept = &pelton_grouped.kept[at];
    pelton_text nothing = {"", 0};
    __builtin_memcpy(fields, variable->keys, variable->key_count * sizeof *fields);
    __builtin_memcpy(fields + variable->key_count, variable->old_values, variable->old_value_count * sizeof *fields);
    const pelton_function of = {"", PELTON_TRANSFORM, "", fields, variable->key_count + variable->old_value_count,
                                kept->fields, kept->field_count, NULL};
    table = of;
    row.function = &table;
    pelton_bytes body;
    pelton_table schema = pelton_header(old, PELTON_HEADER_SCHEMA, &body);
    if (!schema.at) return PELTON_FAIL(1, nothing, "the Arrow schema message is malformed");
    uint32_t *failure = pelton_match(&row, &schema), count;
    if (failure) return failure;
    if (!pelton_bind(&row, entries, &count)) return PELTON_FAIL(1, nothing, "the older entries are malformed");
    pelton_begin(&row);
    for (row.at = 0; row.at < count; row.at++) {
        for (uint32_t i = 0; i < variable->key_count; i++) pelton_copy_column(&row, i);
        variable->migrate(&row);
        pelton_emit(&row);
    }
    pelton_buffer message = pelton_write_batch(&row);
    return pelton_done(0, (uint32_t)(uintptr_t)message.bytes, message.length, 0, 0);
}

/* --- exports --- */

__attribute__((export_name("pelton:plugin/stateful@0.1.0#open"))) uint32_t *
pelton_open_stateful(const char *name, uint32_t name_length, const char *config, uint32_t config_length,
                     const uint8_t *key, uint32_t key_length, const uint8_t *input, uint32_t input_length) {
    pelton_text wanted = {name, name_length};
    const pelton_group_function *function = NULL;
    for (uint32_t i = 0; i < pelton_this.group_count; i++)
        if (pelton_same(pelton_string(pelton_this.groups[i].name), wanted)) function = &pelton_this.groups[i];
    if (!function) return PELTON_FAIL(0, wanted, "there is no stateful function '", "%", "'");
    if (function->key_count > PELTON_COLUMNS_MAX || function->input_count > PELTON_COLUMNS_MAX ||
        function->state_count > PELTON_COLUMNS_MAX || function->output_count > PELTON_COLUMNS_MAX)
        return PELTON_FAIL(0, wanted, "the function '", "%", "' has more than 64 columns");
    if (function->variable_count > PELTON_VARIABLES_MAX)
        return PELTON_FAIL(0, wanted, "the function '", "%", "' has more than 8 variables");
    for (uint32_t i = 0; i < function->variable_count; i++)
        if (function->variables[i].key_count + function->variables[i].value_count > PELTON_COLUMNS_MAX)
            return PELTON_FAIL(0, wanted, "a variable of the function '", "%", "' has more than 64 fields");
    pelton_current_config = (pelton_text){config, config_length};
    return pelton_open_group(function, (pelton_bytes){key, key_length}, (pelton_bytes){input, input_length});
}

__attribute__((export_name("pelton:plugin/stateful@0.1.0#process"))) uint32_t *
pelton_process_groups(const uint8_t *call) {
    pelton_text nothing = {"", 0};
    if (!pelton_grouped.function) return PELTON_FAIL(1, nothing, "no stateful function is open on this instance");
    __builtin_memcpy(&pelton_current_clock.batch_id, call, 8);
    __builtin_memcpy(&pelton_current_clock.processing_time, call + 8, 8);
    pelton_current_clock.has_watermark = call[16] != 0;
    __builtin_memcpy(&pelton_current_clock.watermark, call + 24, 8);
    __builtin_memcpy(&pelton_current_clock.seed, call + 32, 8);
    pelton_grouped.has_timed_out = call[40] == 1;
    pelton_bytes offsets = pelton_given(call + 60);
    pelton_grouped.fired = pelton_given(call + 76);
    pelton_grouped.pending = pelton_given(call + 84);
    pelton_grouped.next_pending = 0;
    uint32_t groups, rows;
    bool readable = pelton_bind(&pelton_grouped.key, pelton_given(call + 44), &groups) &&
                    pelton_bind(&pelton_grouped.row, pelton_given(call + 52), &rows) &&
                    pelton_fits(offsets, groups, rows) && pelton_bind_state(pelton_given(call + 68), groups) &&
                    (!pelton_grouped.fired.length || pelton_grouped.fired.length == groups) &&
                    pelton_are_timers(pelton_grouped.fired, groups) && pelton_are_timers(pelton_grouped.pending, groups);
    if (!readable) return PELTON_FAIL(1, nothing, "the groups of the call are malformed");
    pelton_begin(&pelton_grouped.row);
    pelton_grouped.has_failed = false;
    pelton_grouped.failure = pelton_grouped.timeouts = pelton_grouped.timers = (pelton_buffer){0};
    pelton_call_groups(groups, offsets);
    if (!pelton_grouped.has_failed) return pelton_answer_groups();
    return pelton_done(1, 1, (uint32_t)(uintptr_t)pelton_grouped.failure.bytes, pelton_grouped.failure.length, 0);
}

__attribute__((export_name("pelton:plugin/stateful@0.1.0#migrate"))) uint32_t *
pelton_migrate(const char *variable, uint32_t variable_length, uint32_t from, const uint8_t *old, uint32_t old_length,
               const uint8_t *entries, uint32_t entries_length) {
    pelton_text name = {variable, variable_length};
    for (uint32_t at = 0; at < pelton_grouped.variable_count; at++) {
        const pelton_variable *known = &pelton_grouped.variables[at];
        if (!pelton_same(pelton_string(known->name), name) || !known->migrate || known->old_version != from) continue;
        return pelton_migrate_entries(at, (pelton_bytes){old, old_length}, (pelton_bytes){entries, entries_length});
    }
    pelton_buffer version = {0};
    pelton_append_decimal(&version, from);
    pelton_append(&version, "", 1);
    return PELTON_FAIL(1, name, "the variable '", "%", "' was kept in version ", (const char *)version.bytes,
                       ", from which this plugin knows no way");
}

#endif
