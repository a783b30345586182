/* The table of offset_map.c and its loops over records, without anything of Python.
 *
 * The entries lie in one table, ordered by the first 64 bits that stand for a key, each as near as possible behind the
 * slot that these bits give it (linear probing with ordered runs). So a search for a key that is not there ends after
 * a few neighbours even where the table is nine tenths full. The records of a run are read in blocks: all keys of a
 * block are hashed, and their slots fetched into the processor's cache, before the first of them is searched.
 *
 * Every read of a record is checked against the end of its run: the bytes come from a disk, and may be anything.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NOT_FOUND (-1)
#define BLOCK 32 /* records that are read before the first of them is searched */

enum fate { NOT_NOTED, SUPERSEDED, LATEST, LATEST_TOMBSTONE };

struct entry {
    uint64_t first, second;
    uint64_t behind; /* the offset after that of the record; 0 where the entry is free */
};

struct map {
    struct entry *table;
    int64_t slots; /* which a hash can give; below 2^32 */
    int64_t end;   /* behind the slots for entries that are pushed there; the entry here is always free */
    uint64_t salt[2];
    int64_t count, count_max, latest_offset;
    int64_t first_fate_offset, fates_count;
    uint8_t *fates;
};

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

static inline struct entry *home(const struct map *map, uint64_t first) {
    return map->table + ((first >> 32) * (uint64_t)map->slots >> 32); /* ascends with `first` */
}

static inline void prefetch(const struct map *map, uint64_t first) {
    const char *slot = (const char *)home(map, first);
    __builtin_prefetch(slot);
    __builtin_prefetch(slot + 64);
}

/* Where a key is or belongs. `first` may be that of several keys. */
static inline struct entry *place_of(const struct map *map, uint64_t first, uint64_t second) {
    struct entry *entry = home(map, first);
    while (entry->behind && (entry->first < first || (entry->first == first && entry->second != second)))
        entry++;
    return entry;
}

static inline int is_at(const struct entry *entry, uint64_t first, uint64_t second) {
    return entry->behind && entry->first == first && entry->second == second;
}

static inline void note(struct map *map, int64_t offset, enum fate fate) {
    uint64_t index = (uint64_t)offset - (uint64_t)map->first_fate_offset;
    if (index < (uint64_t)map->fates_count)
        map->fates[index] = fate;
}

/* The fate at all of `count` offsets. */
static enum fate common_fate(const struct map *map, int64_t first_offset, int64_t count) {
    uint64_t start = (uint64_t)first_offset - (uint64_t)map->first_fate_offset;
    if (count <= 0 || start >= (uint64_t)map->fates_count || count > map->fates_count - (int64_t)start)
        return NOT_NOTED;
    const uint8_t *fates = map->fates + start;
    for (int64_t each = 1; each < count; each++)
        if (fates[each] != fates[0])
            return NOT_NOTED;
    return fates[0];
}

static inline int is_full(const struct map *map) {
    return map->count >= map->count_max || map->table[map->end - 1].behind;
}

/* The map must not be full. */
static void put_hashed(struct map *map, uint64_t first, uint64_t second, int64_t offset, int is_tombstone) {
    if (offset <= map->latest_offset)
        map->fates_count = 0;
    struct entry *entry = place_of(map, first, second);
    if (is_at(entry, first, second)) {
        note(map, (int64_t)(entry->behind - 1), SUPERSEDED);
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

static inline int64_t get_hashed(const struct map *map, uint64_t first, uint64_t second) {
    const struct entry *entry = place_of(map, first, second);
    return is_at(entry, first, second) ? (int64_t)(entry->behind - 1) : NOT_FOUND;
}

/* Keys of rows as Arrow's binary type stores them, each with an offset. */
struct keyed_rows {
    const int32_t *ends; /* one more than there are rows */
    const uint8_t *data;
    const int64_t *offsets;
    uint8_t *is_chosen;
    int64_t count;
};

/* Walk over the chosen rows from the last to the first. A row whose key has its offset or a later one in the map is not
 * chosen any more; the offset of any other row is put into the map, that of a new key only with `takes_keys`. Returns
 * whether there was room for all new keys. */
static int choose_rows(struct map *map, const struct keyed_rows *rows, int takes_keys) {
    struct {
        uint64_t first, second;
        int64_t row;
    } block[BLOCK];
    int has_room = 1;
    for (int64_t row = rows->count; row > 0;) {
        int found = 0;
        while (found < BLOCK && row > 0) {
            if (!rows->is_chosen[--row])
                continue;
            size_t size = (size_t)(rows->ends[row + 1] - rows->ends[row]);
            hash_key(map->salt, rows->data + rows->ends[row], size, &block[found].first, &block[found].second);
            prefetch(map, block[found].first);
            block[found++].row = row;
        }
        for (int each = 0; each < found; each++) {
            int64_t offset = rows->offsets[block[each].row];
            int64_t known = get_hashed(map, block[each].first, block[each].second);
            if (known >= offset)
                rows->is_chosen[block[each].row] = 0;
            else if (known != NOT_FOUND || (takes_keys && !is_full(map)))
                put_hashed(map, block[each].first, block[each].second, offset, 0);
            else if (takes_keys)
                has_room = 0;
        }
    }
    return has_room;
}

/* Reading records */

struct record {
    const uint8_t *start, *key, *end;
    int64_t key_size; /* -1: there is no key */
    int64_t timestamp_delta, offset;
    uint64_t first, second;
    int is_tombstone, is_hashed;
};

enum problem { NONE, PAST_RUN, PAST_BATCH, NEGATIVE_KEY, KEY_PAST_END, LONG_VARINT, LONG_VARLONG, BYTES_LEFT };

struct reader {
    const uint8_t *at, *limit;
    int64_t count, number; /* of all records; of the next */
    int64_t base_offset;
    enum problem problem;
};

/* Returns -1. */
static inline int refuse(struct reader *reader, enum problem problem) {
    reader->problem = problem;
    return -1;
}


/* A varint or varlong before zig-zag decoding. Returns -1 where there is a problem. */
static int read_slow(struct reader *reader, int bits, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < bits + 3; shift += 7) {
        if (reader->at >= reader->limit)
            return refuse(reader, PAST_RUN);
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
    return refuse(reader, bits == 32 ? LONG_VARINT : LONG_VARLONG);
}

static inline int read_varint(struct reader *reader, int bits, uint64_t *value) {
    if (reader->at < reader->limit && *reader->at < 0x80) {
        *value = *reader->at++;
        return 0;
    }
    return read_slow(reader, bits, value);
}

static inline int64_t signed_of(uint64_t raw) {
    return (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
}

/* Read the framing of the next record. Returns -1 where there is a problem. */
static int read_record(struct reader *reader, struct record *record) {
    uint64_t size, timestamp_delta, offset_delta, key_size;
    record->start = reader->at;
    if (read_varint(reader, 32, &size) < 0)
        return -1;
    if (size & 1 || size >> 1 > (uint64_t)(reader->limit - reader->at))
        return refuse(reader, PAST_BATCH);
    const uint8_t *end = reader->at + (size >> 1);
    if (reader->at >= reader->limit)
        return refuse(reader, PAST_RUN);
    reader->at++; /* the attributes, none of which is defined */
    if (read_varint(reader, 64, &timestamp_delta) < 0 || read_varint(reader, 32, &offset_delta) < 0 ||
        read_varint(reader, 32, &key_size) < 0)
        return -1;
    if (key_size & 1 && key_size != 1)
        return refuse(reader, NEGATIVE_KEY);
    if (reader->at >= end || key_size >> 1 >= (uint64_t)(end - reader->at))
        return refuse(reader, KEY_PAST_END);
    record->key = reader->at;
    record->key_size = key_size == 1 ? -1 : (int64_t)(key_size >> 1);
    record->is_tombstone = reader->at[key_size >> 1] == 1;
    record->is_hashed = 0;
    record->end = reader->at = end;
    record->timestamp_delta = signed_of(timestamp_delta);
    record->offset = (int64_t)((uint64_t)reader->base_offset + (uint64_t)signed_of(offset_delta));
    reader->number++;
    return 0;
}

static inline int check_end(struct reader *reader) {
    return reader->at == reader->limit ? 0 : refuse(reader, BYTES_LEFT);
}

static inline void prepare(const struct map *map, struct record *record) {
    hash_key(map->salt, record->key, record->key_size, &record->first, &record->second);
    prefetch(map, record->first);
    record->is_hashed = 1;
}

/* Returns how many records were read, -1 where there is a problem. */
static int64_t index_records(struct map *map, struct reader *reader, int64_t start_offset) {
    struct record block[BLOCK];
    int is_sound = 1;
    while (is_sound && reader->number < reader->count) {
        int found = 0;
        int64_t before = reader->number;
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
            if (is_full(map))
                return before + each;
            put_hashed(map, record->first, record->second, record->offset, record->is_tombstone);
        }
    }
    return is_sound && check_end(reader) == 0 ? reader->count : -1;
}

struct selection {
    uint8_t *kept; /* room for all records of the run; written to once a record is not kept */
    int64_t kept_size;
    int64_t kept_count, without_key_count, max_timestamp_delta;
    int has_tombstones;
};

static int is_kept(const struct map *map, const struct record *record, int keeps_tombstones) {
    if (record->offset > map->latest_offset)
        return 1;
    if (record->key_size < 0 || (record->is_tombstone && !keeps_tombstones))
        return 0;
    if (!record->is_hashed)
        return common_fate(map, record->offset, 1) != SUPERSEDED;
    return record->offset >= get_hashed(map, record->first, record->second);
}

/* Returns -1 where there is a problem. */
static int select_records(const struct map *map, struct reader *reader, int keeps_tombstones, struct selection *into) {
    const uint8_t *begin = reader->at;
    struct record block[BLOCK];
    int is_whole = 1;
    while (reader->number < reader->count) {
        int found = 0;
        while (found < BLOCK && reader->number < reader->count) {
            struct record *record = &block[found++];
            if (read_record(reader, record) < 0)
                return -1;
            if (record->key_size >= 0 && record->offset <= map->latest_offset &&
                common_fate(map, record->offset, 1) == NOT_NOTED)
                prepare(map, record);
        }
        for (int each = 0; each < found; each++) {
            struct record *record = &block[each];
            size_t size = (size_t)(record->end - record->start);
            if (!is_kept(map, record, keeps_tombstones)) {
                into->without_key_count += record->key_size < 0;
                if (is_whole)
                    memcpy(into->kept, begin, (size_t)into->kept_size);
                is_whole = 0;
                continue;
            }
            if (!is_whole)
                memcpy(into->kept + into->kept_size, record->start, size);
            into->kept_size += (int64_t)size;
            into->kept_count++;
            into->has_tombstones |= record->is_tombstone;
            if (record->timestamp_delta > into->max_timestamp_delta)
                into->max_timestamp_delta = record->timestamp_delta;
        }
    }
    return check_end(reader);
}
