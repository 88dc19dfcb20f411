/* The work on every record of a log that is compacted: which offset a key was last written at, and which records stay.
 *
 * `OffsetMap` has a twin of the same name and behaviour in _pure.py, which serves where there is no compiler; the tests
 * hold one against the other, byte for byte. What is read here passed a leader's checks once, but disks lie: the CRC of
 * every batch is checked before anything is made of it, and every length before a pointer moves.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "../_batch.h"
#include "../_crc32c.h"

#define COMPRESSION_MASK 0x07
#define LOG_APPEND_TIME_FLAG 0x08
#define CONTROL_FLAG 0x20
#define DELETE_HORIZON_FLAG 0x40
#define NO_TIMESTAMP (-1)
#define OFFSET_END (INT64_C(1) << 62) /* beyond any, and far enough from where sums overflow */

/* ---- The map ------------------------------------------------------------------------------------------------- */

/* A key is stood for by 128 bits of a keyed hash: nobody who does not know the secret can make two keys meet, and so
 * have one delete the other. The offset is stored plus one, so that zeros are an empty slot. */
typedef struct {
    uint64_t low, high;
    uint64_t offset_plus_one;
} map_slot;

typedef struct {
    PyObject_HEAD
    map_slot *slots;
    size_t slot_count;
    Py_ssize_t entries, entries_max;
    uint64_t secret[2];
    long long latest_offset;
} offset_map;

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
#define ROUND                                                                                                          \
    do {                                                                                                               \
        v0 += v1, v1 = ROTATE(v1, 13), v1 ^= v0, v0 = ROTATE(v0, 32);                                                  \
        v2 += v3, v3 = ROTATE(v3, 16), v3 ^= v2;                                                                       \
        v0 += v3, v3 = ROTATE(v3, 21), v3 ^= v0;                                                                       \
        v2 += v1, v1 = ROTATE(v1, 17), v1 ^= v2, v2 = ROTATE(v2, 32);                                                  \
    } while (0)

static inline uint64_t
little64(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t index = 0; index < size; index++) {
        value |= (uint64_t)at[index] << (8 * index);
    }
    return value;
}

/* SipHash-2-4 with 128 bits. */
static void
hash_key(const uint64_t secret[2], const uint8_t *key, size_t size, uint64_t *low, uint64_t *high)
{
    uint64_t v0 = 0x736f6d6570736575u ^ secret[0], v1 = 0x646f72616e646f6du ^ secret[1] ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261u ^ secret[0], v3 = 0x7465646279746573u ^ secret[1];
    size_t left = size;
    for (; left >= 8; key += 8, left -= 8) {
        uint64_t word = little64(key, 8);
        v3 ^= word;
        ROUND;
        ROUND;
        v0 ^= word;
    }
    uint64_t last = (uint64_t)size << 56 | little64(key, left);
    v3 ^= last;
    ROUND;
    ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    ROUND;
    ROUND;
    ROUND;
    ROUND;
    *low = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    ROUND;
    ROUND;
    ROUND;
    ROUND;
    *high = v0 ^ v1 ^ v2 ^ v3;
}

/* The key's slot, or the empty one that it would take. There always is one: not all slots are ever filled. */
static inline map_slot *
find_slot(const offset_map *map, const uint8_t *key, size_t size, uint64_t *low, uint64_t *high)
{
    hash_key(map->secret, key, size, low, high);
    size_t at = (size_t)(((unsigned __int128)*low * map->slot_count) >> 64);
    for (;;) {
        map_slot *slot = &map->slots[at];
        if (slot->offset_plus_one == 0 || (slot->low == *low && slot->high == *high)) {
            return slot;
        }
        if (++at == map->slot_count) {
            at = 0;
        }
    }
}

/* ---- Records ------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length, value_length; /* negative: null */
    const uint8_t *key;
    const uint8_t *rest; /* from the offset delta on: what stays as it is when the timestamps move */
    const uint8_t *end;
} record_view;

static int
read_record(const uint8_t **at, const uint8_t *end, record_view *record)
{
    int32_t length;
    if (read_varint(at, end, &length) != FLAW_NONE || length <= 0 || length > end - *at) {
        return -1;
    }
    const uint8_t *next = *at + 1, *record_end = *at + length;
    if (read_varlong(&next, record_end, &record->timestamp_delta) != FLAW_NONE) {
        return -1;
    }
    record->rest = next;
    if (read_varint(&next, record_end, &record->offset_delta) != FLAW_NONE
        || skip_bytes(&next, record_end, &record->key_length) != FLAW_NONE) {
        return -1;
    }
    record->key = next - (record->key_length > 0 ? record->key_length : 0);
    if (skip_bytes(&next, record_end, &record->value_length) != FLAW_NONE) {
        return -1;
    }
    record->end = record_end;
    *at = record_end;
    return 0;
}

static void
refuse_records(int64_t base_offset)
{
    PyErr_Format(PyExc_ValueError, "the records of the batch at offset %lld cannot be read", (long long)base_offset);
}

/* 1 when every key is mapped, 0 when the map is full, -1 with an exception. */
static int
map_records(offset_map *map, const uint8_t *at, const uint8_t *end, int32_t count, int64_t base_offset, int64_t from)
{
    for (int32_t index = 0; index < count; index++) {
        record_view record;
        if (read_record(&at, end, &record) < 0) {
            refuse_records(base_offset);
            return -1;
        }
        int64_t offset = base_offset + record.offset_delta;
        if (record.key_length < 0 || offset < from) {
            continue;
        }
        if (map->entries >= map->entries_max) {
            return 0;
        }
        uint64_t low, high;
        map_slot *slot = find_slot(map, record.key, (size_t)record.key_length, &low, &high);
        if (slot->offset_plus_one == 0) {
            slot->low = low;
            slot->high = high;
            map->entries++;
        }
        slot->offset_plus_one = (uint64_t)offset + 1;
        map->latest_offset = offset;
    }
    return 1;
}

/* ---- What stays ---------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *data;
    size_t size, capacity;
} output;

static int
reserve(output *out, size_t more)
{
    if (out->capacity - out->size >= more) {
        return 0;
    }
    size_t capacity = out->capacity * 2 > out->size + more ? out->capacity * 2 : out->size + more;
    uint8_t *data = PyMem_Realloc(out->data, capacity);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    out->data = data;
    out->capacity = capacity;
    return 0;
}

static inline size_t
write_varlong(uint8_t *at, int64_t value)
{
    uint64_t raw = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    size_t size = 0;
    for (; raw >= 0x80; raw >>= 7) {
        at[size++] = (uint8_t)(raw | 0x80);
    }
    at[size++] = (uint8_t)raw;
    return size;
}

typedef struct {
    int32_t record_count;
    int64_t base_offset, base_timestamp;
    int64_t fixed_timestamp; /* of every record, when the batch has log append time */
    int has_fixed_timestamp;
    int has_horizon, drop_tombstones;
    int64_t new_horizon;
} clean_rules;

typedef struct {
    int32_t kept;
    int changed; /* are the records to be written anew? */
    int stamped; /* with a delete horizon that they did not have */
    int64_t base_timestamp, max_timestamp;
} clean_result;

static inline int
stays(const offset_map *map, const record_view *record, int64_t offset, int drop_tombstones)
{
    if (offset > map->latest_offset) {
        return 1;
    }
    if (record->key_length < 0 || (drop_tombstones && record->value_length < 0)) {
        return 0;
    }
    uint64_t low, high;
    const map_slot *slot = find_slot(map, record->key, (size_t)record->key_length, &low, &high);
    return slot->offset_plus_one == 0 || (uint64_t)offset + 1 >= slot->offset_plus_one;
}

#define RECORD_GROWTH_MAX 15 /* a longer timestamp, and a longer length for it */

/* Decide about every record and, where not all of them stay as they are, append the new records to `out`. */
static int
clean_records(const offset_map *map, const uint8_t *body, const uint8_t *end, const clean_rules *rules, output *out,
              clean_result *result)
{
    uint8_t *keeps = PyMem_Malloc((size_t)rules->record_count + 1);
    if (keeps == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int tombstones = 0;
    int64_t first_timestamp = NO_TIMESTAMP;
    const uint8_t *at = body;
    record_view record;
    result->kept = 0;
    result->max_timestamp = NO_TIMESTAMP;
    for (int32_t index = 0; index < rules->record_count; index++) {
        if (read_record(&at, end, &record) < 0) {
            refuse_records(rules->base_offset);
            goto failed;
        }
        keeps[index] = (uint8_t)stays(map, &record, rules->base_offset + record.offset_delta, rules->drop_tombstones);
        if (!keeps[index]) {
            continue;
        }
        int64_t timestamp = rules->has_fixed_timestamp
                                ? rules->fixed_timestamp
                                : (int64_t)((uint64_t)rules->base_timestamp + (uint64_t)record.timestamp_delta);
        if (result->kept++ == 0) {
            first_timestamp = timestamp;
        }
        if (timestamp > result->max_timestamp) {
            result->max_timestamp = timestamp;
        }
        tombstones |= record.value_length < 0;
    }
    result->stamped = tombstones && !rules->has_horizon;
    result->changed = result->stamped || result->kept < rules->record_count;
    if (!result->changed || result->kept == 0) {
        PyMem_Free(keeps);
        return 0;
    }
    result->base_timestamp = result->stamped        ? rules->new_horizon
                             : rules->has_horizon ? rules->base_timestamp
                                                  : first_timestamp;
    if (reserve(out, (size_t)(end - body) + (size_t)result->kept * RECORD_GROWTH_MAX) < 0) {
        goto failed;
    }
    at = body;
    for (int32_t index = 0; index < rules->record_count; index++) {
        read_record(&at, end, &record);
        if (!keeps[index]) {
            continue;
        }
        uint64_t timestamp = rules->has_fixed_timestamp ? (uint64_t)rules->fixed_timestamp
                                                        : (uint64_t)rules->base_timestamp + (uint64_t)record.timestamp_delta;
        uint8_t head[11] = {0}; /* the attributes, which no version has used, and the timestamp */
        size_t head_size = 1 + write_varlong(head + 1, (int64_t)(timestamp - (uint64_t)result->base_timestamp));
        size_t rest_size = (size_t)(record.end - record.rest);
        uint8_t *to = out->data + out->size;
        to += write_varlong(to, (int64_t)(head_size + rest_size));
        memcpy(to, head, head_size);
        memcpy(to + head_size, record.rest, rest_size);
        out->size = (size_t)(to + head_size + rest_size - out->data);
    }
    PyMem_Free(keeps);
    return 0;
failed:
    PyMem_Free(keeps);
    return -1;
}

static void
put32(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 24), at[1] = (uint8_t)(value >> 16), at[2] = (uint8_t)(value >> 8), at[3] = (uint8_t)value;
}

static void
put64(uint8_t *at, uint64_t value)
{
    put32(at, (uint32_t)(value >> 32));
    put32(at + 4, (uint32_t)value);
}

/* Finish the batch that begins at `start` of `out` with its header copied there: what changed, and the CRC. */
static void
seal_batch(output *out, size_t start, int16_t attributes, int64_t base_timestamp, int64_t max_timestamp, int32_t count)
{
    uint8_t *batch = out->data + start;
    size_t size = out->size - start;
    put32(batch + 8, (uint32_t)(size - LOG_OVERHEAD));
    batch[21] = (uint8_t)((uint16_t)attributes >> 8), batch[22] = (uint8_t)attributes;
    put64(batch + 27, (uint64_t)base_timestamp);
    put64(batch + 35, (uint64_t)max_timestamp);
    put32(batch + 57, (uint32_t)count);
    put32(batch + 17, crc32c_of(batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT));
}

/* One plain batch: as it is, with fewer records, emptied, or not at all. */
static int
clean_batch(const offset_map *map, const uint8_t *batch, size_t size, const header_fields *header, int64_t now_ms,
            int64_t new_horizon, PyObject *pinned, output *out)
{
    clean_rules rules = {
        .record_count = header->record_count,
        .base_offset = header->base_offset,
        .base_timestamp = header->base_timestamp,
        .fixed_timestamp = header->max_timestamp,
        .has_fixed_timestamp = (header->attributes & LOG_APPEND_TIME_FLAG) != 0,
        .has_horizon = (header->attributes & DELETE_HORIZON_FLAG) != 0,
        .new_horizon = new_horizon,
    };
    rules.drop_tombstones = rules.has_horizon && header->base_timestamp <= now_ms;
    size_t start = out->size;
    if (reserve(out, size) < 0) {
        return -1;
    }
    memcpy(out->data + start, batch, HEADER_SIZE);
    out->size = start + HEADER_SIZE;
    clean_result result;
    if (clean_records(map, batch + HEADER_SIZE, batch + size, &rules, out, &result) < 0) {
        return -1;
    }
    if (result.kept == 0) {
        PyObject *last = PyLong_FromLongLong(header->base_offset + header->last_offset_delta);
        int is_pinned = last == NULL ? -1 : PySet_Contains(pinned, last);
        Py_XDECREF(last);
        if (is_pinned < 0) {
            return -1;
        }
        if (!is_pinned) {
            out->size = start;
            return 0;
        }
        seal_batch(out, start, header->attributes & LOG_APPEND_TIME_FLAG, NO_TIMESTAMP, header->max_timestamp, 0);
        return 0;
    }
    if (!result.changed) {
        memcpy(out->data + start, batch, size);
        out->size = start + size;
        return 0;
    }
    int16_t attributes = header->attributes | (result.stamped ? DELETE_HORIZON_FLAG : 0);
    seal_batch(out, start, attributes, result.base_timestamp, result.max_timestamp, result.kept);
    return 0;
}

/* ---- Batches ------------------------------------------------------------------------------------------------- */

enum { BATCH_PLAIN, BATCH_OTHER, BATCH_CORRUPT };

/* Is there a whole batch at `at` that needs no decompression and belongs to no transaction? */
static int
next_batch(const uint8_t *at, const uint8_t *end, header_fields *header, size_t *size)
{
    if (end - at < HEADER_SIZE) {
        return BATCH_OTHER;
    }
    read_fields(at, header);
    if (header->batch_length < HEADER_SIZE - LOG_OVERHEAD || header->magic != 2 || header->record_count < 0
        || header->last_offset_delta < 0 || header->base_offset < 0 || header->base_offset >= OFFSET_END) {
        return BATCH_CORRUPT;
    }
    if (header->batch_length + (int64_t)LOG_OVERHEAD > end - at
        || header->attributes & (COMPRESSION_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG)) {
        return BATCH_OTHER;
    }
    *size = (size_t)header->batch_length + LOG_OVERHEAD;
    return header->crc == crc32c_of(at + ATTRIBUTES_AT, *size - ATTRIBUTES_AT) ? BATCH_PLAIN : BATCH_CORRUPT;
}

static void
refuse_batch(const header_fields *header)
{
    PyErr_Format(PyExc_ValueError, "the batch at offset %lld is corrupt", (long long)header->base_offset);
}

/* ---- The type ------------------------------------------------------------------------------------------------ */

static int
number(PyObject *object, int64_t *value)
{
    *value = PyLong_AsLongLong(object);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
expect(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", wanted, given);
        return -1;
    }
    return 0;
}

static int
map_init(offset_map *map, PyObject *args, PyObject *Py_UNUSED(named))
{
    Py_ssize_t slots, entries_max;
    Py_buffer secret;
    if (!PyArg_ParseTuple(args, "nny*", &slots, &entries_max, &secret)) {
        return -1;
    }
    if (secret.len != 16 || entries_max < 1 || slots <= entries_max) {
        PyBuffer_Release(&secret);
        PyErr_SetString(PyExc_ValueError, "a map needs a secret of 16 bytes and more slots than entries");
        return -1;
    }
    map->secret[0] = little64(secret.buf, 8);
    map->secret[1] = little64((const uint8_t *)secret.buf + 8, 8);
    PyBuffer_Release(&secret);
    PyMem_RawFree(map->slots);
    map->slots = PyMem_RawCalloc((size_t)slots, sizeof(map_slot));
    if (map->slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    map->slot_count = (size_t)slots;
    map->entries = 0;
    map->entries_max = entries_max;
    map->latest_offset = -1;
    return 0;
}

static void
map_dealloc(offset_map *map)
{
    PyTypeObject *type = Py_TYPE(map);
    PyMem_RawFree(map->slots);
    type->tp_free((PyObject *)map);
    Py_DECREF(type);
}

PyDoc_STRVAR(add_doc, "add(body, record_count, base_offset, from_offset)\n--\n\n"
                      "Note the offset of every key in these records; False when the map is full before the last.");

static PyObject *
map_add(offset_map *map, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    int64_t record_count, base_offset, from;
    if (expect(count, 4) < 0 || number(args[1], &record_count) < 0 || number(args[2], &base_offset) < 0
        || number(args[3], &from) < 0 || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *body = view.buf;
    int done = map_records(map, body, body + view.len, (int32_t)record_count, base_offset, from);
    PyBuffer_Release(&view);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

PyDoc_STRVAR(add_batches_doc, "add_batches(chunk, position, from_offset)\n--\n\n"
                              "Add plain batches, up to the first that is not; where that is, and whether the map is "
                              "full.");

static PyObject *
map_add_batches(offset_map *map, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    int64_t position, from;
    if (expect(count, 3) < 0 || number(args[1], &position) < 0 || number(args[2], &from) < 0
        || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *chunk = view.buf, *at = chunk + position, *end = chunk + view.len;
    header_fields header;
    size_t size;
    int kind, done = 1;
    while ((kind = next_batch(at, end, &header, &size)) == BATCH_PLAIN) {
        int64_t last_offset = header.base_offset + header.last_offset_delta;
        if (last_offset >= from) {
            done = map_records(map, at + HEADER_SIZE, at + size, header.record_count, header.base_offset, from);
            if (done <= 0) {
                break;
            }
            map->latest_offset = last_offset;
        }
        at += size;
    }
    PyBuffer_Release(&view);
    if (kind == BATCH_CORRUPT) {
        refuse_batch(&header);
        return NULL;
    }
    return done < 0 ? NULL : Py_BuildValue("(nO)", (Py_ssize_t)(at - chunk), done ? Py_False : Py_True);
}

PyDoc_STRVAR(survivors_doc,
             "survivors(body, record_count, base_offset, base_timestamp, fixed_timestamp, has_horizon, now_ms, "
             "new_horizon)\n--\n\n"
             "How many records stay; the base and max timestamp of a batch of them; its records, None where the old "
             "batch will do; and whether they got the new horizon.");

static PyObject *
map_survivors(offset_map *map, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    int64_t record_count, now_ms;
    clean_rules rules;
    if (expect(count, 8) < 0 || number(args[1], &record_count) < 0 || number(args[2], &rules.base_offset) < 0
        || number(args[3], &rules.base_timestamp) < 0 || number(args[6], &now_ms) < 0
        || number(args[7], &rules.new_horizon) < 0) {
        return NULL;
    }
    rules.record_count = (int32_t)record_count;
    rules.has_fixed_timestamp = args[4] != Py_None;
    rules.fixed_timestamp = NO_TIMESTAMP;
    if (rules.has_fixed_timestamp && number(args[4], &rules.fixed_timestamp) < 0) {
        return NULL;
    }
    rules.has_horizon = PyObject_IsTrue(args[5]);
    rules.drop_tombstones = rules.has_horizon && rules.base_timestamp <= now_ms;
    if (rules.has_horizon < 0 || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *body = view.buf;
    output out = {NULL, 0, 0};
    clean_result result = {0};
    PyObject *answer = NULL;
    if (clean_records(map, body, body + view.len, &rules, &out, &result) == 0) {
        int written = result.changed && result.kept;
        answer = Py_BuildValue("(iLLy#O)", (int)result.kept, (long long)(written ? result.base_timestamp : NO_TIMESTAMP),
                               (long long)result.max_timestamp, written ? (char *)out.data : NULL,
                               (Py_ssize_t)out.size, result.stamped ? Py_True : Py_False);
    }
    PyMem_Free(out.data);
    PyBuffer_Release(&view);
    return answer;
}

PyDoc_STRVAR(clean_batches_doc,
             "clean_batches(chunk, position, now_ms, new_horizon, pinned)\n--\n\n"
             "What stays of plain batches, up to the first that is not; where that is, and the batches. One whose last "
             "offset is pinned stays even without records.");

static PyObject *
map_clean_batches(offset_map *map, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    int64_t position, now_ms, new_horizon;
    if (expect(count, 5) < 0 || number(args[1], &position) < 0 || number(args[2], &now_ms) < 0
        || number(args[3], &new_horizon) < 0 || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *chunk = view.buf, *at = chunk + position, *end = chunk + view.len;
    header_fields header;
    size_t size;
    int kind, failed = 0;
    output out = {NULL, 0, 0};
    while (!failed && (kind = next_batch(at, end, &header, &size)) != BATCH_OTHER) {
        if (kind == BATCH_CORRUPT) {
            refuse_batch(&header);
            failed = 1;
        } else {
            failed = clean_batch(map, at, size, &header, now_ms, new_horizon, args[4], &out) < 0;
            at += size;
        }
    }
    PyBuffer_Release(&view);
    PyObject *answer = NULL;
    if (!failed) {
        answer = Py_BuildValue("(ny#)", (Py_ssize_t)(at - chunk), out.data ? (char *)out.data : "", (Py_ssize_t)out.size);
    }
    PyMem_Free(out.data);
    return answer;
}

static PyMethodDef map_methods[] = {
    {"add", (PyCFunction)(void (*)(void))map_add, METH_FASTCALL, add_doc},
    {"add_batches", (PyCFunction)(void (*)(void))map_add_batches, METH_FASTCALL, add_batches_doc},
    {"survivors", (PyCFunction)(void (*)(void))map_survivors, METH_FASTCALL, survivors_doc},
    {"clean_batches", (PyCFunction)(void (*)(void))map_clean_batches, METH_FASTCALL, clean_batches_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef map_members[] = {
    {"entries", T_PYSSIZET, offsetof(offset_map, entries), READONLY, "How many keys there are."},
    {"latest_offset", T_LONGLONG, offsetof(offset_map, latest_offset), 0,
     "Up to here, this one included, every key's last offset is known; -1 if nothing was added."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(map_doc, "OffsetMap(slots, entries_max, secret)\n--\n\nThe offset at which each key was last written.");

static PyType_Slot map_slots[] = {
    {Py_tp_doc, (void *)map_doc}, {Py_tp_init, map_init},       {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, map_dealloc}, {Py_tp_methods, map_methods}, {Py_tp_members, map_members},
    {0, NULL},
};

static PyType_Spec map_spec = {
    .name = "ottla.records.cleaning._native.OffsetMap",
    .basicsize = sizeof(offset_map),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = map_slots,
};

static int
module_exec(PyObject *module)
{
    make_crc_table();
    choose_crc();
    PyObject *type = PyType_FromModuleAndSpec(module, &map_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed < 0 ? -1 : PyModule_AddIntConstant(module, "SLOT_BYTES", sizeof(map_slot));
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.records.cleaning._native",
    .m_doc = "The work on every record of a log that is compacted, compiled. The twin of _pure.",
    .m_size = 0,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
