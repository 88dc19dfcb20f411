/*
 * The two things that every produce request pays for, compiled: finding its batch behind an opening seen before, and
 * packing its answer. The same in Python, and what they mean, is in produce_codec.py, which the tests hold against this.
 *
 * Nothing here trusts the bytes: every read is preceded by a comparison with `end`.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { FIRST_VERSION = 3, LAST_VERSION = 13, FLEXIBLE_FROM = 9, HEADER_BYTES = 10 };

static inline int32_t int16_at(const uint8_t *p) { return (int16_t)((p[0] << 8) | p[1]); }

static inline int32_t int32_at(const uint8_t *p) {
    return (int32_t)(((uint32_t)p[0] << 24) | ((uint32_t)p[1] << 16) | ((uint32_t)p[2] << 8) | p[3]);
}

static inline uint8_t *put32(uint8_t *p, int32_t value) {
    uint32_t v = (uint32_t)value;
    p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v;
    return p + 4;
}

static inline uint8_t *put64(uint8_t *p, int64_t value) {
    return put32(put32(p, (int32_t)((uint64_t)value >> 32)), (int32_t)value);
}

/* find_opening(buffer, start, end, size, known) -> None | (version, correlation_id, opening, first, last) */
static PyObject *find_opening(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 5 || !PyByteArray_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[4])) {
        PyErr_SetString(PyExc_TypeError, "find_opening(bytearray, int, int, int, list)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(arguments[1]), end = PyLong_AsSsize_t(arguments[2]);
    Py_ssize_t size = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) return NULL;
    if (start < 0 || end > PyByteArray_GET_SIZE(arguments[0]) || size < 0 || end - start < HEADER_BYTES)
        Py_RETURN_NONE;
    const uint8_t *bytes = (const uint8_t *)PyByteArray_AS_STRING(arguments[0]);
    const uint8_t *p = bytes + start, *stop = bytes + end;
    int32_t version = int16_at(p + 2), correlation_id = int32_at(p + 4), client_id_size = int16_at(p + 8);
    if (int16_at(p) != 0 || version < FIRST_VERSION || version > LAST_VERSION ||
        version >= PyList_GET_SIZE(arguments[4]))
        Py_RETURN_NONE;
    p += HEADER_BYTES;
    if (client_id_size > 0) {
        if (stop - p < client_id_size) Py_RETURN_NONE;
        p += client_id_size;
    }
    if (version >= FLEXIBLE_FROM) {
        if (p >= stop || *p != 0) Py_RETURN_NONE; /* Tags in the header are for the full reading. */
        p++;
    }
    if (stop - p < size || stop - p - size < 4) Py_RETURN_NONE;
    PyObject *known = PyList_GET_ITEM(arguments[4], version);
    if (!PyDict_CheckExact(known)) {
        PyErr_SetString(PyExc_TypeError, "openings are kept in a dict for each version");
        return NULL;
    }
    PyObject *key = PyBytes_FromStringAndSize((const char *)p, size);
    if (key == NULL) return NULL;
    PyObject *opening = PyDict_GetItemWithError(known, key);
    Py_DECREF(key);
    if (opening == NULL) {
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NONE;
    }
    p += size;
    int64_t length = 0;
    if (version >= FLEXIBLE_FROM) {
        int shift = 0;
        for (;;) {
            if (p >= stop || shift > 28) Py_RETURN_NONE;
            uint8_t byte = *p++;
            length |= (int64_t)(byte & 0x7f) << shift;
            if (byte < 0x80) break;
            shift += 7;
        }
        length -= 1;
        if (length <= 0 || stop - p != length + 3 || p[length] || p[length + 1] || p[length + 2]) Py_RETURN_NONE;
    } else {
        length = int32_at(p);
        p += 4;
        if (length <= 0 || stop - p != length) Py_RETURN_NONE;
    }
    Py_ssize_t first = p - bytes;
    return Py_BuildValue("(iiOnn)", (int)version, (int)correlation_id, opening, first, first + (Py_ssize_t)length);
}

/* pack_one(version, correlation_id, head, index, base_offset, append_time_ms, log_start_offset) -> bytes */
static PyObject *pack_one(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 7 || !PyBytes_CheckExact(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "pack_one(int, int, bytes, int, int, int, int)");
        return NULL;
    }
    long version = PyLong_AsLong(arguments[0]), correlation_id = PyLong_AsLong(arguments[1]);
    long index = PyLong_AsLong(arguments[3]);
    long long base = PyLong_AsLongLong(arguments[4]), time = PyLong_AsLongLong(arguments[5]);
    long long log_start = PyLong_AsLongLong(arguments[6]);
    if (PyErr_Occurred()) return NULL;
    Py_ssize_t head = PyBytes_GET_SIZE(arguments[2]);
    int flexible = version >= FLEXIBLE_FROM;
    /* Of a partition: index, error, base offset, time; then log start; then record errors and message. */
    Py_ssize_t tail = 22 + (version >= 5 ? 8 : 0) + (flexible ? 9 : version >= 8 ? 10 : 4);
    Py_ssize_t size = 4 + 4 + (flexible ? 2 : 4) + head + tail;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, size);
    if (frame == NULL) return NULL;
    uint8_t *p = (uint8_t *)PyBytes_AS_STRING(frame);
    memset(p, 0, size);
    p = put32(put32(p, (int32_t)(size - 4)), (int32_t)correlation_id);
    if (flexible)
        p[1] = 2, p += 2;
    else
        p = put32(p, 1);
    memcpy(p, PyBytes_AS_STRING(arguments[2]), head);
    p = put32(p + head, (int32_t)index) + 2;
    p = put64(put64(p, base), time);
    if (version >= 5) p = put64(p, log_start);
    if (flexible)
        *p = 1; /* No record errors; what follows is null, no tags, no throttling, no tags. */
    else if (version >= 8)
        p[4] = p[5] = 0xff; /* No record errors, no message. */
    return frame;
}

static PyMethodDef methods[] = {
    {"find_opening", (PyCFunction)(void (*)(void))find_opening, METH_FASTCALL, NULL},
    {"pack_one", (PyCFunction)(void (*)(void))pack_one, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
