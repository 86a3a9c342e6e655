/* The interface `stateful`, in the canonical ABI by hand. Included by pelton_groups.h; not for use by hand.
 *
 * Keys, rows and state are three tables that the codec of pelton_runtime.h reads and writes.
 */
#ifndef PELTON_GROUPS_RUNTIME_H
#define PELTON_GROUPS_RUNTIME_H

static struct {
    const pelton_group_function *function;
    pelton_function tables[3]; /* what the codec needs to know of keys, rows and state */
    pelton_row key, row, state;
    uint32_t group, row_end;
    bool has_timed_out, has_state, has_failed;
    pelton_buffer failure, changed, actions, timeouts;
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

PELTON_INTERNAL void pelton_note_change(uint8_t action) {
    pelton_append(&pelton_grouped.changed, &pelton_grouped.group, 4);
    pelton_append(&pelton_grouped.actions, &action, 1);
}
PELTON_INTERNAL void pelton_update_state(pelton_group *group) {
    pelton_emit(group->state);
    pelton_note_change(0);
}
PELTON_INTERNAL void pelton_remove_state(pelton_group *group) {
    (void)group;
    pelton_note_change(2);
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

/* The state comes as it was written. */
PELTON_INTERNAL void pelton_match_state(pelton_row *row) {
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

/* The one variable, as a list of one. */
PELTON_INTERNAL uint32_t *pelton_write_variable(const pelton_group_function *function) {
    pelton_buffer value = pelton_write_schema(function->state, function->state_count, false);
    const uint32_t words[16] = {
        (uint32_t)(uintptr_t) "state", 5, 0 /* value-state */, PELTON_ALIGN, 0,
        (uint32_t)(uintptr_t)value.bytes, value.length, function->state_version,
        0, 0, 0, 0 /* no time to live */, 1 /* everything */, 0, 0, 0,
    };
    return __builtin_memcpy(pelton_allocate(sizeof words), words, sizeof words);
}

PELTON_INTERNAL uint32_t *pelton_open_group(const pelton_group_function *function, pelton_bytes key, pelton_bytes input) {
    pelton_bytes body;
    pelton_text nothing = {"", 0};
    pelton_table keys = pelton_header(key, PELTON_HEADER_SCHEMA, &body);
    pelton_table rows = pelton_header(input, PELTON_HEADER_SCHEMA, &body);
    if (!keys.at || !rows.at) return PELTON_FAIL(1, nothing, "the Arrow schema message is malformed");
    pelton_grouped.function = function;
    pelton_table_of(0, &pelton_grouped.key, function->keys, function->key_count, NULL, 0);
    pelton_table_of(1, &pelton_grouped.row, function->inputs, function->input_count, function->outputs,
                    function->output_count);
    pelton_table_of(2, &pelton_grouped.state, function->state, function->state_count, function->state,
                    function->state_count);
    pelton_buffer names = {0};
    uint32_t *failure = pelton_match(&pelton_grouped.key, &keys);
    if (!failure) failure = pelton_match_reads(&pelton_grouped.row, &rows, &names);
    if (failure) return failure;
    pelton_match_state(&pelton_grouped.state);
    pelton_buffer output = pelton_write_schema(function->outputs, function->output_count, false);
    uint32_t *variable = function->state_count ? pelton_write_variable(function) : NULL;
    const uint32_t words[9] = {
        0, (uint32_t)function->form | (uint32_t)function->timeout << 8,
        (uint32_t)(uintptr_t)output.bytes, output.length,
        1, names.length ? (uint32_t)(uintptr_t)names.bytes : PELTON_ALIGN, names.length / 8,
        variable ? (uint32_t)(uintptr_t)variable : PELTON_ALIGN, variable != NULL,
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

PELTON_INTERNAL void pelton_call_groups(uint32_t groups, pelton_bytes offsets, pelton_bytes entries) {
    pelton_group group = {&pelton_grouped.key, &pelton_grouped.row, &pelton_grouped.state};
    static const uint8_t all_null[1] = {0};
    for (uint32_t at = 0; at < groups && !pelton_grouped.has_failed; at++) {
        pelton_grouped.group = at;
        pelton_grouped.key.at = at;
        pelton_grouped.row.at = pelton_offset(offsets, at) - 1;
        pelton_grouped.row_end = pelton_offset(offsets, at + 1);
        uint32_t entry = entries.length ? pelton_offset(entries, at) : 0;
        pelton_grouped.has_state = entries.length && entry < pelton_offset(entries, at + 1);
        pelton_row *state = &pelton_grouped.state;
        if (pelton_grouped.has_state) {
            state->at = entry;
            pelton_grouped.function->call(&group);
            continue;
        }
        /* Without a state its fields read as null. */
        const uint8_t *kept[PELTON_COLUMNS_MAX];
        uint32_t count = state->function->input_count;
        for (uint32_t i = 0; i < count; i++) kept[i] = state->inputs[i].validity, state->inputs[i].validity = all_null;
        state->at = 0;
        pelton_grouped.function->call(&group);
        for (uint32_t i = 0; i < count; i++) state->inputs[i].validity = kept[i];
    }
}

PELTON_INTERNAL uint32_t *pelton_answer_groups(void) {
    pelton_row *row = &pelton_grouped.row, *state = &pelton_grouped.state;
    uint32_t rejected = pelton_finish_rejected(row);
    pelton_buffer rows = pelton_write_batch(row), put = {0};
    if (state->emitted) put = pelton_write_batch(state);
    uint32_t *changes = pelton_allocate(32);
    const uint32_t change[8] = {
        (uint32_t)(uintptr_t)pelton_grouped.changed.bytes, pelton_grouped.changed.length / 4,
        (uint32_t)(uintptr_t)pelton_grouped.actions.bytes, pelton_grouped.actions.length,
        (uint32_t)(uintptr_t)put.bytes, put.length, 0, 0,
    };
    __builtin_memcpy(changes, change, sizeof change);
    const uint32_t words[11] = {
        0, (uint32_t)(uintptr_t)rows.bytes, rows.length,
        (uint32_t)(uintptr_t)row->rejected.bytes, rejected,
        (uint32_t)(uintptr_t)changes, pelton_grouped.function->state_count != 0,
        (uint32_t)(uintptr_t)pelton_grouped.timeouts.bytes, pelton_grouped.timeouts.length / 16,
        0, 0,
    };
    __builtin_memcpy(pelton_area, words, sizeof words);
    pelton_heap.call_is_over = true;
    return pelton_area;
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
    pelton_bytes offsets = pelton_given(call + 60), state = pelton_given(call + 68), entries = {0};
    uint32_t groups, rows, stored = 0;
    bool readable = pelton_bind(&pelton_grouped.key, pelton_given(call + 44), &groups) &&
                    pelton_bind(&pelton_grouped.row, pelton_given(call + 52), &rows) &&
                    pelton_fits(offsets, groups, rows) &&
                    state.length == (pelton_grouped.function->state_count != 0);
    if (readable && state.length) {
        entries = pelton_given(state.bytes + 8);
        readable = pelton_bind(&pelton_grouped.state, pelton_given(state.bytes), &stored) &&
                   pelton_fits(entries, groups, stored);
    }
    if (!readable) return PELTON_FAIL(1, nothing, "the groups of the call are malformed");
    pelton_begin(&pelton_grouped.row);
    pelton_begin(&pelton_grouped.state);
    pelton_grouped.has_failed = false;
    pelton_grouped.failure = pelton_grouped.changed = pelton_grouped.actions = pelton_grouped.timeouts = (pelton_buffer){0};
    pelton_call_groups(groups, offsets, entries);
    if (!pelton_grouped.has_failed) return pelton_answer_groups();
    return pelton_done(1, 1, (uint32_t)(uintptr_t)pelton_grouped.failure.bytes, pelton_grouped.failure.length, 0);
}

__attribute__((export_name("pelton:plugin/stateful@0.1.0#migrate"))) uint32_t *
pelton_migrate(const char *variable, uint32_t variable_length, uint32_t from, const uint8_t *old, uint32_t old_length,
               const uint8_t *entries, uint32_t entries_length) {
    (void)from, (void)old, (void)old_length, (void)entries, (void)entries_length;
    return PELTON_FAIL(1, ((pelton_text){variable, variable_length}), "the variable '", "%",
                       "' was kept by another version, which this plugin cannot read");
}

#endif
