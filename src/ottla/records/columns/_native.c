/* Records by columns, compiled: the twin of _pure.py.
 *
 * One walk over the records of many batches puts every field where Arrow wants it. The bytes come from a broker that is
 * not trusted: every length is compared with the bytes that are left before a pointer moves (`_batch.h`), and no buffer
 * is larger than what the bytes can fill. Nothing of Python is touched during the walk, so that the GIL is let go: the
 * next bytes may be received meanwhile.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../_batch.h"

#define SPAN_FIELDS 7
#define RECORD_BYTES_MIN 7
#define HEADER_BYTES_MIN 2

/* Byte strings as Arrow keeps them: offsets, data, and a bit for each that is not null. */
typedef struct {
    PyObject *offsets_object, *data_object, *validity_object;
    int32_t *offsets;
    uint8_t *data;
    uint8_t *validity;
    int32_t used;
    int32_t count;
    int32_t nulls;
} binary_column;

typedef struct {
    PyObject *offsets_object, *timestamps_object, *types_object, *list_offsets_object, *list_validity_object;
    int64_t *offsets;
    int64_t *timestamps;
    int32_t *types;
    int32_t *list_offsets;
    uint8_t *list_validity;
    binary_column keys, values, header_keys, header_values;
    int32_t rows;
    int32_t rows_without_headers;
    int with_headers;
    int64_t first_offset, end_offset;
} table;

static void *
new_buffer(PyObject **object, Py_ssize_t size)
{
    *object = PyByteArray_FromStringAndSize(NULL, size);
    return *object == NULL ? NULL : PyByteArray_AS_STRING(*object);
}

static int
open_column(binary_column *column, Py_ssize_t rows_max, Py_ssize_t bytes_max)
{
    column->offsets = new_buffer(&column->offsets_object, (rows_max + 1) * (Py_ssize_t)sizeof(int32_t));
    column->data = new_buffer(&column->data_object, bytes_max);
    column->validity = new_buffer(&column->validity_object, rows_max / 8 + 1);
    if (column->offsets == NULL || column->data == NULL || column->validity == NULL) {
        return -1;
    }
    column->offsets[0] = 0;
    return 0;
}

static void
drop_column(binary_column *column)
{
    Py_CLEAR(column->offsets_object);
    Py_CLEAR(column->data_object);
    Py_CLEAR(column->validity_object);
}

static inline void
set_bit(uint8_t *bits, int32_t index, int value)
{
    if ((index & 7) == 0) {
        bits[index >> 3] = 0;
    }
    bits[index >> 3] |= (uint8_t)(value << (index & 7));
}

/* A negative length is null. */
static inline void
put(binary_column *column, const uint8_t *at, int32_t length)
{
    if (length < 0) {
        column->nulls++;
    } else {
        memcpy(column->data + column->used, at, (size_t)length);
        column->used += length;
    }
    set_bit(column->validity, column->count, length >= 0);
    column->offsets[++column->count] = column->used;
}

/* A length and that many bytes: where they begin, and how many (negative: null). */
static inline int
read_bytes(const uint8_t **at, const uint8_t *end, const uint8_t **begin, int32_t *length)
{
    int flaw = skip_bytes(at, end, length);
    *begin = *length > 0 ? *at - *length : *at;
    return flaw;
}

static int
read_headers(table *table, const uint8_t **at, const uint8_t *end, int keep)
{
    int32_t count, key_length, value_length;
    const uint8_t *key, *value;
    int flaw = read_varint(at, end, &count);
    if (flaw != FLAW_NONE) {
        return flaw;
    }
    if (count < 0 || count > (end - *at) / HEADER_BYTES_MIN) {
        return FLAW_HEADER_COUNT;
    }
    for (int32_t left = count; left > 0; left--) {
        if ((flaw = read_bytes(at, end, &key, &key_length)) != FLAW_NONE) {
            return flaw;
        }
        if (key_length < 0) {
            return FLAW_HEADER_KEY;
        }
        if ((flaw = read_bytes(at, end, &value, &value_length)) != FLAW_NONE) {
            return flaw;
        }
        if (keep) {
            put(&table->header_keys, key, key_length);
            put(&table->header_values, value, value_length);
        }
    }
    if (keep) {
        set_bit(table->list_validity, table->rows, count > 0);
        table->rows_without_headers += count == 0;
        table->list_offsets[table->rows + 1] = table->header_keys.count;
    }
    return FLAW_NONE;
}

static int
read_span(table *table, const uint8_t *bytes, const int64_t *span)
{
    const uint8_t *at = bytes + span[0], *end = bytes + span[1];
    const int64_t base_offset = span[3], base_timestamp = span[4], max_timestamp = span[6];
    const int32_t type = (int32_t)span[5];
    for (int64_t left = span[2]; left > 0; left--) {
        int32_t length, offset_delta, key_length, value_length;
        int64_t timestamp_delta;
        const uint8_t *key, *value;
        int flaw = read_varint(&at, end, &length);
        if (flaw != FLAW_NONE) {
            return flaw;
        }
        if (length < 1 || length > end - at) {
            return FLAW_CUT;
        }
        const uint8_t *record_end = at + length;
        at++; /* attributes, which no version has used */
        if ((flaw = read_varlong(&at, record_end, &timestamp_delta)) != FLAW_NONE
            || (flaw = read_varint(&at, record_end, &offset_delta)) != FLAW_NONE
            || (flaw = read_bytes(&at, record_end, &key, &key_length)) != FLAW_NONE
            || (flaw = read_bytes(&at, record_end, &value, &value_length)) != FLAW_NONE) {
            return flaw;
        }
        int64_t offset = (int64_t)((uint64_t)base_offset + (uint64_t)(int64_t)offset_delta);
        int keep = offset >= table->first_offset && offset < table->end_offset;
        if ((flaw = read_headers(table, &at, record_end, keep && table->with_headers)) != FLAW_NONE) {
            return flaw;
        }
        if (at != record_end) {
            return FLAW_LENGTH;
        }
        if (keep) {
            uint64_t milliseconds = type ? (uint64_t)max_timestamp : (uint64_t)base_timestamp + (uint64_t)timestamp_delta;
            table->offsets[table->rows] = offset;
            table->timestamps[table->rows] = (int64_t)(milliseconds * 1000u);
            table->types[table->rows] = type;
            put(&table->keys, key, key_length);
            put(&table->values, value, value_length);
            table->rows++;
        }
    }
    return at == end ? FLAW_NONE : FLAW_TRAILING;
}

static PyObject *
close_column(binary_column *column)
{
    if (PyByteArray_Resize(column->offsets_object, (column->count + 1) * (Py_ssize_t)sizeof(int32_t)) < 0
        || PyByteArray_Resize(column->data_object, column->used) < 0
        || PyByteArray_Resize(column->validity_object, (column->count + 7) / 8) < 0) {
        return NULL;
    }
    return PyTuple_Pack(3, column->nulls ? column->validity_object : Py_None, column->offsets_object,
                        column->data_object);
}

static PyObject *
close_headers(table *table)
{
    if (!table->with_headers) {
        Py_RETURN_NONE;
    }
    if (PyByteArray_Resize(table->list_offsets_object, (table->rows + 1) * (Py_ssize_t)sizeof(int32_t)) < 0
        || PyByteArray_Resize(table->list_validity_object, (table->rows + 7) / 8) < 0) {
        return NULL;
    }
    PyObject *keys = close_column(&table->header_keys), *values = close_column(&table->header_values);
    if (keys == NULL || values == NULL) {
        Py_XDECREF(keys);
        Py_XDECREF(values);
        return NULL;
    }
    return Py_BuildValue("(iOONN)", (int)table->header_keys.count,
                         table->rows_without_headers ? table->list_validity_object : Py_None,
                         table->list_offsets_object, keys, values);
}

static PyObject *
close_table(table *table)
{
    Py_ssize_t rows = table->rows;
    if (PyByteArray_Resize(table->offsets_object, rows * 8) < 0 || PyByteArray_Resize(table->timestamps_object, rows * 8) < 0
        || PyByteArray_Resize(table->types_object, rows * 4) < 0) {
        return NULL;
    }
    PyObject *keys = close_column(&table->keys), *values = close_column(&table->values);
    PyObject *headers = close_headers(table);
    if (keys == NULL || values == NULL || headers == NULL) {
        Py_XDECREF(keys);
        Py_XDECREF(values);
        Py_XDECREF(headers);
        return NULL;
    }
    return Py_BuildValue("(nOOONNN)", rows, table->offsets_object, table->timestamps_object, table->types_object, keys,
                         values, headers);
}

static void
drop_table(table *table)
{
    Py_CLEAR(table->offsets_object);
    Py_CLEAR(table->timestamps_object);
    Py_CLEAR(table->types_object);
    Py_CLEAR(table->list_offsets_object);
    Py_CLEAR(table->list_validity_object);
    drop_column(&table->keys);
    drop_column(&table->values);
    drop_column(&table->header_keys);
    drop_column(&table->header_values);
}

static int
open_table(table *table, Py_ssize_t rows_max, Py_ssize_t bytes_max)
{
    table->offsets = new_buffer(&table->offsets_object, rows_max * 8);
    table->timestamps = new_buffer(&table->timestamps_object, rows_max * 8);
    table->types = new_buffer(&table->types_object, rows_max * 4);
    if (table->offsets == NULL || table->timestamps == NULL || table->types == NULL
        || open_column(&table->keys, rows_max, bytes_max) < 0 || open_column(&table->values, rows_max, bytes_max) < 0) {
        return -1;
    }
    if (!table->with_headers) {
        return 0;
    }
    Py_ssize_t headers_max = bytes_max / HEADER_BYTES_MIN;
    table->list_offsets = new_buffer(&table->list_offsets_object, (rows_max + 1) * 4);
    table->list_validity = new_buffer(&table->list_validity_object, rows_max / 8 + 1);
    if (table->list_offsets == NULL || table->list_validity == NULL
        || open_column(&table->header_keys, headers_max, bytes_max) < 0
        || open_column(&table->header_values, headers_max, bytes_max) < 0) {
        return -1;
    }
    table->list_offsets[0] = 0;
    return 0;
}

/* Do the spans lie in the bytes, and can they hold as many records as they say? How many rows and bytes at most? */
static int
measure(const int64_t *spans, Py_ssize_t count, Py_ssize_t size, Py_ssize_t *rows_max, Py_ssize_t *bytes_max)
{
    *rows_max = *bytes_max = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        const int64_t *span = spans + index * SPAN_FIELDS;
        if (span[0] < 0 || span[1] < span[0] || span[1] > size || span[2] < 0
            || span[2] > (span[1] - span[0]) / RECORD_BYTES_MIN) {
            return -1;
        }
        *rows_max += span[2];
        *bytes_max += span[1] - span[0];
        if (*bytes_max > INT32_MAX) {
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(columns_doc, "columns(data, spans, first_offset, end_offset, with_headers)\n--\n\n"
                          "The records of all spans, by columns.");

static PyObject *
columns(PyObject *module, PyObject *arguments)
{
    Py_buffer data, spans;
    long long first_offset, end_offset;
    int with_headers;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*y*LLp", &data, &spans, &first_offset, &end_offset, &with_headers)) {
        return NULL;
    }
    table table = {.first_offset = first_offset, .end_offset = end_offset, .with_headers = with_headers};
    PyObject *result = NULL;
    Py_ssize_t count = spans.len / (Py_ssize_t)(SPAN_FIELDS * sizeof(int64_t)), index = 0;
    Py_ssize_t rows_max, bytes_max;
    int flaw = FLAW_NONE;
    if (measure(spans.buf, count, data.len, &rows_max, &bytes_max) < 0) {
        PyErr_SetString(PyExc_ValueError, "a batch says that it has more records than its bytes can hold");
    } else if (open_table(&table, rows_max, bytes_max) == 0) {
        Py_BEGIN_ALLOW_THREADS
        for (; index < count && flaw == FLAW_NONE; index++) {
            flaw = read_span(&table, data.buf, (const int64_t *)spans.buf + index * SPAN_FIELDS);
        }
        Py_END_ALLOW_THREADS
        if (flaw == FLAW_NONE) {
            result = close_table(&table);
        } else {
            PyErr_SetString(PyExc_ValueError, "the bytes are not the records that their batch says");
        }
    }
    drop_table(&table);
    PyBuffer_Release(&data);
    PyBuffer_Release(&spans);
    return result;
}

static PyMethodDef methods[] = {
    {"columns", columns, METH_VARARGS, columns_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.records.columns._native",
    .m_doc = "Records by columns, compiled. The twin of _pure.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
