/* Random and damaged records for record_spans.h; built with sanitizers, which stop it at the first wrong access.
 *
 *   record_spans_fuzz SEED INPUTS
 */

#include <stdio.h>
#include <stdlib.h>

#include "record_spans.h"

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

static size_t append_field(uint8_t *out) {
    uint64_t field_size = random_below(20);
    if (random_below(5) == 0)
        return append_varint(out, 1);
    size_t size = append_varint(out, field_size << 1);
    memset(out + size, 'f', field_size);
    return size + field_size;
}

/* A record with a key and a value, both of which may be null, and perhaps a header. */
static size_t append_record(uint8_t *out, uint64_t offset_delta) {
    uint8_t body[90];
    size_t size = 0;
    body[size++] = 0;
    size += append_varint(body + size, random_below(4) ? random_below(300) : random_below(1u << 31) << 32);
    size += append_varint(body + size, offset_delta << 1);
    size += append_field(body + size);
    size += append_field(body + size);
    if (random_below(3)) {
        body[size++] = 0;
    } else {
        body[size++] = 2;
        size += append_field(body + size);
    }
    size_t head = append_varint(out, (uint64_t)size << 1);
    memcpy(out + head, body, size);
    return head + size;
}

static void copy_column(const struct column *column, int64_t count) {
    int32_t *ends = malloc(sizeof *ends * (size_t)(count + 1));
    uint8_t *data = malloc((size_t)column->size), *validity = malloc((size_t)(count + 7) / 8);
    copy_fields(column, count, ends, data, column->nulls_count ? validity : NULL);
    if (ends[count] != column->size)
        abort();
    free(ends);
    free(data);
    free(validity);
}

static void run_one(void) {
    enum { BATCHES = 3, RECORDS = 40, SIZE = 96 * RECORDS };
    struct rows rows = {.start_offset = (int64_t)random_below(10), .end_offset = (int64_t)random_below(60)};
    uint8_t *batches[BATCHES];
    size_t sizes[BATCHES];
    int64_t counts[BATCHES];
    for (int each = 0; each < BATCHES; each++) {
        uint8_t made[SIZE];
        sizes[each] = 0;
        counts[each] = (int64_t)random_below(RECORDS);
        for (int64_t record = 0; record < counts[each]; record++)
            sizes[each] += append_record(made + sizes[each], (uint64_t)record);
        for (uint64_t damages = random_below(4); sizes[each] && damages > 0; damages--)
            made[random_below(sizes[each])] = (uint8_t)random_below(256);
        if (random_below(8) == 0)
            sizes[each] = random_below(sizes[each] + 1);
        batches[each] = malloc(sizes[each]); /* of just that size: the sanitizer sees */
        memcpy(batches[each], made, sizes[each]);
        rows.capacity += counts[each];
    }
    size_t room = (size_t)rows.capacity * sizeof(int64_t);
    rows.offsets = malloc(room);
    rows.timestamps = random_below(2) ? malloc(room) : NULL;
    rows.headers = random_below(2) ? malloc(room) : NULL;
    rows.keys.spans = random_below(2) ? malloc(2 * room) : NULL;
    rows.values.spans = malloc(2 * room);
    for (int each = 0; each < BATCHES; each++) {
        struct batch batch = {batches[each], batches[each] + sizes[each], counts[each], (int64_t)random_below(20),
                              RECORDS,       (int64_t)random_below(1000), random_below(2)};
        if (random_below(50) == 0)
            batch.base_offset = random_below(2) ? INT64_MAX - 10 : INT64_MIN + 10;
        if (random_below(50) == 0)
            batch.base_time = random_below(2) ? INT64_MAX - 10 : INT64_MIN + 10;
        read_batch(&rows, &batch);
    }
    if (random_below(2)) {
        uint8_t *is_kept = malloc((size_t)rows.count);
        for (int64_t each = 0; each < rows.count; each++)
            is_kept[each] = (uint8_t)random_below(3);
        keep_rows(&rows, is_kept);
        free(is_kept);
    }
    if (rows.keys.spans != NULL)
        copy_column(&rows.keys, rows.count);
    copy_column(&rows.values, rows.count);
    for (int each = 0; each < BATCHES; each++)
        free(batches[each]);
    free(rows.offsets);
    free(rows.timestamps);
    free(rows.headers);
    free(rows.keys.spans);
    free(rows.values.spans);
}

int main(int count, char **arguments) {
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    for (long inputs = count > 2 ? strtol(arguments[2], NULL, 10) : 1000; inputs > 0; inputs--)
        run_one();
    puts("done");
    return 0;
}
