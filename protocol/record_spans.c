/* The compiled form of record_spans.py: the same names, the same results, the same errors. record_spans.py says what
 * each method promises, and tests/unit/protocol/test_record_spans.py holds both forms equal. What they do is in
 * record_spans.h; here Python's objects become its arguments, and its problems Python's exceptions.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "record_spans.h"

#define ALONE_SIZE (64 << 10) /* bytes for which it pays to let other threads run */

enum { KEYS = 1, VALUES = 2 };

typedef struct {
    PyObject_HEAD
    struct rows rows;
    Py_buffer outputs[3];  /* offsets, timestamps, headers */
    Py_buffer *buffers;    /* in which the spans lie */
    Py_ssize_t buffers_count, buffers_room;
    PyObject *malformed; /* MalformedMessage */
} RecordSpans;

static PyObject *raise(const RecordSpans *self, enum problem problem, const struct batch *batch) {
    static const char *const texts[] = {
        [PAST_BATCH] = "a record goes past the end of its batch",
        [PAST_RECORD] = "a record goes past its end",
        [LONG_NUMBER] = "a number of too many bytes",
        [FOREIGN_OFFSET] = "a record's offset is not one of its batch",
        [WRONG_SIZE] = "a record is not as long as it says",
    };
    if (problem == WRONG_COUNT)
        return PyErr_Format(self->malformed, "%lld records do not fill the %lld bytes of their batch",
                            (long long)batch->records_count, (long long)(batch->end - batch->at));
    PyErr_SetString(self->malformed, texts[problem]);
    return NULL;
}

/* The address of a buffer, which is kept until the spans go. NULL with an error where there is no memory. */
static const Py_buffer *keep(RecordSpans *self, PyObject *data) {
    if (self->buffers_count && self->buffers[self->buffers_count - 1].obj == data)
        return &self->buffers[self->buffers_count - 1];
    if (self->buffers_count == self->buffers_room) {
        Py_ssize_t room = 2 * self->buffers_room + 4;
        Py_buffer *more = PyMem_Resize(self->buffers, Py_buffer, (size_t)room);
        if (more == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        self->buffers = more;
        self->buffers_room = room;
    }
    if (PyObject_GetBuffer(data, &self->buffers[self->buffers_count], PyBUF_SIMPLE) < 0)
        return NULL;
    return &self->buffers[self->buffers_count++];
}

static PyObject *read_records(RecordSpans *self, PyObject *arguments) {
    PyObject *data;
    long long start, end, records_count, base_offset, last_offset_delta, base_time;
    int has_append_time;
    if (!PyArg_ParseTuple(arguments, "OLLLLLLp", &data, &start, &end, &records_count, &base_offset,
                          &last_offset_delta, &base_time, &has_append_time))
        return NULL;
    const Py_buffer *kept = keep(self, data);
    if (kept == NULL)
        return NULL;
    if (start < 0 || start > end || end > kept->len) {
        PyErr_SetString(PyExc_AssertionError, "the records lie in the buffer");
        return NULL;
    }
    const uint8_t *bytes = kept->buf;
    struct batch batch = {bytes + start, bytes + end,       records_count,  base_offset,
                          last_offset_delta, base_time, has_append_time};
    if (records_count <= end - start && records_count > self->rows.capacity - self->rows.count) {
        PyErr_SetString(PyExc_AssertionError, "there is room for the records");
        return NULL;
    }
    enum problem problem;
    if (end - start < ALONE_SIZE) {
        problem = read_batch(&self->rows, &batch);
    } else {
        Py_BEGIN_ALLOW_THREADS
        problem = read_batch(&self->rows, &batch);
        Py_END_ALLOW_THREADS
    }
    if (problem)
        return raise(self, problem, &batch);
    Py_RETURN_NONE;
}

static PyObject *keep_chosen(RecordSpans *self, PyObject *argument) {
    Py_buffer is_kept;
    if (PyObject_GetBuffer(argument, &is_kept, PyBUF_SIMPLE) < 0)
        return NULL;
    int is_right = is_kept.len == self->rows.count;
    if (is_right)
        keep_rows(&self->rows, is_kept.buf);
    else
        PyErr_SetString(PyExc_AssertionError, "a byte for each record");
    PyBuffer_Release(&is_kept);
    return is_right ? Py_NewRef(Py_None) : NULL;
}

static const struct column *column_of(const RecordSpans *self, int name) {
    const struct column *column = name == KEYS ? &self->rows.keys : &self->rows.values;
    if ((name == KEYS || name == VALUES) && column->spans != NULL)
        return column;
    PyErr_SetString(PyExc_AssertionError, "a column that is wanted");
    return NULL;
}

static PyObject *needs(RecordSpans *self, PyObject *argument) {
    long name = PyLong_AsLong(argument);
    const struct column *column = PyErr_Occurred() ? NULL : column_of(self, (int)name);
    return column == NULL ? NULL : Py_BuildValue("LL", (long long)column->size, (long long)column->nulls_count);
}

static PyObject *copy(RecordSpans *self, PyObject *arguments) {
    int name;
    Py_buffer ends, data, validity = {0};
    PyObject *bits;
    if (!PyArg_ParseTuple(arguments, "iw*w*O", &name, &ends, &data, &bits))
        return NULL;
    int64_t count = self->rows.count;
    const struct column *column = column_of(self, name);
    int is_right = column != NULL;
    if (is_right && bits != Py_None)
        is_right = PyObject_GetBuffer(bits, &validity, PyBUF_WRITABLE) == 0;
    if (is_right && (ends.len < 4 * (count + 1) || data.len < column->size || column->size > INT32_MAX ||
                     (bits == Py_None ? column->nulls_count > 0 : validity.len < (count + 7) / 8))) {
        PyErr_SetString(PyExc_AssertionError, "room for the column, which has less than 2 GiB");
        is_right = 0;
    }
    if (is_right) {
        Py_BEGIN_ALLOW_THREADS
        copy_fields(column, count, ends.buf, data.buf, validity.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&ends);
    PyBuffer_Release(&data);
    PyBuffer_Release(&validity);
    return is_right ? Py_NewRef(Py_None) : NULL;
}

/* Take a buffer for `capacity` numbers, or None. */
static int take_output(RecordSpans *self, int number, PyObject *given, int64_t **output) {
    Py_buffer *taken = &self->outputs[number];
    if (given == Py_None)
        return 0;
    if (PyObject_GetBuffer(given, taken, PyBUF_WRITABLE) < 0)
        return -1;
    if (taken->len < 8 * self->rows.capacity) {
        PyErr_SetString(PyExc_AssertionError, "room for a number of each record");
        return -1;
    }
    *output = taken->buf;
    return 0;
}

static int take_column(RecordSpans *self, struct column *column) {
    column->spans = PyMem_New(struct span, (size_t)self->rows.capacity + 1);
    if (column->spans == NULL)
        PyErr_NoMemory();
    return column->spans == NULL ? -1 : 0;
}

static int initialize(RecordSpans *self, PyObject *arguments, PyObject *Py_UNUSED(keywords)) {
    long long capacity, start_offset, end_offset;
    PyObject *offsets, *timestamps, *headers;
    int fields;
    if (!PyArg_ParseTuple(arguments, "LLLiOOO", &capacity, &start_offset, &end_offset, &fields, &offsets, &timestamps,
                          &headers))
        return -1;
    PyObject **malformed = PyType_GetModuleState(Py_TYPE(self));
    if (malformed == NULL)
        return -1;
    if (self->malformed != NULL || capacity < 0 || offsets == Py_None) {
        PyErr_SetString(PyExc_AssertionError, "new spans, and room for offsets");
        return -1;
    }
    self->malformed = Py_NewRef(*malformed);
    struct rows *rows = &self->rows;
    rows->capacity = capacity;
    rows->start_offset = start_offset;
    rows->end_offset = end_offset;
    if (take_output(self, 0, offsets, &rows->offsets) < 0 || take_output(self, 1, timestamps, &rows->timestamps) < 0 ||
        take_output(self, 2, headers, &rows->headers) < 0)
        return -1;
    if ((fields & KEYS && take_column(self, &rows->keys) < 0) ||
        (fields & VALUES && take_column(self, &rows->values) < 0))
        return -1;
    return 0;
}

static void deallocate(RecordSpans *self) {
    PyTypeObject *type = Py_TYPE(self);
    for (Py_ssize_t each = 0; each < self->buffers_count; each++)
        PyBuffer_Release(&self->buffers[each]);
    for (int each = 0; each < 3; each++)
        PyBuffer_Release(&self->outputs[each]);
    PyMem_Free(self->buffers);
    PyMem_Free(self->rows.keys.spans);
    PyMem_Free(self->rows.values.spans);
    Py_XDECREF(self->malformed);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"count", T_LONGLONG, offsetof(RecordSpans, rows.count), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"read", (PyCFunction)read_records, METH_VARARGS, NULL},
    {"keep", (PyCFunction)keep_chosen, METH_O, NULL},
    {"needs", (PyCFunction)needs, METH_O, NULL},
    {"copy", (PyCFunction)copy, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_init, initialize},
    {Py_tp_dealloc, deallocate},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec type_spec = {"record_spans.RecordSpans", sizeof(RecordSpans), 0, Py_TPFLAGS_DEFAULT, type_slots};

/* MalformedMessage, by a relative import: a wheel has all packages one level deeper. */
static PyObject *import_malformed(PyObject *module) {
    PyObject *names = Py_BuildValue("[s]", "MalformedMessage"), *found = NULL;
    PyObject *primitives = names == NULL ? NULL
        : PyImport_ImportModuleLevel("primitives", PyModule_GetDict(module), NULL, names, 1);
    if (primitives != NULL)
        found = PyObject_GetAttrString(primitives, "MalformedMessage");
    Py_XDECREF(primitives);
    Py_XDECREF(names);
    return found;
}

static int execute(PyObject *module) {
    PyObject **malformed = PyModule_GetState(module); /* it stays as long as the process */
    if ((*malformed = import_malformed(module)) == NULL)
        return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &type_spec, NULL);
    int result = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    if (result == 0)
        result = PyModule_AddIntConstant(module, "KEYS", KEYS);
    if (result == 0)
        result = PyModule_AddIntConstant(module, "VALUES", VALUES);
    return result < 0 ? result : PyModule_AddIntConstant(module, "NO_HEADERS", NO_HEADERS);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "record_spans", .m_size = sizeof(PyObject *), .m_slots = module_slots};

PyMODINIT_FUNC PyInit_record_spans(void) {
    return PyModuleDef_Init(&definition);
}
