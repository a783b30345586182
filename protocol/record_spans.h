/* The loops of record_spans.c over records, without anything of Python.
 *
 * Every read of a record is checked against the end of the record, and that against the end of its batch: the bytes
 * come from a disk, and may be anything.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TIMESTAMP_MS_MAX (INT64_MAX / 1000) /* milliseconds that fit into 64 bits as microseconds */
#define NO_HEADERS (-1)

enum problem {
    NONE,
    PAST_BATCH,
    PAST_RECORD,
    LONG_NUMBER,
    FOREIGN_OFFSET,
    WRONG_SIZE,
    WRONG_COUNT,
};

/* A key or a value in the bytes of its batch. A size of -1 is null. */
struct span {
    const uint8_t *at;
    int64_t size;
};

/* The spans of a column, and what they need in Arrow. */
struct column {
    struct span *spans; /* NULL where the column is not wanted */
    int64_t size;       /* of all fields, in bytes */
    int64_t nulls_count;
};

struct rows {
    int64_t count, capacity;
    int64_t start_offset, end_offset; /* the wanted offsets */
    int64_t *offsets, *timestamps;    /* in microseconds; NULL where they are not wanted */
    int64_t *headers;                 /* the position of the count of headers in the records of the batch */
    struct column keys, values;
};

struct batch {
    const uint8_t *at, *end; /* its records */
    int64_t records_count, base_offset, last_offset_delta;
    int64_t base_time; /* in milliseconds */
    int has_append_time;
};

/* Read the 64 bits of a number before zig-zag decoding. */
static inline enum problem read_raw(const uint8_t **position, const uint8_t *end, int size_max, uint64_t *raw) {
    const uint8_t *at = *position;
    uint64_t value = 0;
    for (int each = 0; each < size_max; each++) {
        if (at >= end)
            return PAST_RECORD;
        uint64_t byte = *at++;
        if (each == 9 && byte > 1)
            return LONG_NUMBER;
        value |= (byte & 0x7f) << (7 * each);
        if (byte < 0x80) {
            *position = at;
            *raw = value;
            return NONE;
        }
    }
    return LONG_NUMBER;
}

static inline int64_t zigzag(uint64_t raw) {
    return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
}

static inline enum problem read_field(const uint8_t **position, const uint8_t *end, struct span *field) {
    uint64_t raw;
    enum problem problem = read_raw(position, end, 5, &raw);
    if (problem)
        return problem;
    field->at = *position;
    field->size = zigzag(raw);
    if (field->size < -1 || field->size > end - *position)
        return PAST_RECORD;
    if (field->size > 0)
        *position += field->size;
    return NONE;
}

/* The microseconds of a sum of milliseconds, which wraps as in Java; or the nearest time that 64 bits hold. */
static inline int64_t to_microseconds(int64_t base, int64_t delta) {
    int64_t sum = (int64_t)((uint64_t)base + (uint64_t)delta);
    if (sum > TIMESTAMP_MS_MAX)
        sum = TIMESTAMP_MS_MAX;
    if (sum < -TIMESTAMP_MS_MAX)
        sum = -TIMESTAMP_MS_MAX;
    return sum * 1000;
}

static inline void put_field(struct column *column, int64_t row, struct span field) {
    if (column->spans == NULL)
        return;
    column->spans[row] = field;
    if (field.size < 0)
        column->nulls_count++;
    else
        column->size += field.size;
}

/* Read the record at a position, and advance the position behind it. */
static inline enum problem read_record(struct rows *rows, const struct batch *batch, const uint8_t **position) {
    uint64_t size, time, delta;
    enum problem problem = read_raw(position, batch->end, 5, &size);
    if (problem)
        return problem == PAST_RECORD ? PAST_BATCH : problem;
    const uint8_t *at = *position;
    if (size & 1 || size >> 1 > (uint64_t)(batch->end - at))
        return PAST_BATCH;
    const uint8_t *end = *position = at + (size >> 1);
    if (at++ == end) /* the attributes; no bit of them is defined */
        return PAST_RECORD;
    struct span key, value;
    if ((problem = read_raw(&at, end, 10, &time)) || (problem = read_raw(&at, end, 5, &delta)))
        return problem;
    if (delta & 1 || (int64_t)(delta >> 1) > batch->last_offset_delta)
        return FOREIGN_OFFSET;
    if ((problem = read_field(&at, end, &key)) || (problem = read_field(&at, end, &value)))
        return problem;
    if (at == end)
        return PAST_RECORD;
    int has_headers = *at != 0;
    if (has_headers ? at + 1 == end : at + 1 != end)
        return WRONG_SIZE;
    int64_t row = rows->count, offset = (int64_t)((uint64_t)batch->base_offset + (delta >> 1));
    if (offset < rows->start_offset || offset >= rows->end_offset)
        return NONE;
    rows->offsets[row] = offset;
    if (rows->timestamps != NULL) {
        int64_t time_delta = batch->has_append_time ? 0 : zigzag(time);
        rows->timestamps[row] = to_microseconds(batch->base_time, time_delta);
    }
    put_field(&rows->keys, row, key);
    put_field(&rows->values, row, value);
    if (rows->headers != NULL)
        rows->headers[row] = has_headers ? at - batch->at : NO_HEADERS;
    rows->count++;
    return NONE;
}

/* Append the records of a batch, which must fill it. There must be room for all of them. */
static enum problem read_batch(struct rows *rows, const struct batch *batch) {
    const uint8_t *at = batch->at;
    if (batch->records_count < 0 || batch->records_count > batch->end - at)
        return WRONG_COUNT;
    for (int64_t each = 0; each < batch->records_count; each++) {
        enum problem problem = read_record(rows, batch, &at);
        if (problem)
            return problem;
    }
    return at == batch->end ? NONE : WRONG_COUNT;
}

static void keep_fields(struct column *column, int64_t count, const uint8_t *is_kept) {
    struct span *spans = column->spans;
    int64_t row = 0;
    column->size = column->nulls_count = 0;
    for (int64_t each = 0; spans != NULL && each < count; each++)
        if (is_kept[each])
            put_field(column, row++, spans[each]);
}

static void keep_numbers(int64_t *numbers, int64_t count, const uint8_t *is_kept) {
    int64_t row = 0;
    for (int64_t each = 0; numbers != NULL && each < count; each++)
        if (is_kept[each])
            numbers[row++] = numbers[each];
}

/* Drop the rows that are not kept. */
static void keep_rows(struct rows *rows, const uint8_t *is_kept) {
    int64_t count = 0;
    keep_fields(&rows->keys, rows->count, is_kept);
    keep_fields(&rows->values, rows->count, is_kept);
    keep_numbers(rows->offsets, rows->count, is_kept);
    keep_numbers(rows->timestamps, rows->count, is_kept);
    keep_numbers(rows->headers, rows->count, is_kept);
    for (int64_t each = 0; each < rows->count; each++)
        count += is_kept[each] != 0;
    rows->count = count;
}

/* Copy the fields of a column one behind the other into `data`. `ends` has one more entry than there are rows: the
 * position of each field, and the end of the last one. `validity` is NULL where there are no nulls. */
static void copy_fields(const struct column *column, int64_t count, int32_t *ends, uint8_t *data, uint8_t *validity) {
    int32_t end = 0;
    ends[0] = 0;
    if (validity != NULL)
        memset(validity, 0, (size_t)(count + 7) / 8);
    for (int64_t row = 0; row < count; row++) {
        struct span field = column->spans[row];
        if (field.size > 0) {
            memcpy(data + end, field.at, (size_t)field.size);
            end += (int32_t)field.size;
        }
        if (validity != NULL && field.size >= 0)
            validity[row >> 3] |= (uint8_t)(1 << (row & 7));
        ends[row + 1] = end;
    }
}
