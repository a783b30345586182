/* The compiled form of offset_map.py: the same names, the same results, the same errors. offset_map.py says what each
 * function promises, and tests/unit/storage/compaction hold both forms equal.
 *
 * The entries lie in one table, ordered by the first 64 bits that stand for a key, each as near as possible behind the
 * slot that these bits give it (linear probing with ordered runs). So a search for a key that is not there ends after
 * a few neighbours even where the table is nine tenths full. The records of a run are read in blocks: all keys of a
 * block are hashed, and their slots fetched into the processor's cache, before the first of them is searched.
 *
 * Every read of a record is checked against the end of its run: the bytes come from a disk, and may be anything.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <sys/mman.h>

#define NAME "storage.compaction.offset_map"
#define ENTRY_SIZE 24
#define SALT_SIZE 32
#define FATES_MAX (32 << 20)
#define SLACK_MAX 4096 /* slots behind the last one that a hash can give, for the entries that are pushed there */
#define BLOCK 32       /* records that are read before the first of them is searched */

enum fate { NOT_NOTED, SUPERSEDED, LATEST, LATEST_TOMBSTONE };

struct entry {
    uint64_t first, second;
    uint64_t behind; /* the offset after that of the record; 0 where the entry is free */
};

typedef struct {
    PyObject_HEAD
    struct entry *table;
    size_t table_size; /* of its memory, in bytes */
    uint64_t salt[2];
    Py_ssize_t slots;
    Py_ssize_t end; /* slots and slack; the entry here is always free and ends every search */
    long long count, count_max, latest_offset;
    long long first_fate_offset, fates_count;
    uint8_t *fates;
    PyObject *malformed; /* MalformedMessage */
} OffsetMap;

/* SipHash-2-4 with 128 bits (Aumasson, Bernstein 2012) */

#define ROTATED(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))
#define ROUND                                                                                                          \
    do {                                                                                                               \
        v0 += v1, v1 = ROTATED(v1, 13) ^ v0, v0 = ROTATED(v0, 32);                                                     \
        v2 += v3, v3 = ROTATED(v3, 16) ^ v2;                                                                           \
        v0 += v3, v3 = ROTATED(v3, 21) ^ v0;                                                                           \
        v2 += v1, v1 = ROTATED(v1, 17) ^ v2, v2 = ROTATED(v2, 32);                                                     \
    } while (0)

static void hash_key(const uint64_t salt[2], const uint8_t *key, size_t size, uint64_t *first, uint64_t *second) {
    uint64_t v0 = salt[0] ^ 0x736f6d6570736575, v1 = salt[1] ^ 0x646f72616e646f6d ^ 0xee;
    uint64_t v2 = salt[0] ^ 0x6c7967656e657261, v3 = salt[1] ^ 0x7465646279746573, word;
    size_t left = size;
    for (; left >= 8; key += 8, left -= 8) {
        memcpy(&word, key, 8); /* in the byte order of the machine: the bits never leave it */
        v3 ^= word;
        ROUND;
        ROUND;
        v0 ^= word;
    }
    word = (uint64_t)size << 56;
    for (size_t each = 0; each < left; each++)
        word |= (uint64_t)key[each] << (8 * each);
    v3 ^= word;
    ROUND;
    ROUND;
    v0 ^= word;
    v2 ^= 0xee;
    for (int each = 0; each < 4; each++)
        ROUND;
    *first = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    for (int each = 0; each < 4; each++)
        ROUND;
    *second = v0 ^ v1 ^ v2 ^ v3;
}

/* The table */

static inline struct entry *home(const OffsetMap *map, uint64_t first) {
    return map->table + ((first >> 32) * (uint64_t)map->slots >> 32); /* ascends with `first` */
}

static inline void prefetch(const OffsetMap *map, uint64_t first) {
    const char *slot = (const char *)home(map, first);
    __builtin_prefetch(slot);
    __builtin_prefetch(slot + 64);
}

/* Where a key is or belongs. `first` may be that of several keys. */
static inline struct entry *place_of(const OffsetMap *map, uint64_t first, uint64_t second) {
    struct entry *entry = home(map, first);
    while (entry->behind && (entry->first < first || (entry->first == first && entry->second != second)))
        entry++;
    return entry;
}

static inline int is_at(const struct entry *entry, uint64_t first, uint64_t second) {
    return entry->behind && entry->first == first && entry->second == second;
}

static inline void note(OffsetMap *map, long long offset, enum fate fate) {
    uint64_t index = (uint64_t)offset - (uint64_t)map->first_fate_offset;
    if (index < (uint64_t)map->fates_count)
        map->fates[index] = fate;
}

static inline enum fate fate_at(const OffsetMap *map, long long offset) {
    uint64_t index = (uint64_t)offset - (uint64_t)map->first_fate_offset;
    return index < (uint64_t)map->fates_count ? map->fates[index] : NOT_NOTED;
}

static inline int is_full(const OffsetMap *map) {
    return map->count >= map->count_max || map->table[map->end - 1].behind;
}

/* The map must not be full. */
static void put_hashed(OffsetMap *map, uint64_t first, uint64_t second, long long offset, int is_tombstone) {
    if (offset <= map->latest_offset)
        map->fates_count = 0;
    struct entry *entry = place_of(map, first, second);
    if (is_at(entry, first, second)) {
        note(map, (long long)(entry->behind - 1), SUPERSEDED);
    } else {
        struct entry *vacant = entry;
        while (vacant->behind)
            vacant++;
        memmove(entry + 1, entry, (char *)vacant - (char *)entry);
        entry->first = first;
        entry->second = second;
        map->count++;
    }
    entry->behind = (uint64_t)offset + 1;
    note(map, offset, is_tombstone ? LATEST_TOMBSTONE : LATEST);
    map->latest_offset = offset;
}

static inline long long get_hashed(const OffsetMap *map, uint64_t first, uint64_t second) {
    const struct entry *entry = place_of(map, first, second);
    return is_at(entry, first, second) ? (long long)(entry->behind - 1) : -1;
}

/* Reading records */

struct record {
    const uint8_t *start, *key, *end;
    Py_ssize_t key_size; /* -1: there is no key */
    long long timestamp_delta, offset;
    uint64_t first, second;
    int is_tombstone, is_hashed;
};

struct reader {
    PyObject *malformed;
    const uint8_t *at, *limit;
    long long count, number; /* of all records; of the next */
    long long base_offset;
};

static int refuse_end(const struct reader *reader) {
    PyErr_SetString(reader->malformed, "a record goes past the end of its batch");
    return -1;
}

static int refuse(const struct reader *reader, const char *problem) {
    PyErr_Format(reader->malformed, "record %lld %s", reader->number, problem);
    return -1;
}

/* A varint or varlong before zig-zag decoding. Returns -1 with an exception set. */
static int read_slow(struct reader *reader, int bits, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < bits + 3; shift += 7) {
        if (reader->at >= reader->limit)
            return refuse_end(reader);
        uint8_t byte = *reader->at++;
        if (shift == 63 && byte > 1)
            break;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (bits == 32 && *value > 0xffffffff)
                break;
            return 0;
        }
    }
    PyErr_SetString(reader->malformed, bits == 32 ? "varint exceeds 32 bits" : "varlong exceeds 64 bits");
    return -1;
}

static inline int read_varint(struct reader *reader, int bits, uint64_t *value) {
    if (reader->at < reader->limit && *reader->at < 0x80) {
        *value = *reader->at++;
        return 0;
    }
    return read_slow(reader, bits, value);
}

static inline long long signed_of(uint64_t raw) {
    return (long long)((raw >> 1) ^ (0 - (raw & 1)));
}

/* Read the framing of the next record. Returns -1 with an exception set. */
static int read_record(struct reader *reader, struct record *record) {
    uint64_t size, timestamp_delta, offset_delta, key_size;
    record->start = reader->at;
    if (read_varint(reader, 32, &size) < 0)
        return -1;
    if (size & 1 || size >> 1 > (uint64_t)(reader->limit - reader->at))
        return refuse(reader, "goes past the end of its batch");
    const uint8_t *end = reader->at + (size >> 1);
    if (reader->at >= reader->limit)
        return refuse_end(reader);
    reader->at++; /* the attributes, none of which is defined */
    if (read_varint(reader, 64, &timestamp_delta) < 0 || read_varint(reader, 32, &offset_delta) < 0 ||
        read_varint(reader, 32, &key_size) < 0)
        return -1;
    if (key_size & 1 && key_size != 1)
        return refuse(reader, "has a key of a negative size");
    if (reader->at >= end || key_size >> 1 >= (uint64_t)(end - reader->at))
        return refuse(reader, "has a key past its end");
    record->key = reader->at;
    record->key_size = key_size == 1 ? -1 : (Py_ssize_t)(key_size >> 1);
    record->is_tombstone = reader->at[key_size >> 1] == 1;
    record->is_hashed = 0;
    record->end = reader->at = end;
    record->timestamp_delta = signed_of(timestamp_delta);
    record->offset = (long long)((uint64_t)reader->base_offset + (uint64_t)signed_of(offset_delta));
    reader->number++;
    return 0;
}

/* Whether the records end where the run does. */
static int check_end(const struct reader *reader) {
    if (reader->at == reader->limit)
        return 0;
    PyErr_Format(reader->malformed, "%zd bytes after the %lld records of the batch", reader->limit - reader->at,
                 reader->count);
    return -1;
}

static inline void prepare(const OffsetMap *map, struct record *record) {
    hash_key(map->salt, record->key, record->key_size, &record->first, &record->second);
    prefetch(map, record->first);
    record->is_hashed = 1;
}

/* Returns how many records were read, -1 with an exception set. */
static long long index_records(OffsetMap *map, struct reader *reader, long long start_offset) {
    struct record block[BLOCK];
    int is_sound = 1;
    while (is_sound && reader->number < reader->count) {
        int found = 0;
        long long before = reader->number;
        while (found < BLOCK && reader->number < reader->count) {
            struct record *record = &block[found];
            if (read_record(reader, record) < 0) {
                is_sound = 0; /* the map may be full before this record, which ends the walk without an error */
                break;
            }
            if (record->key_size >= 0 && record->offset >= start_offset)
                prepare(map, record);
            found++;
        }
        for (int each = 0; each < found; each++) {
            struct record *record = &block[each];
            if (!record->is_hashed)
                continue;
            if (is_full(map)) {
                PyErr_Clear();
                return before + each;
            }
            put_hashed(map, record->first, record->second, record->offset, record->is_tombstone);
        }
    }
    return is_sound && check_end(reader) == 0 ? reader->count : -1;
}

struct selection {
    PyObject *bytes; /* NULL while every record is kept */
    Py_ssize_t size;
    long long kept_count, without_key_count, max_timestamp_delta;
    int has_tombstones;
};

static int is_kept(const OffsetMap *map, const struct record *record, int keeps_tombstones) {
    if (record->offset > map->latest_offset)
        return 1;
    if (record->key_size < 0 || (record->is_tombstone && !keeps_tombstones))
        return 0;
    if (!record->is_hashed)
        return fate_at(map, record->offset) != SUPERSEDED;
    return record->offset >= get_hashed(map, record->first, record->second);
}

/* Returns -1 with an exception set. */
static int select_records(const OffsetMap *map, struct reader *reader, int keeps_tombstones, struct selection *into) {
    const uint8_t *begin = reader->at;
    struct record block[BLOCK];
    while (reader->number < reader->count) {
        int found = 0;
        while (found < BLOCK && reader->number < reader->count) {
            struct record *record = &block[found++];
            if (read_record(reader, record) < 0)
                return -1;
            if (record->key_size >= 0 && record->offset <= map->latest_offset &&
                fate_at(map, record->offset) == NOT_NOTED)
                prepare(map, record);
        }
        for (int each = 0; each < found; each++) {
            struct record *record = &block[each];
            size_t size = (size_t)(record->end - record->start);
            if (!is_kept(map, record, keeps_tombstones)) {
                into->without_key_count += record->key_size < 0;
                if (into->bytes == NULL) {
                    into->bytes = PyBytes_FromStringAndSize(NULL, reader->limit - begin);
                    if (into->bytes == NULL)
                        return -1;
                    into->size = record->start - begin;
                    memcpy(PyBytes_AS_STRING(into->bytes), begin, (size_t)into->size);
                }
                continue;
            }
            if (into->bytes != NULL) {
                memcpy(PyBytes_AS_STRING(into->bytes) + into->size, record->start, size);
                into->size += (Py_ssize_t)size;
            }
            into->kept_count++;
            into->has_tombstones |= record->is_tombstone;
            if (record->timestamp_delta > into->max_timestamp_delta)
                into->max_timestamp_delta = record->timestamp_delta;
        }
    }
    return check_end(reader);
}

/* The methods */

static PyObject *method_index_run(OffsetMap *map, PyObject *arguments) {
    Py_buffer run;
    long long count, base_offset, start_offset;
    if (!PyArg_ParseTuple(arguments, "y*LLL", &run, &count, &base_offset, &start_offset))
        return NULL;
    const uint8_t *bytes = run.buf;
    struct reader reader = {map->malformed, bytes, bytes + run.len, count, 0, base_offset};
    long long read_count = index_records(map, &reader, start_offset);
    PyBuffer_Release(&run);
    return read_count < 0 ? NULL : PyLong_FromLongLong(read_count);
}

static PyObject *method_select_run(OffsetMap *map, PyObject *arguments) {
    Py_buffer run;
    long long count, base_offset;
    int keeps_tombstones;
    if (!PyArg_ParseTuple(arguments, "y*LLp", &run, &count, &base_offset, &keeps_tombstones))
        return NULL;
    const uint8_t *bytes = run.buf;
    struct reader reader = {map->malformed, bytes, bytes + run.len, count, 0, base_offset};
    struct selection selection = {NULL, 0, 0, 0, INT64_MIN, 0};
    int result = select_records(map, &reader, keeps_tombstones, &selection);
    PyBuffer_Release(&run);
    if (selection.bytes == NULL)
        selection.bytes = Py_NewRef(PyTuple_GET_ITEM(arguments, 0));
    else if (result == 0)
        result = _PyBytes_Resize(&selection.bytes, selection.size);
    if (result < 0) {
        Py_XDECREF(selection.bytes);
        return NULL;
    }
    return Py_BuildValue("NLLNL", selection.bytes, selection.kept_count, selection.max_timestamp_delta,
                         PyBool_FromLong(selection.has_tombstones), selection.without_key_count);
}

static PyObject *method_put(OffsetMap *map, PyObject *arguments) {
    Py_buffer key;
    long long offset;
    int is_tombstone = 0;
    uint64_t first, second;
    if (!PyArg_ParseTuple(arguments, "y*L|p", &key, &offset, &is_tombstone))
        return NULL;
    hash_key(map->salt, key.buf, key.len, &first, &second);
    PyBuffer_Release(&key);
    if (map->table[map->end - 1].behind) {
        PyErr_SetString(PyExc_AssertionError, "the map is full");
        return NULL;
    }
    put_hashed(map, first, second, offset, is_tombstone);
    Py_RETURN_NONE;
}

static PyObject *method_get(OffsetMap *map, PyObject *arguments) {
    Py_buffer key;
    uint64_t first, second;
    if (!PyArg_ParseTuple(arguments, "y*", &key))
        return NULL;
    hash_key(map->salt, key.buf, key.len, &first, &second);
    PyBuffer_Release(&key);
    return PyLong_FromLongLong(get_hashed(map, first, second));
}

static PyObject *method_reach(OffsetMap *map, PyObject *argument) {
    long long offset = PyLong_AsLongLong(argument);
    if (offset == -1 && PyErr_Occurred())
        return NULL;
    if (offset > map->latest_offset)
        map->latest_offset = offset;
    Py_RETURN_NONE;
}

static PyObject *method_forget_fates(OffsetMap *map, PyObject *Py_UNUSED(none)) {
    map->fates_count = 0;
    Py_RETURN_NONE;
}

static PyObject *method_fate(OffsetMap *map, PyObject *arguments) {
    long long first_offset, count, each = 1;
    if (!PyArg_ParseTuple(arguments, "LL", &first_offset, &count))
        return NULL;
    uint64_t start = (uint64_t)first_offset - (uint64_t)map->first_fate_offset;
    if (count <= 0 || start >= (uint64_t)map->fates_count || count > map->fates_count - (long long)start)
        return PyLong_FromLong(NOT_NOTED);
    const uint8_t *fates = map->fates + start;
    while (each < count && fates[each] == fates[0])
        each++;
    return PyLong_FromLong(each == count ? fates[0] : NOT_NOTED);
}

static PyObject *get_is_full(OffsetMap *map, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(is_full(map));
}

static PyObject *get_utilization(OffsetMap *map, void *Py_UNUSED(closure)) {
    return PyFloat_FromDouble((double)map->count / (double)map->slots);
}

/* The type and the module */

static int allocate(OffsetMap *map, Py_ssize_t slots, long long fates_count) {
    Py_ssize_t slack = slots < SLACK_MAX ? slots : SLACK_MAX;
    size_t size = (size_t)(slots + slack + 1) * ENTRY_SIZE;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
#ifdef MADV_HUGEPAGE
    madvise(memory, size, MADV_HUGEPAGE); /* fails on a kernel without huge pages */
#endif
    map->table = memory;
    map->table_size = size;
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

static int initialize(OffsetMap *map, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"memory_size", "load_factor", "salt", "first_offset", "offsets_count", NULL};
    long long memory_size, first_offset = 0, offsets_count = 0;
    double load_factor;
    const char *salt;
    Py_ssize_t salt_size;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Ldy#|LL", names, &memory_size, &load_factor, &salt,
                                     &salt_size, &first_offset, &offsets_count))
        return -1;
    long long slots = memory_size / ENTRY_SIZE;
    if (map->table != NULL || salt_size != SALT_SIZE || slots < 2) {
        PyErr_SetString(PyExc_AssertionError, "a new map, its salt, and room for one key and a free slot");
        return -1;
    }
    if (slots > UINT32_MAX)
        slots = UINT32_MAX; /* 32 bits of the hash give the slot */
    memcpy(map->salt, salt, sizeof map->salt);
    map->first_fate_offset = first_offset;
    map->latest_offset = -1;
    double wanted = (double)slots * load_factor;
    map->count_max = wanted < 1 ? 1 : wanted < (double)(slots - 1) ? (long long)wanted : slots - 1;
    map->malformed = Py_NewRef(PyType_GetModuleState(Py_TYPE(map)) == NULL
                                   ? PyExc_ValueError
                                   : *(PyObject **)PyType_GetModuleState(Py_TYPE(map)));
    return allocate(map, (Py_ssize_t)slots, offsets_count);
}

static void deallocate(OffsetMap *map) {
    PyTypeObject *type = Py_TYPE(map);
    if (map->table != NULL)
        munmap(map->table, map->table_size);
    PyMem_RawFree(map->fates);
    Py_XDECREF(map->malformed);
    type->tp_free(map);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"slots", T_PYSSIZET, offsetof(OffsetMap, slots), READONLY, NULL},
    {"count", T_LONGLONG, offsetof(OffsetMap, count), READONLY, NULL},
    {"count_max", T_LONGLONG, offsetof(OffsetMap, count_max), READONLY, NULL},
    {"latest_offset", T_LONGLONG, offsetof(OffsetMap, latest_offset), READONLY, NULL},
    {NULL},
};

static PyGetSetDef properties[] = {
    {"is_full", (getter)get_is_full, NULL, NULL, NULL},
    {"utilization", (getter)get_utilization, NULL, NULL, NULL},
    {NULL},
};

static PyMethodDef methods[] = {
    {"put", (PyCFunction)method_put, METH_VARARGS, NULL},
    {"get", (PyCFunction)method_get, METH_VARARGS, NULL},
    {"reach", (PyCFunction)method_reach, METH_O, NULL},
    {"fate", (PyCFunction)method_fate, METH_VARARGS, NULL},
    {"forget_fates", (PyCFunction)method_forget_fates, METH_NOARGS, NULL},
    {"index_run", (PyCFunction)method_index_run, METH_VARARGS, NULL},
    {"select_run", (PyCFunction)method_select_run, METH_VARARGS, NULL},
    {NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_init, initialize}, {Py_tp_dealloc, deallocate}, {Py_tp_members, members},
    {Py_tp_getset, properties}, {Py_tp_methods, methods}, {0, NULL},
};

static PyType_Spec type_spec = {"offset_map.OffsetMap", sizeof(OffsetMap), 0, Py_TPFLAGS_DEFAULT, type_slots};

/* MalformedMessage, of the package that this module is part of: a wheel has all packages one level deeper. */
static PyObject *import_malformed(PyObject *module) {
    PyObject *own_name = PyModule_GetNameObject(module), *name = NULL, *primitives = NULL, *found = NULL;
    Py_ssize_t size = own_name == NULL ? 0 : PyUnicode_GET_LENGTH(own_name) - (Py_ssize_t)strlen(NAME);
    PyObject *prefix = size < 0 || own_name == NULL ? NULL : PyUnicode_Substring(own_name, 0, size);
    if (prefix != NULL)
        name = PyUnicode_FromFormat("%Uprotocol.primitives", prefix);
    if (name != NULL)
        primitives = PyImport_Import(name);
    if (primitives != NULL)
        found = PyObject_GetAttrString(primitives, "MalformedMessage");
    if (found == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ImportError, "this module must be " NAME);
    Py_XDECREF(primitives);
    Py_XDECREF(name);
    Py_XDECREF(prefix);
    Py_XDECREF(own_name);
    return found;
}

static int execute(PyObject *module) {
    PyObject **malformed = PyModule_GetState(module);
    if ((*malformed = import_malformed(module)) == NULL)
        return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &type_spec, NULL);
    if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    Py_DECREF(type);
    const struct {
        const char *name;
        long value;
    } constants[] = {
        {"ENTRY_SIZE", ENTRY_SIZE}, {"SALT_SIZE", SALT_SIZE},   {"NOT_FOUND", -1},     {"FATES_MAX", FATES_MAX},
        {"NOT_NOTED", NOT_NOTED},   {"SUPERSEDED", SUPERSEDED}, {"LATEST", LATEST},    {"LATEST_TOMBSTONE", LATEST_TOMBSTONE},
    };
    for (size_t each = 0; each < sizeof constants / sizeof constants[0]; each++)
        if (PyModule_AddIntConstant(module, constants[each].name, constants[each].value) < 0)
            return -1;
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "offset_map", NULL, sizeof(PyObject *),
                                        NULL,                  module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_offset_map(void) {
    return PyModuleDef_Init(&definition);
}
