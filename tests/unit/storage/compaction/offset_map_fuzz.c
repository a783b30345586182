/* Random and damaged records for offset_map.h; built with sanitizers, which stop it at the first wrong read.
 *
 *   offset_map_fuzz SEED INPUTS
 */

#include <stdio.h>
#include <stdlib.h>

#include "offset_map.h"

static uint64_t state;

static uint64_t random_below(uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
}

static size_t append_varint(uint8_t *out, uint64_t raw) {
    size_t size = 0;
    for (; raw >= 0x80; raw >>= 7)
        out[size++] = (uint8_t)(raw | 0x80);
    out[size++] = (uint8_t)raw;
    return size;
}

/* A record with a short key and a value, both of which may be null. */
static size_t append_record(uint8_t *out, uint64_t offset_delta) {
    uint8_t body[64];
    size_t size = 0;
    body[size++] = 0;
    size += append_varint(body + size, random_below(4) ? random_below(300) : random_below(1u << 30) << 30);
    size += append_varint(body + size, offset_delta << 1);
    uint64_t key_size = random_below(4);
    size += append_varint(body + size, random_below(8) ? key_size << 1 : 1);
    if (body[size - 1] != 1)
        for (uint64_t each = 0; each < key_size; each++)
            body[size++] = (uint8_t)('a' + random_below(3));
    size += append_varint(body + size, random_below(4) ? 0 : 1);
    size += append_varint(body + size, 0);
    size_t head = append_varint(out, (uint64_t)size << 1);
    memcpy(out + head, body, size);
    return head + size;
}

static void check_hash(void) {
    /* The first vector of the reference implementation: the key is 0, 1, 2 ... 15, the input is empty. */
    uint64_t salt[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908}, first, second;
    hash_key(salt, (const uint8_t *)"", 0, &first, &second);
    if (first != 0xe6a825ba047f81a3 || second != 0x930255c71472f66d)
        abort();
}

/* Rows with short keys, in memory of just their size. */
static void choose_some(struct map *map) {
    enum { ROWS = 70 };
    int64_t count = (int64_t)random_below(ROWS);
    int32_t *ends = malloc(sizeof *ends * (size_t)(count + 1));
    int64_t *offsets = malloc(sizeof *offsets * (size_t)count);
    uint8_t *is_chosen = malloc((size_t)count), *data = malloc(3 * (size_t)count);
    ends[0] = 0;
    for (int64_t row = 0; row < count; row++) {
        ends[row + 1] = ends[row] + (int32_t)random_below(4);
        for (int32_t at = ends[row]; at < ends[row + 1]; at++)
            data[at] = (uint8_t)('a' + random_below(3));
        offsets[row] = (int64_t)random_below(100);
        is_chosen[row] = random_below(4) != 0;
    }
    uint8_t *of_size = malloc((size_t)ends[count]);
    memcpy(of_size, data, (size_t)ends[count]);
    struct keyed_rows rows = {ends, of_size, offsets, is_chosen, count};
    choose_rows(map, &rows, (int)random_below(2));
    for (int64_t row = 0; row < count; row++)
        if (is_chosen[row] > 1)
            abort();
    free(ends);
    free(offsets);
    free(is_chosen);
    free(data);
    free(of_size);
}

static void run_one(void) {
    enum { SLOTS = 20, SLACK = 20, FATES = 30 };
    struct entry *table = calloc(SLOTS + SLACK + 1, sizeof *table);
    struct map map = {.table = table, .slots = SLOTS, .end = SLOTS + SLACK, .salt = {1, 2}, .latest_offset = -1};
    map.count_max = 1 + (int64_t)random_below(SLOTS - 1);
    map.first_fate_offset = (int64_t)random_below(5);
    map.fates_count = (int64_t)random_below(FATES + 1);
    map.fates = calloc((size_t)map.fates_count + 1, 1);
    for (int batch = 0; batch < 4; batch++) {
        uint8_t made[64 * 70];
        size_t size = 0;
        int64_t count = (int64_t)random_below(70);
        for (int64_t each = 0; each < count; each++)
            size += append_record(made + size, (uint64_t)each);
        for (uint64_t damages = random_below(4); size && damages > 0; damages--)
            made[random_below(size)] = (uint8_t)random_below(256);
        if (random_below(8) == 0)
            size = random_below(size + 1);
        uint8_t *run = malloc(size + !size), *kept = malloc(size + !size); /* of just that size: the sanitizer sees */
        memcpy(run, made, size);
        int64_t base_offset = (int64_t)random_below(40);
        if (random_below(50) == 0)
            base_offset = (int64_t)(random_below(2) ? INT64_MAX - 10 : INT64_MIN + 10);
        struct reader reader = {.at = run, .limit = run + size, .count = count, .base_offset = base_offset};
        index_records(&map, &reader, 0);
        reader = (struct reader){.at = run, .limit = run + size, .count = count, .base_offset = base_offset};
        struct selection selection = {.kept = kept, .max_timestamp_delta = INT64_MIN};
        if (select_records(&map, &reader, batch & 1, &selection) == 0 && selection.kept_size > (int64_t)size)
            abort();
        common_fate(&map, base_offset, count);
        choose_some(&map);
        free(run);
        free(kept);
    }
    free(map.fates);
    free(table);
}

int main(int count, char **arguments) {
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    check_hash();
    for (long inputs = count > 2 ? strtol(arguments[2], NULL, 10) : 1000; inputs > 0; inputs--)
        run_one();
    puts("done");
    return 0;
}
