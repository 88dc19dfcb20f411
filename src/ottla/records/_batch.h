/* Reading a v2 batch: the 61 bytes before the records, and the varints inside them. Every length is compared with the
 * bytes that are left, as a subtraction that cannot overflow, before a pointer moves. */
#ifndef OTTLA_BATCH_H
#define OTTLA_BATCH_H

#include <stdint.h>

#define HEADER_SIZE 61
#define LOG_OVERHEAD 12
#define ATTRIBUTES_AT 21
#define TRANSACTIONAL_FLAG 0x10

typedef struct {
    int64_t base_offset;
    int32_t batch_length;
    int32_t leader_epoch;
    int8_t magic;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t record_count;
} header_fields;

static inline uint16_t
big16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t
big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t
big64(const uint8_t *at)
{
    return (uint64_t)big32(at) << 32 | big32(at + 4);
}

static inline void
read_fields(const uint8_t *at, header_fields *header)
{
    header->base_offset = (int64_t)big64(at);
    header->batch_length = (int32_t)big32(at + 8);
    header->leader_epoch = (int32_t)big32(at + 12);
    header->magic = (int8_t)at[16];
    header->crc = big32(at + 17);
    header->attributes = (int16_t)big16(at + 21);
    header->last_offset_delta = (int32_t)big32(at + 23);
    header->base_timestamp = (int64_t)big64(at + 27);
    header->max_timestamp = (int64_t)big64(at + 35);
    header->producer_id = (int64_t)big64(at + 43);
    header->producer_epoch = (int16_t)big16(at + 51);
    header->base_sequence = (int32_t)big32(at + 53);
    header->record_count = (int32_t)big32(at + 57);
}

/* What can be wrong with the records; the numbers are `Flaw`'s in validate.py. */
enum {
    FLAW_NONE = 0,
    FLAW_CUT = 1,           /* a record, or its length, runs past the end of the batch */
    FLAW_VARINT = 2,        /* a varint is too long */
    FLAW_FIELD = 3,         /* a field runs past the end of its record */
    FLAW_OFFSET = 4,        /* offset deltas do not count 0, 1, 2 … */
    FLAW_HEADER_COUNT = 5,  /* a negative number of record headers, or more than there are bytes */
    FLAW_HEADER_KEY = 6,    /* a record header without a key */
    FLAW_LENGTH = 7,        /* a record is longer than its fields */
    FLAW_TRAILING = 8,      /* bytes follow the last record */
};

/* Reads seven bits a byte from *at, never at or past `end`. 0, or the flaw: FLAW_FIELD where bytes run out. As in
 * Kafka, what does not fit 32 or 64 bits is dropped. */
static inline int
read_varint(const uint8_t **at, const uint8_t *end, int32_t *value)
{
    const uint8_t *next = *at;
    if (next == end) {
        return FLAW_FIELD;
    }
    uint32_t raw = *next++;
    if (raw >= 0x80) {
        raw &= 0x7F;
        for (int shift = 7;; shift += 7) {
            if (next == end) {
                return FLAW_FIELD;
            }
            uint32_t byte = *next++;
            raw |= (byte & 0x7F) << shift;
            if (byte < 0x80) {
                break;
            }
            if (shift == 28) {
                return FLAW_VARINT;
            }
        }
    }
    *value = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
    *at = next;
    return FLAW_NONE;
}

static inline int
read_varlong(const uint8_t **at, const uint8_t *end, int64_t *value)
{
    const uint8_t *next = *at;
    if (next == end) {
        return FLAW_FIELD;
    }
    uint64_t raw = *next++;
    if (raw >= 0x80) {
        raw &= 0x7F;
        for (int shift = 7;; shift += 7) {
            if (next == end) {
                return FLAW_FIELD;
            }
            uint64_t byte = *next++;
            raw |= (byte & 0x7F) << shift;
            if (byte < 0x80) {
                break;
            }
            if (shift == 63) {
                return FLAW_VARINT;
            }
        }
    }
    *value = (int64_t)((raw >> 1) ^ (0u - (raw & 1)));
    *at = next;
    return FLAW_NONE;
}

/* A length and that many bytes; any negative length is null, as in Kafka. */
static inline int
skip_bytes(const uint8_t **at, const uint8_t *end, int32_t *length)
{
    int flaw = read_varint(at, end, length);
    if (flaw != FLAW_NONE) {
        return flaw;
    }
    if (*length > 0) {
        if (*length > end - *at) {
            return FLAW_FIELD;
        }
        *at += *length;
    }
    return FLAW_NONE;
}

#endif
