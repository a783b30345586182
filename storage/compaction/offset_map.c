/* The compiled form of offset_map.py: the same names, the same results, the same errors. offset_map.py says what each
 * function promises, and tests/unit/storage/compaction hold both forms equal. What they do is in offset_map.h; here
 * Python's objects become its arguments, and its problems Python's exceptions.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <sys/mman.h>

#include "offset_map.h"

#define SALT_SIZE 32
#define FATES_MAX (32 << 20)
#define SLACK_MAX 4096 /* slots behind the last one that a hash can give */

typedef struct {
    PyObject_HEAD
    struct map map;
    size_t table_size; /* of its memory, in bytes */
    PyObject *malformed; /* MalformedMessage */
} OffsetMap;

/* Raise what a reader has found. Returns NULL. */
static PyObject *raise(const OffsetMap *self, const struct reader *reader) {
    static const char *const of_record[] = {
        [PAST_BATCH] = "goes past the end of its batch",
        [NEGATIVE_KEY] = "has a key of a negative size",
        [KEY_PAST_END] = "has a key past its end",
    };
    static const char *const of_run[] = {
        [PAST_RUN] = "a record goes past the end of its batch",
        [LONG_VARINT] = "varint exceeds 32 bits",
        [LONG_VARLONG] = "varlong exceeds 64 bits",
    };
    if (reader->problem == BYTES_LEFT)
        return PyErr_Format(self->malformed, "%zd bytes after the %lld records of the batch",
                            (Py_ssize_t)(reader->limit - reader->at), (long long)reader->count);
    if (reader->problem == PAST_BATCH || reader->problem == NEGATIVE_KEY || reader->problem == KEY_PAST_END)
        return PyErr_Format(self->malformed, "record %lld %s", (long long)reader->number, of_record[reader->problem]);
    PyErr_SetString(self->malformed, of_run[reader->problem]);
    return NULL;
}

static struct reader reader_of(const Py_buffer *run, long long count, long long base_offset) {
    const uint8_t *bytes = run->buf;
    return (struct reader){.at = bytes, .limit = bytes + run->len, .count = count, .base_offset = base_offset};
}

static PyObject *index_run(OffsetMap *self, PyObject *arguments) {
    Py_buffer run;
    long long count, base_offset, start_offset;
    if (!PyArg_ParseTuple(arguments, "y*LLL", &run, &count, &base_offset, &start_offset))
        return NULL;
    struct reader reader = reader_of(&run, count, base_offset);
    long long read_count = index_records(&self->map, &reader, start_offset);
    PyBuffer_Release(&run);
    return read_count < 0 ? raise(self, &reader) : PyLong_FromLongLong(read_count);
}

static PyObject *select_run(OffsetMap *self, PyObject *arguments) {
    Py_buffer run;
    long long count, base_offset;
    int keeps_tombstones;
    if (!PyArg_ParseTuple(arguments, "y*LLp", &run, &count, &base_offset, &keeps_tombstones))
        return NULL;
    PyObject *kept = PyBytes_FromStringAndSize(NULL, run.len);
    if (kept == NULL) {
        PyBuffer_Release(&run);
        return NULL;
    }
    struct reader reader = reader_of(&run, count, base_offset);
    struct selection selection = {.kept = (uint8_t *)PyBytes_AS_STRING(kept), .max_timestamp_delta = INT64_MIN};
    int result = select_records(&self->map, &reader, keeps_tombstones, &selection);
    int is_whole = selection.kept_size == run.len;
    PyBuffer_Release(&run);
    if (result < 0) {
        Py_DECREF(kept);
        return raise(self, &reader);
    }
    if (is_whole)
        Py_SETREF(kept, Py_NewRef(PyTuple_GET_ITEM(arguments, 0))); /* nothing was copied */
    else if (_PyBytes_Resize(&kept, (Py_ssize_t)selection.kept_size) < 0)
        return NULL;
    return Py_BuildValue("NLLNL", kept, (long long)selection.kept_count, (long long)selection.max_timestamp_delta,
                         PyBool_FromLong(selection.has_tombstones), (long long)selection.without_key_count);
}

/* Whether these buffers have the keys and offsets of so many rows. */
static int are_rows(const Py_buffer *ends, const Py_buffer *data, const Py_buffer *offsets, Py_ssize_t count) {
    if (ends->len < 4 * (count + 1) || offsets->len < 8 * count)
        return 0;
    const int32_t *positions = ends->buf;
    for (Py_ssize_t row = 0; row < count; row++)
        if (positions[row] < 0 || positions[row] > positions[row + 1])
            return 0;
    return count == 0 || positions[count] <= data->len;
}

static PyObject *choose_keys(OffsetMap *self, PyObject *arguments) {
    Py_buffer ends, data, offsets, is_chosen;
    int takes_keys;
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*p", &ends, &data, &offsets, &is_chosen, &takes_keys))
        return NULL;
    int is_right = are_rows(&ends, &data, &offsets, is_chosen.len), has_room = 0;
    if (is_right) {
        struct keyed_rows rows = {ends.buf, data.buf, offsets.buf, is_chosen.buf, is_chosen.len};
        has_room = choose_rows(&self->map, &rows, takes_keys);
    } else {
        PyErr_SetString(PyExc_AssertionError, "the keys and offsets of the rows");
    }
    PyBuffer_Release(&ends);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&is_chosen);
    return is_right ? PyBool_FromLong(has_room) : NULL;
}

static PyObject *put(OffsetMap *self, PyObject *arguments) {
    Py_buffer key;
    long long offset;
    int is_tombstone = 0;
    uint64_t first, second;
    if (!PyArg_ParseTuple(arguments, "y*L|p", &key, &offset, &is_tombstone))
        return NULL;
    hash_key(self->map.salt, key.buf, (size_t)key.len, &first, &second);
    PyBuffer_Release(&key);
    if (self->map.table[self->map.end - 1].behind) {
        PyErr_SetString(PyExc_AssertionError, "the map is full");
        return NULL;
    }
    put_hashed(&self->map, first, second, offset, is_tombstone);
    Py_RETURN_NONE;
}

static PyObject *get(OffsetMap *self, PyObject *arguments) {
    Py_buffer key;
    uint64_t first, second;
    if (!PyArg_ParseTuple(arguments, "y*", &key))
        return NULL;
    hash_key(self->map.salt, key.buf, (size_t)key.len, &first, &second);
    PyBuffer_Release(&key);
    return PyLong_FromLongLong(get_hashed(&self->map, first, second));
}

static PyObject *raise_latest_offset(OffsetMap *self, PyObject *argument) {
    long long offset = PyLong_AsLongLong(argument);
    if (offset == -1 && PyErr_Occurred())
        return NULL;
    if (offset > self->map.latest_offset)
        self->map.latest_offset = offset;
    Py_RETURN_NONE;
}

static PyObject *forget_fates(OffsetMap *self, PyObject *Py_UNUSED(none)) {
    self->map.fates_count = 0;
    Py_RETURN_NONE;
}

static PyObject *fate(OffsetMap *self, PyObject *arguments) {
    long long first_offset, count;
    if (!PyArg_ParseTuple(arguments, "LL", &first_offset, &count))
        return NULL;
    return PyLong_FromLong(common_fate(&self->map, first_offset, count));
}

static PyObject *get_is_full(OffsetMap *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(is_full(&self->map));
}

static int allocate(OffsetMap *self, int64_t slots, long long fates_count) {
    int64_t slack = slots < SLACK_MAX ? slots : SLACK_MAX;
    size_t size = (size_t)(slots + slack + 1) * sizeof(struct entry);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
#ifdef MADV_HUGEPAGE
    madvise(memory, size, MADV_HUGEPAGE); /* fails on a kernel without huge pages */
#endif
    struct map *map = &self->map;
    map->table = memory;
    self->table_size = size;
    map->slots = slots;
    map->end = slots + slack;
    map->fates_count = fates_count < 0 ? 0 : fates_count > FATES_MAX ? FATES_MAX : fates_count;
    map->fates = PyMem_RawCalloc((size_t)map->fates_count + 1, 1); /* its pages are there once they are written */
    if (map->fates == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int initialize(OffsetMap *self, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"memory_size", "load_factor", "salt", "first_offset", "offsets_count", NULL};
    long long memory_size, first_offset = 0, offsets_count = 0;
    double load_factor;
    const char *salt;
    Py_ssize_t salt_size;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Ldy#|LL", names, &memory_size, &load_factor, &salt,
                                     &salt_size, &first_offset, &offsets_count))
        return -1;
    long long slots = memory_size / (long long)sizeof(struct entry);
    PyObject **malformed = PyType_GetModuleState(Py_TYPE(self));
    if (malformed == NULL)
        return -1;
    if (self->map.table != NULL || salt_size != SALT_SIZE || slots < 2) {
        PyErr_SetString(PyExc_AssertionError, "a new map, its salt, and room for one key and a free slot");
        return -1;
    }
    if (slots > UINT32_MAX)
        slots = UINT32_MAX; /* 32 bits of the hash give the slot */
    struct map *map = &self->map;
    memcpy(map->salt, salt, sizeof map->salt);
    map->first_fate_offset = first_offset;
    map->latest_offset = -1;
    double wanted = (double)slots * load_factor;
    map->count_max = wanted < 1 ? 1 : wanted < (double)(slots - 1) ? (int64_t)wanted : slots - 1;
    self->malformed = Py_NewRef(*malformed);
    return allocate(self, slots, offsets_count);
}

static void deallocate(OffsetMap *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (self->map.table != NULL)
        munmap(self->map.table, self->table_size);
    PyMem_RawFree(self->map.fates);
    Py_XDECREF(self->malformed);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"slots", T_LONGLONG, offsetof(OffsetMap, map.slots), READONLY, NULL},
    {"count", T_LONGLONG, offsetof(OffsetMap, map.count), READONLY, NULL},
    {"count_max", T_LONGLONG, offsetof(OffsetMap, map.count_max), READONLY, NULL},
    {"latest_offset", T_LONGLONG, offsetof(OffsetMap, map.latest_offset), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"is_full", (getter)get_is_full, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"put", (PyCFunction)put, METH_VARARGS, NULL},
    {"get", (PyCFunction)get, METH_VARARGS, NULL},
    {"raise_latest_offset", (PyCFunction)raise_latest_offset, METH_O, NULL},
    {"fate", (PyCFunction)fate, METH_VARARGS, NULL},
    {"forget_fates", (PyCFunction)forget_fates, METH_NOARGS, NULL},
    {"index_run", (PyCFunction)index_run, METH_VARARGS, NULL},
    {"select_run", (PyCFunction)select_run, METH_VARARGS, NULL},
    {"choose_keys", (PyCFunction)choose_keys, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_init, initialize},   {Py_tp_dealloc, deallocate}, {Py_tp_members, members},
    {Py_tp_getset, properties}, {Py_tp_methods, methods},    {0, NULL},
};

static PyType_Spec type_spec = {"offset_map.OffsetMap", sizeof(OffsetMap), 0, Py_TPFLAGS_DEFAULT, type_slots};

/* MalformedMessage, by a relative import: a wheel has all packages one level deeper. */
static PyObject *import_malformed(PyObject *module) {
    PyObject *names = Py_BuildValue("[s]", "MalformedMessage"), *found = NULL;
    PyObject *primitives = names == NULL ? NULL
        : PyImport_ImportModuleLevel("protocol.primitives", PyModule_GetDict(module), NULL, names, 3);
    if (primitives != NULL)
        found = PyObject_GetAttrString(primitives, "MalformedMessage");
    Py_XDECREF(primitives);
    Py_XDECREF(names);
    return found;
}

static const struct {
    const char *name;
    long value;
} constants[] = {
    {"ENTRY_SIZE", sizeof(struct entry)}, {"SALT_SIZE", SALT_SIZE},   {"NOT_FOUND", NOT_FOUND},
    {"FATES_MAX", FATES_MAX},             {"NOT_NOTED", NOT_NOTED},   {"SUPERSEDED", SUPERSEDED},
    {"LATEST", LATEST},                   {"LATEST_TOMBSTONE", LATEST_TOMBSTONE},
};

static int execute(PyObject *module) {
    PyObject **malformed = PyModule_GetState(module); /* it stays as long as the process */
    if ((*malformed = import_malformed(module)) == NULL)
        return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &type_spec, NULL);
    int result = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    for (size_t each = 0; result == 0 && each < sizeof constants / sizeof constants[0]; each++)
        result = PyModule_AddIntConstant(module, constants[each].name, constants[each].value);
    return result;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "offset_map", .m_size = sizeof(PyObject *), .m_slots = module_slots};

PyMODINIT_FUNC PyInit_offset_map(void) {
    return PyModuleDef_Init(&definition);
}
