/* Memory for one call: a bump allocator, and buffers that grow in it. Included by pelton.h; not for use by hand.
 *
 * What is allocated until the end of `open` stays; the first allocation of each later call (the host asks for the
 * place of its arguments) starts again behind it.
 */
#ifndef PELTON_MEMORY_H
#define PELTON_MEMORY_H

#define PELTON_PAGE 65536u
#define PELTON_ALIGN 16u
#define PELTON_INTERNAL static __attribute__((unused))

extern uint8_t __heap_base;

static struct {
    uint32_t next;     /* the first free byte; 0 before the first use */
    uint32_t kept;     /* where calls start again */
    bool call_is_over; /* the last call's results were read if the host asks for memory again */
} pelton_heap;

/* Traps when the host refuses to give more memory. */
PELTON_INTERNAL void *pelton_allocate(uint32_t bytes) {
    if (pelton_heap.next == 0) pelton_heap.next = pelton_heap.kept = (uint32_t)(uintptr_t)&__heap_base;
    if (pelton_heap.call_is_over) {
        pelton_heap.next = pelton_heap.kept;
        pelton_heap.call_is_over = false;
    }
    uint32_t at = (pelton_heap.next + PELTON_ALIGN - 1) & ~(PELTON_ALIGN - 1);
    uint64_t end = (uint64_t)at + bytes;
    uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) * PELTON_PAGE;
    if (end > have) {
        uint64_t pages = (end - have + PELTON_PAGE - 1) / PELTON_PAGE;
        if (end > UINT32_MAX || __builtin_wasm_memory_grow(0, (uint32_t)pages) == (size_t)-1) __builtin_trap();
    }
    pelton_heap.next = (uint32_t)end;
    return (void *)(uintptr_t)at;
}

PELTON_INTERNAL void *pelton_reallocate(void *old, uint32_t old_bytes, uint32_t bytes) {
    if (old_bytes != 0 && (uint32_t)(uintptr_t)old + old_bytes == pelton_heap.next && bytes >= old_bytes &&
        !pelton_heap.call_is_over) {
        /* It is the last block: it grows where it is. */
        pelton_heap.next = (uint32_t)(uintptr_t)old;
        return pelton_allocate(bytes);
    }
    void *place = pelton_allocate(bytes);
    __builtin_memcpy(place, old, old_bytes < bytes ? old_bytes : bytes);
    return place;
}

__attribute__((export_name("cabi_realloc"))) void *pelton_cabi_realloc(void *old, uint32_t old_bytes, uint32_t align,
                                                                        uint32_t bytes) {
    (void)align; /* every place suits every Arrow buffer */
    return pelton_reallocate(old, old_bytes, bytes);
}

/* A byte buffer that grows. */
typedef struct {
    uint8_t *bytes;
    uint32_t length;
    uint32_t capacity;
} pelton_buffer;

PELTON_INTERNAL uint8_t *pelton_extend(pelton_buffer *buffer, uint32_t bytes) {
    uint32_t length = buffer->length + bytes;
    if (length < bytes) __builtin_trap();
    if (length > buffer->capacity) {
        uint32_t capacity = buffer->capacity * 2 > length ? buffer->capacity * 2 : length + 64;
        buffer->bytes = pelton_reallocate(buffer->bytes, buffer->capacity, capacity);
        buffer->capacity = capacity;
    }
    uint8_t *place = buffer->bytes + buffer->length;
    buffer->length = length;
    return place;
}

PELTON_INTERNAL void pelton_append(pelton_buffer *buffer, const void *bytes, uint32_t length) {
    __builtin_memcpy(pelton_extend(buffer, length), bytes, length);
}

PELTON_INTERNAL void pelton_pad(pelton_buffer *buffer, uint32_t align) {
    uint32_t bytes = (align - buffer->length % align) % align;
    __builtin_memset(pelton_extend(buffer, bytes), 0, bytes);
}

PELTON_INTERNAL void pelton_append_decimal(pelton_buffer *buffer, int64_t value) {
    char digits[20];
    uint32_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0) digits[--at] = '-';
    pelton_append(buffer, digits + at, sizeof digits - at);
}

#endif
