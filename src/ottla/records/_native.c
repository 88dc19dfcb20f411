/* The work on every byte of a record batch: CRC-32C, the 61-byte header, and the walk over the records.
 *
 * Each function here has a twin of the same name and behaviour in _pure.py, which serves where there is no compiler;
 * the tests hold one against the other. Everything reads from a buffer that a client filled: every length is compared
 * with the bytes that are left, as a subtraction that cannot overflow, before a pointer moves.
 *
 * The GIL is kept: a batch takes microseconds, and one event loop owns all state.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_batch.h"
#include "_crc32c.h"
#include "_murmur2.h"

/* ---- The header ---------------------------------------------------------------------------------------------- */

#define FIELD_COUNT 13

/* A tuple of the given subclass (BatchHeader), filled in order. */
static PyObject *
header_object(PyObject *type, const header_fields *header)
{
    PyObject *result = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, FIELD_COUNT);
    if (result == NULL) {
        return NULL;
    }
    const long long fields[FIELD_COUNT] = {
        header->base_offset,    header->batch_length,  header->leader_epoch,      header->magic,
        header->crc,            header->attributes,    header->last_offset_delta, header->base_timestamp,
        header->max_timestamp,  header->producer_id,   header->producer_epoch,    header->base_sequence,
        header->record_count,
    };
    for (Py_ssize_t index = 0; index < FIELD_COUNT; index++) {
        PyObject *value = PyLong_FromLongLong(fields[index]);
        if (value == NULL) {
            Py_DECREF(result);
            return NULL;
        }
        PyTuple_SET_ITEM(result, index, value);
    }
    return result;
}

static int
is_tuple_type(PyObject *type)
{
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        return 1;
    }
    PyErr_SetString(PyExc_TypeError, "the header's type must be a named tuple");
    return 0;
}

/* ---- The walk over the records ------------------------------------------------------------------------------- */

enum { OFFENCE_KEYLESS = 1, OFFENCE_TIMESTAMP = 2 };

typedef struct {
    int32_t record_count;
    int64_t base_timestamp;
    int64_t fixed_timestamp; /* of every record, when the batch has log append time */
    int has_fixed_timestamp;
    int64_t oldest, newest; /* the timestamps that pass, both included; -1 always does */
    int need_keys;
} walk_rules;

typedef struct {
    int flaw;
    int32_t index; /* of the record with the flaw */
    int64_t max_timestamp;
    int32_t max_index;
    int offended;
} walk_result;

static int
skip_headers(const uint8_t **at, const uint8_t *end)
{
    int32_t count, length;
    int flaw = read_varint(at, end, &count);
    if (flaw != FLAW_NONE) {
        return flaw;
    }
    if (count < 0 || count > end - *at) {
        return FLAW_HEADER_COUNT;
    }
    for (; count > 0; count--) {
        if ((flaw = skip_bytes(at, end, &length)) != FLAW_NONE) {
            return flaw;
        }
        if (length < 0) {
            return FLAW_HEADER_KEY;
        }
        if ((flaw = skip_bytes(at, end, &length)) != FLAW_NONE) {
            return flaw;
        }
    }
    return FLAW_NONE;
}

/* As in `_flaws`. */
#define OFFENCES_MAX 1000

static int
add_offence(PyObject *offences, int32_t index, int kind, int64_t timestamp)
{
    if (PyList_GET_SIZE(offences) >= OFFENCES_MAX) {
        return 0;
    }
    PyObject *offence = Py_BuildValue("(iiL)", (int)index, kind, (long long)timestamp);
    if (offence == NULL) {
        return -1;
    }
    int failed = PyList_Append(offences, offence);
    Py_DECREF(offence);
    return failed;
}

/* Walks all records. Without a list for offences it stops at the first one, and `offended` says so. Negative only
 * when Python ran out of memory. */
static int
walk_records(const uint8_t *at, const uint8_t *end, const walk_rules *rules, PyObject *offences, walk_result *result)
{
    int flaw = FLAW_NONE;
    int32_t index;
    result->max_timestamp = -1;
    result->max_index = -1;
    result->offended = 0;
    for (index = 0; index < rules->record_count; index++) {
        int32_t length, offset_delta, key_length, value_length;
        int64_t timestamp_delta;
        if ((flaw = read_varint(&at, end, &length)) != FLAW_NONE) {
            flaw = flaw == FLAW_FIELD ? FLAW_CUT : flaw;
            break;
        }
        if (length < 0 || length > end - at) {
            flaw = FLAW_CUT;
            break;
        }
        const uint8_t *record_end = at + length;
        if (length == 0) {
            flaw = FLAW_FIELD;
            break;
        }
        at++; /* attributes, which no version has used */
        if ((flaw = read_varlong(&at, record_end, &timestamp_delta)) != FLAW_NONE
            || (flaw = read_varint(&at, record_end, &offset_delta)) != FLAW_NONE
            || (flaw = skip_bytes(&at, record_end, &key_length)) != FLAW_NONE
            || (flaw = skip_bytes(&at, record_end, &value_length)) != FLAW_NONE) {
            break;
        }
        if (at < record_end && *at == 0) {
            at++; /* no headers: nearly always */
        } else if ((flaw = skip_headers(&at, record_end)) != FLAW_NONE) {
            break;
        }
        if (at != record_end) {
            flaw = FLAW_LENGTH;
            break;
        }
        if (offset_delta != index) {
            flaw = FLAW_OFFSET;
            break;
        }
        int64_t timestamp = rules->has_fixed_timestamp
                                ? rules->fixed_timestamp
                                : (int64_t)((uint64_t)rules->base_timestamp + (uint64_t)timestamp_delta);
        if (timestamp > result->max_timestamp) {
            result->max_timestamp = timestamp;
            result->max_index = index;
        }
        int offence = 0;
        if (rules->need_keys && key_length < 0) {
            offence = OFFENCE_KEYLESS;
        } else if ((timestamp < rules->oldest || timestamp > rules->newest) && timestamp != -1) {
            offence = OFFENCE_TIMESTAMP;
        }
        if (offence) {
            result->offended = 1;
            if (offences == NULL) {
                return 0;
            }
            if (add_offence(offences, index, offence, timestamp) < 0) {
                return -1;
            }
        }
    }
    if (flaw == FLAW_NONE && at != end) {
        flaw = FLAW_TRAILING;
    }
    result->flaw = flaw;
    result->index = index;
    return 0;
}

/* ---- The module's functions ---------------------------------------------------------------------------------- */

/* Bounds may lie outside 64 bits (now + a limit of 2^63 - 1): the nearest number does the same. */
static int
clipped(PyObject *number, int64_t *value)
{
    int overflow;
    long long result = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow) {
        result = overflow > 0 ? INT64_MAX : INT64_MIN;
    } else if (result == -1 && PyErr_Occurred()) {
        return -1;
    }
    *value = result;
    return 0;
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

PyDoc_STRVAR(crc32c_doc, "crc32c(buffer, start, end)\n--\n\nCRC-32C of buffer[start:end].");

static PyObject *
native_crc32c(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    if (expect(count, 3) < 0) {
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (start < 0 || end < start || end > view.len) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "the range lies outside the buffer");
        return NULL;
    }
    uint32_t crc = crc32c_of((const uint8_t *)view.buf + start, (size_t)(end - start));
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

PyDoc_STRVAR(crc_matches_doc,
             "crc_matches(buffer, position, size)\n--\n\n"
             "Does the batch of `size` bytes at `position` lie in `buffer` and match its CRC?");

static PyObject *
native_crc_matches(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    if (expect(count, 3) < 0) {
        return NULL;
    }
    int64_t position, size;
    if (clipped(args[1], &position) < 0 || clipped(args[2], &size) < 0
        || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    int matches = 0;
    if (position >= 0 && position <= view.len && size >= HEADER_SIZE && size <= view.len - position) {
        const uint8_t *batch = (const uint8_t *)view.buf + position;
        matches = big32(batch + 17) == crc32c_of(batch + ATTRIBUTES_AT, (size_t)(size - ATTRIBUTES_AT));
    }
    PyBuffer_Release(&view);
    return PyBool_FromLong(matches);
}

PyDoc_STRVAR(parse_header_doc,
             "parse_header(kind, buffer, position)\n--\n\n"
             "The thirteen fields at `position`; ValueError when fewer than 61 bytes are there.");

static PyObject *
native_parse_header(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    header_fields header;
    int64_t position;
    if (expect(count, 3) < 0 || !is_tuple_type(args[0]) || clipped(args[2], &position) < 0
        || PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (position < 0 || position > view.len || view.len - position < HEADER_SIZE) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "too few bytes for a batch header");
        return NULL;
    }
    read_fields((const uint8_t *)view.buf + position, &header);
    PyBuffer_Release(&view);
    return header_object(args[0], &header);
}

PyDoc_STRVAR(walk_doc,
             "walk(body, record_count, base_timestamp, fixed_timestamp, oldest, newest, need_keys)\n--\n\n"
             "Check every record: (flaw, index of its record, max timestamp, index of that, offences).");

static PyObject *
native_walk(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    walk_rules rules;
    walk_result result;
    int64_t record_count;
    if (expect(count, 7) < 0 || clipped(args[1], &record_count) < 0 || clipped(args[2], &rules.base_timestamp) < 0) {
        return NULL;
    }
    if (record_count < 0 || record_count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the record count is out of range");
        return NULL;
    }
    rules.record_count = (int32_t)record_count;
    rules.has_fixed_timestamp = args[3] != Py_None;
    rules.fixed_timestamp = -1;
    if ((rules.has_fixed_timestamp && clipped(args[3], &rules.fixed_timestamp) < 0)
        || clipped(args[4], &rules.oldest) < 0 || clipped(args[5], &rules.newest) < 0) {
        return NULL;
    }
    rules.need_keys = PyObject_IsTrue(args[6]);
    if (rules.need_keys < 0 || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *offences = PyList_New(0), *answer = NULL;
    const uint8_t *body = view.buf;
    if (offences != NULL && walk_records(body, body + view.len, &rules, offences, &result) == 0) {
        answer = Py_BuildValue("(iiLiO)", result.flaw, (int)result.index, (long long)result.max_timestamp,
                               (int)result.max_index, offences);
    }
    Py_XDECREF(offences);
    PyBuffer_Release(&view);
    return answer;
}

PyDoc_STRVAR(check_doc,
             "check(kind, batch, oldest, newest, need_keys)\n--\n\n"
             "The header of a produced batch that can be appended as it is, or None where something needs a closer "
             "look.");

static PyObject *
native_check(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    header_fields header;
    walk_rules rules;
    walk_result result;
    if (expect(count, 5) < 0 || !is_tuple_type(args[0]) || clipped(args[2], &rules.oldest) < 0
        || clipped(args[3], &rules.newest) < 0) {
        return NULL;
    }
    rules.need_keys = PyObject_IsTrue(args[4]);
    if (rules.need_keys < 0 || PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    int plain = 0;
    const uint8_t *batch = view.buf;
    if (view.len >= HEADER_SIZE) {
        read_fields(batch, &header);
        if (header.magic == 2 && (int64_t)header.batch_length + LOG_OVERHEAD == view.len && header.base_offset == 0
            && (header.attributes & ~TRANSACTIONAL_FLAG) == 0 && header.record_count > 0
            && header.last_offset_delta == header.record_count - 1
            && (header.producer_id < 0 || header.base_sequence >= 0)
            && header.crc == crc32c_of(batch + ATTRIBUTES_AT, (size_t)(view.len - ATTRIBUTES_AT))) {
            rules.record_count = header.record_count;
            rules.base_timestamp = header.base_timestamp;
            rules.has_fixed_timestamp = 0;
            rules.fixed_timestamp = -1;
            result.flaw = FLAW_NONE;
            walk_records(batch + HEADER_SIZE, batch + view.len, &rules, NULL, &result);
            plain = !result.offended && result.flaw == FLAW_NONE && result.max_timestamp == header.max_timestamp;
        }
    }
    PyBuffer_Release(&view);
    if (!plain) {
        Py_RETURN_NONE;
    }
    return header_object(args[0], &header);
}

PyDoc_STRVAR(crc32c_by_table_doc,
             "crc32c_by_table(buffer)\n--\n\nCRC-32C without the processor's instruction, for tests to compare.");

static PyObject *
native_crc32c_by_table(PyObject *Py_UNUSED(module), PyObject *buffer)
{
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    uint32_t crc = ~crc_by_table(0xFFFFFFFFu, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

/* ---- Records that this node writes and reads itself ---------------------------------------------------------- */

static inline uint8_t *
write_varint(uint8_t *at, int64_t value)
{
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (raw >= 0x80) {
        *at++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *at++ = (uint8_t)raw;
    return at;
}

static inline Py_ssize_t
varint_size(int64_t value)
{
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    Py_ssize_t size = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        size++;
    }
    return size;
}

/* The key and the value of one record, borrowed; -1 with an exception if it is not a pair of bytes and bytes or None. */
static int
key_and_value(PyObject *records, Py_ssize_t index, PyObject **key, PyObject **value)
{
    PyObject *record = PyList_GET_ITEM(records, index);
    if (!PyTuple_Check(record) || PyTuple_GET_SIZE(record) < 2) {
        PyErr_SetString(PyExc_TypeError, "a record is a pair of a key and a value");
        return -1;
    }
    *key = PyTuple_GET_ITEM(record, 0);
    *value = PyTuple_GET_ITEM(record, 1);
    if (!PyBytes_Check(*key) || (*value != Py_None && !PyBytes_Check(*value))) {
        PyErr_SetString(PyExc_TypeError, "a key is bytes, and a value is bytes or None");
        return -1;
    }
    return 0;
}

/* What a record's length counts: attributes, deltas, key, value, and no headers. */
static Py_ssize_t
record_size(PyObject *key, PyObject *value, int64_t offset_delta, int64_t timestamp_delta)
{
    Py_ssize_t size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(PyBytes_GET_SIZE(key))
                      + PyBytes_GET_SIZE(key) + 1;
    if (value == Py_None) {
        return size + 1;
    }
    return size + varint_size(PyBytes_GET_SIZE(value)) + PyBytes_GET_SIZE(value);
}

PyDoc_STRVAR(pack_records_doc, "pack_records(records, first_delta, timestamp_delta)\n--\n\n"
                               "The bytes of records of one time, each a key and a value, at successive offsets.");

static PyObject *
native_pack_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (expect(count, 3) < 0) {
        return NULL;
    }
    PyObject *records = args[0];
    if (!PyList_Check(records)) {
        PyErr_SetString(PyExc_TypeError, "records come in a list");
        return NULL;
    }
    int64_t first = PyLong_AsLongLong(args[1]);
    int64_t timestamp_delta = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(records);
    Py_ssize_t total = 0;
    PyObject *key, *value;
    for (Py_ssize_t index = 0; index < number; index++) {
        if (key_and_value(records, index, &key, &value) < 0) {
            return NULL;
        }
        Py_ssize_t size = record_size(key, value, first + index, timestamp_delta);
        total += varint_size(size) + size;
    }
    PyObject *packed = PyBytes_FromStringAndSize(NULL, total);
    if (packed == NULL) {
        return NULL;
    }
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(packed);
    for (Py_ssize_t index = 0; index < number; index++) {
        if (key_and_value(records, index, &key, &value) < 0) {
            Py_DECREF(packed);
            return NULL;
        }
        at = write_varint(at, record_size(key, value, first + index, timestamp_delta));
        *at++ = 0;
        at = write_varint(at, timestamp_delta);
        at = write_varint(at, first + index);
        at = write_varint(at, PyBytes_GET_SIZE(key));
        memcpy(at, PyBytes_AS_STRING(key), (size_t)PyBytes_GET_SIZE(key));
        at += PyBytes_GET_SIZE(key);
        if (value == Py_None) {
            at = write_varint(at, -1);
        } else {
            at = write_varint(at, PyBytes_GET_SIZE(value));
            memcpy(at, PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value));
            at += PyBytes_GET_SIZE(value);
        }
        *at++ = 0;
    }
    return packed;
}

static PyObject *
bytes_or_none(const uint8_t *end, int32_t length)
{
    if (length < 0) {
        return Py_NewRef(Py_None);
    }
    return PyBytes_FromStringAndSize((const char *)end - length, length);
}

PyDoc_STRVAR(unpack_records_doc, "unpack_records(body, record_count)\n--\n\n"
                                 "The offset delta, the key and the value of each record; ValueError if the bytes are "
                                 "not that many records.");

static PyObject *
native_unpack_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (expect(count, 2) < 0) {
        return NULL;
    }
    long number = PyLong_AsLong(args[1]);
    if (number == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer body;
    if (PyObject_GetBuffer(args[0], &body, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *at = body.buf;
    const uint8_t *end = at + body.len;
    PyObject *records = PyList_New(0);
    if (records == NULL) {
        PyBuffer_Release(&body);
        return NULL;
    }
    for (long index = 0; index < number; index++) {
        int32_t length, offset_delta, key_length, value_length;
        int64_t timestamp_delta;
        if (read_varint(&at, end, &length) != FLAW_NONE || length < 1 || length > end - at) {
            goto malformed;
        }
        const uint8_t *record_end = at + length;
        at++;
        if (read_varlong(&at, record_end, &timestamp_delta) != FLAW_NONE
            || read_varint(&at, record_end, &offset_delta) != FLAW_NONE
            || skip_bytes(&at, record_end, &key_length) != FLAW_NONE) {
            goto malformed;
        }
        const uint8_t *key_end = at;
        if (skip_bytes(&at, record_end, &value_length) != FLAW_NONE) {
            goto malformed;
        }
        const uint8_t *value_end = at;
        if (skip_headers(&at, record_end) != FLAW_NONE || at != record_end) {
            goto malformed;
        }
        PyObject *key = bytes_or_none(key_end, key_length);
        PyObject *value = key == NULL ? NULL : bytes_or_none(value_end, value_length);
        PyObject *record = value == NULL ? NULL : Py_BuildValue("(iNN)", (int)offset_delta, key, value);
        if (record == NULL) {
            if (value == NULL) {
                Py_XDECREF(key);
            }
            goto failed;
        }
        int appended = PyList_Append(records, record);
        Py_DECREF(record);
        if (appended < 0) {
            goto failed;
        }
    }
    if (at != end) {
        goto malformed;
    }
    PyBuffer_Release(&body);
    return records;
malformed:
    PyErr_SetString(PyExc_ValueError, "the bytes are not that many records");
failed:
    Py_DECREF(records);
    PyBuffer_Release(&body);
    return NULL;
}

/* ---- Records from columns ------------------------------------------------------------------------------------ */

/* A column of byte strings as Arrow lays it out: number + 1 offsets into the data, and perhaps a byte a row that is 0
 * where there is none. */
typedef struct {
    Py_buffer offsets, data, valid;
    Py_ssize_t number;
    int given, has_valid;
} bytes_column;

typedef struct {
    bytes_column key, value;   /* of the record */
    bytes_column name, content; /* of its headers */
    Py_buffer lists;           /* number + 1 offsets into the headers */
    Py_buffer timestamps, rows;
    Py_ssize_t number, lists_number;
} columns;

static void
release_column(bytes_column *column)
{
    if (column->given) {
        PyBuffer_Release(&column->offsets);
        PyBuffer_Release(&column->data);
        if (column->has_valid) {
            PyBuffer_Release(&column->valid);
        }
    }
}

static void
release_columns(columns *all)
{
    release_column(&all->key);
    release_column(&all->value);
    release_column(&all->name);
    release_column(&all->content);
    if (all->lists.obj != NULL) {
        PyBuffer_Release(&all->lists);
    }
    if (all->timestamps.obj != NULL) {
        PyBuffer_Release(&all->timestamps);
    }
    if (all->rows.obj != NULL) {
        PyBuffer_Release(&all->rows);
    }
}

/* Takes None, or a tuple of offsets, data, and None or validity. */
static int
take_column(PyObject *source, bytes_column *column)
{
    if (source == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(source) || PyTuple_GET_SIZE(source) != 3) {
        PyErr_SetString(PyExc_TypeError, "a column is offsets, data and validity");
        return -1;
    }
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(source, 0), &column->offsets, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(source, 1), &column->data, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&column->offsets);
        return -1;
    }
    column->given = 1;
    column->number = column->offsets.len / 4 - 1;
    if (PyTuple_GET_ITEM(source, 2) != Py_None) {
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(source, 2), &column->valid, PyBUF_SIMPLE) < 0) {
            return -1;
        }
        column->has_valid = 1;
        if (column->valid.len < column->number) {
            column->number = column->valid.len;
        }
    }
    return 0;
}

/* Where the bytes of a row are, and how many; -1 for none. -2 if the column has no such row, or it lies outside. */
static inline int64_t
column_at(const bytes_column *column, int64_t row, const uint8_t **start)
{
    if (!column->given) {
        return -1;
    }
    if (row < 0 || row >= column->number) {
        return -2;
    }
    if (column->has_valid && !((const uint8_t *)column->valid.buf)[row]) {
        return -1;
    }
    const int32_t *offsets = column->offsets.buf;
    int64_t begin = offsets[row], end = offsets[row + 1];
    if (begin < 0 || end < begin || end > column->data.len) {
        return -2;
    }
    *start = (const uint8_t *)column->data.buf + begin;
    return end - begin;
}

static inline Py_ssize_t
field_size(int64_t length)
{
    return varint_size(length) + (length > 0 ? (Py_ssize_t)length : 0);
}

static inline uint8_t *
write_field(uint8_t *at, const uint8_t *start, int64_t length)
{
    at = write_varint(at, length);
    if (length > 0) {
        memcpy(at, start, (size_t)length);
        at += length;
    }
    return at;
}

/* The headers of a row: how many there are, and where they begin. -1 if the column has no such row. */
static int64_t
headers_at(const columns *all, int64_t row, int64_t *first)
{
    if (all->lists.obj == NULL) {
        return 0;
    }
    if (row < 0 || row >= all->lists_number) {
        return -1;
    }
    const int32_t *lists = all->lists.buf;
    *first = lists[row];
    return lists[row] < 0 || lists[row + 1] < lists[row] ? -1 : lists[row + 1] - lists[row];
}

/* What the length of a row's record counts; -1 if the columns do not hold the row. */
static Py_ssize_t
row_size(const columns *all, int64_t row, int64_t offset_delta, int64_t timestamp_delta)
{
    const uint8_t *start;
    int64_t key = column_at(&all->key, row, &start), value = column_at(&all->value, row, &start), first = 0;
    int64_t headers = headers_at(all, row, &first);
    if (key < -1 || value < -1 || headers < 0) {
        return -1;
    }
    Py_ssize_t size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + field_size(key)
                      + field_size(value) + varint_size(headers);
    for (int64_t header = first; header < first + headers; header++) {
        int64_t name = column_at(&all->name, header, &start), content = column_at(&all->content, header, &start);
        if (name < 0 || content < -1) {
            return -1; /* A header without a name is none. */
        }
        size += field_size(name) + field_size(content);
    }
    return size;
}

static uint8_t *
write_row(uint8_t *at, const columns *all, int64_t row, int64_t offset_delta, int64_t timestamp_delta)
{
    const uint8_t *start = NULL;
    int64_t first = 0, length;
    *at++ = 0;
    at = write_varint(at, timestamp_delta);
    at = write_varint(at, offset_delta);
    length = column_at(&all->key, row, &start);
    at = write_field(at, start, length);
    length = column_at(&all->value, row, &start);
    at = write_field(at, start, length);
    int64_t headers = headers_at(all, row, &first);
    at = write_varint(at, headers);
    for (int64_t header = first; header < first + headers; header++) {
        length = column_at(&all->name, header, &start);
        at = write_field(at, start, length);
        length = column_at(&all->content, header, &start);
        at = write_field(at, start, length);
    }
    return at;
}

static int
take_columns(PyObject *const *args, columns *all)
{
    if (PyObject_GetBuffer(args[0], &all->rows, PyBUF_SIMPLE) < 0
        || PyObject_GetBuffer(args[3], &all->timestamps, PyBUF_SIMPLE) < 0 || take_column(args[4], &all->key) < 0
        || take_column(args[5], &all->value) < 0) {
        return -1;
    }
    all->number = all->timestamps.len / 8;
    PyObject *headers = args[6];
    if (headers == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(headers) || PyTuple_GET_SIZE(headers) != 3) {
        PyErr_SetString(PyExc_TypeError, "headers are offsets, names and contents");
        return -1;
    }
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(headers, 0), &all->lists, PyBUF_SIMPLE) < 0
        || take_column(PyTuple_GET_ITEM(headers, 1), &all->name) < 0
        || take_column(PyTuple_GET_ITEM(headers, 2), &all->content) < 0) {
        return -1;
    }
    all->lists_number = all->lists.len / 4 - 1;
    return 0;
}

PyDoc_STRVAR(pack_columns_doc, "pack_columns(rows, first, bytes_max, timestamps, key, value, headers)\n--\n\n"
                               "Records of the rows from the `first` on, at most `bytes_max` of them but at least one: "
                               "their bytes behind room for a batch's header, their number, the first and the latest "
                               "timestamp.");

static PyObject *
native_pack_columns(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (expect(count, 7) < 0) {
        return NULL;
    }
    columns all;
    memset(&all, 0, sizeof all);
    PyObject *packed = NULL, *result = NULL;
    Py_ssize_t first = PyLong_AsSsize_t(args[1]), bytes_max = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || take_columns(args, &all) < 0) {
        goto done;
    }
    const int64_t *rows = all.rows.buf, *timestamps = all.timestamps.buf;
    Py_ssize_t last = all.rows.len / 8, total = 0, number = 0;
    if (first < 0 || first >= last || rows[first] < 0 || rows[first] >= all.number) {
        goto outside;
    }
    int64_t base = timestamps[rows[first]], latest = base;
    for (Py_ssize_t index = first; index < last; index++, number++) {
        int64_t row = rows[index];
        if (row < 0 || row >= all.number) {
            goto outside;
        }
        Py_ssize_t size = row_size(&all, row, number, timestamps[row] - base);
        if (size < 0) {
            goto outside;
        }
        size += varint_size(size);
        if (number && total + size > bytes_max) {
            break;
        }
        total += size;
        if (timestamps[row] > latest) {
            latest = timestamps[row];
        }
    }
    packed = PyByteArray_FromStringAndSize(NULL, HEADER_SIZE + total);
    if (packed == NULL) {
        goto done;
    }
    uint8_t *at = (uint8_t *)PyByteArray_AS_STRING(packed);
    memset(at, 0, HEADER_SIZE);
    at += HEADER_SIZE;
    for (Py_ssize_t index = 0; index < number; index++) {
        int64_t row = rows[first + index], timestamp_delta = timestamps[row] - base;
        at = write_varint(at, row_size(&all, row, index, timestamp_delta));
        at = write_row(at, &all, row, index, timestamp_delta);
    }
    result = Py_BuildValue("(OnLL)", packed, number, (long long)base, (long long)latest);
    goto done;
outside:
    PyErr_SetString(PyExc_ValueError, "the columns do not hold that row");
done:
    Py_XDECREF(packed);
    release_columns(&all);
    return result;
}

/* ---- Where rows go ------------------------------------------------------------------------------------------- */

static int
partition_count_of(PyObject *number, int64_t *partitions)
{
    if (clipped(number, partitions) < 0) {
        return -1;
    }
    if (*partitions < 1 || *partitions > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a topic has at least one partition, and at most 2^31 - 1");
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(place_keys_doc, "place_keys(key, count)\n--\n\n"
                             "The partition of each row's key among `count`, as Java's producer chooses it, 64 bits "
                             "each; -1 where a row has none.");

static PyObject *
native_place_keys(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    int64_t partitions;
    bytes_column key;
    PyObject *placed = NULL;
    memset(&key, 0, sizeof key);
    if (expect(count, 2) < 0 || partition_count_of(args[1], &partitions) < 0) {
        return NULL;
    }
    if (take_column(args[0], &key) < 0) {
        goto done;
    }
    if (!key.given || key.number < 0) {
        goto outside;
    }
    placed = PyBytes_FromStringAndSize(NULL, key.number * 8);
    if (placed == NULL) {
        goto done;
    }
    int64_t *at = (int64_t *)PyBytes_AS_STRING(placed);
    for (Py_ssize_t row = 0; row < key.number; row++) {
        const uint8_t *start = NULL;
        int64_t length = column_at(&key, row, &start);
        if (length < -1) {
            Py_CLEAR(placed);
            goto outside;
        }
        at[row] = length < 0 ? -1 : (int64_t)(murmur2_of(start, (uint32_t)length) & 0x7FFFFFFFu) % partitions;
    }
    goto done;
outside:
    PyErr_SetString(PyExc_ValueError, "the columns do not hold that row");
done:
    release_column(&key);
    return placed;
}

/* A pair of a partition and room for the numbers of its rows, whose place is told. */
static PyObject *
partition_and_rows(int64_t partition, int64_t number, int64_t **rows)
{
    PyObject *room = PyBytes_FromStringAndSize(NULL, number * 8);
    if (room == NULL) {
        return NULL;
    }
    *rows = (int64_t *)PyBytes_AS_STRING(room);
    return Py_BuildValue("(LN)", (long long)partition, room);
}

PyDoc_STRVAR(part_rows_doc, "part_rows(partitions, count)\n--\n\n"
                            "Each partition that some rows go to, and the numbers of those rows, in order; 64 bits "
                            "each, as the partitions of the rows are.");

static PyObject *
native_part_rows(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    int64_t partitions;
    Py_buffer view;
    if (expect(count, 2) < 0 || partition_count_of(args[1], &partitions) < 0
        || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const int64_t *placed = view.buf;
    Py_ssize_t number = view.len / 8;
    PyObject *parted = PyList_New(0);
    int64_t *counts = PyMem_Calloc((size_t)partitions, sizeof *counts);
    int64_t **next = PyMem_Calloc((size_t)partitions, sizeof *next);
    if (parted == NULL || counts == NULL || next == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t row = 0; row < number; row++) {
        if (placed[row] < 0 || placed[row] >= partitions) {
            PyErr_SetString(PyExc_ValueError, "the topic has no such partition");
            goto failed;
        }
        counts[placed[row]]++;
    }
    for (int64_t partition = 0; partition < partitions; partition++) {
        if (!counts[partition]) {
            continue;
        }
        PyObject *pair = partition_and_rows(partition, counts[partition], &next[partition]);
        if (pair == NULL || PyList_Append(parted, pair) < 0) {
            Py_XDECREF(pair);
            goto failed;
        }
        Py_DECREF(pair);
    }
    for (Py_ssize_t row = 0; row < number; row++) {
        *next[placed[row]]++ = row;
    }
    goto done;
failed:
    Py_CLEAR(parted);
done:
    PyMem_Free(counts);
    PyMem_Free(next);
    PyBuffer_Release(&view);
    return parted;
}

static PyMethodDef methods[] = {
    {"crc32c", (PyCFunction)(void (*)(void))native_crc32c, METH_FASTCALL, crc32c_doc},
    {"crc_matches", (PyCFunction)(void (*)(void))native_crc_matches, METH_FASTCALL, crc_matches_doc},
    {"parse_header", (PyCFunction)(void (*)(void))native_parse_header, METH_FASTCALL, parse_header_doc},
    {"walk", (PyCFunction)(void (*)(void))native_walk, METH_FASTCALL, walk_doc},
    {"check", (PyCFunction)(void (*)(void))native_check, METH_FASTCALL, check_doc},
    {"pack_records", (PyCFunction)(void (*)(void))native_pack_records, METH_FASTCALL, pack_records_doc},
    {"pack_columns", (PyCFunction)(void (*)(void))native_pack_columns, METH_FASTCALL, pack_columns_doc},
    {"place_keys", (PyCFunction)(void (*)(void))native_place_keys, METH_FASTCALL, place_keys_doc},
    {"part_rows", (PyCFunction)(void (*)(void))native_part_rows, METH_FASTCALL, part_rows_doc},
    {"unpack_records", (PyCFunction)(void (*)(void))native_unpack_records, METH_FASTCALL, unpack_records_doc},
    {"crc32c_by_table", native_crc32c_by_table, METH_O, crc32c_by_table_doc},
    {NULL, NULL, 0, NULL},
};

static int
module_exec(PyObject *module)
{
    make_crc_table();
    return PyModule_AddStringConstant(module, "CRC_BY", choose_crc());
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.records._native",
    .m_doc = "The work on every byte of a record batch, compiled. The twin of ottla.records._pure.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
