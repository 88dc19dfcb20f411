/* murmur2 as Apache Kafka's Java producer computes it of a key, seed included: it decides where a record goes. */
#ifndef OTTLA_MURMUR2_H
#define OTTLA_MURMUR2_H

#include <stdint.h>

#define MURMUR2_SEED 0x9747B28Cu
#define MURMUR2_M 0x5BD1E995u

static inline uint32_t
murmur2_of(const uint8_t *key, uint32_t length)
{
    uint32_t value = MURMUR2_SEED ^ length;
    const uint8_t *at = key, *whole = key + (length & ~3u);
    for (; at < whole; at += 4) {
        uint32_t word = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        word *= MURMUR2_M;
        word ^= word >> 24;
        value = value * MURMUR2_M ^ word * MURMUR2_M;
    }
    if (length & 3u) {
        uint32_t rest = at[0];
        if ((length & 3u) > 1) {
            rest |= (uint32_t)at[1] << 8;
        }
        if ((length & 3u) > 2) {
            rest |= (uint32_t)at[2] << 16;
        }
        value = (value ^ rest) * MURMUR2_M;
    }
    value = (value ^ value >> 13) * MURMUR2_M;
    return value ^ value >> 15;
}

#endif
