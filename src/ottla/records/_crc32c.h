/* CRC-32C, by the processor's instruction where it has one. For each compiled module of this room: `make_crc_table` and
 * `choose_crc` run once when the module is loaded. */
#ifndef OTTLA_CRC32C_H
#define OTTLA_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_X86_CRC 1
#include <immintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#define HAVE_ARM_CRC 1
#include <arm_acle.h>
#endif

#define POLYNOMIAL 0x82F63B78u /* Castagnoli's, bits reversed: the lowest bit is the highest power. */

typedef uint32_t (*crc_function)(uint32_t state, const uint8_t *data, size_t size);

static uint32_t crc_table[8][256];

static void
make_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++) {
            state = (state >> 1) ^ (state & 1 ? POLYNOMIAL : 0);
        }
        crc_table[0][byte] = state;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc_table[slice - 1][byte];
            crc_table[slice][byte] = (before >> 8) ^ crc_table[0][before & 0xFF];
        }
    }
}

/* Eight bytes a step, each through the table for its distance from the end of the step. */
static uint32_t
crc_by_table(uint32_t state, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t mixed = state ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16
                                  | (uint32_t)data[3] << 24);
        state = crc_table[7][mixed & 0xFF] ^ crc_table[6][mixed >> 8 & 0xFF] ^ crc_table[5][mixed >> 16 & 0xFF]
                ^ crc_table[4][mixed >> 24] ^ crc_table[3][data[4]] ^ crc_table[2][data[5]] ^ crc_table[1][data[6]]
                ^ crc_table[0][data[7]];
    }
    for (; size > 0; data++, size--) {
        state = (state >> 8) ^ crc_table[0][(state ^ *data) & 0xFF];
    }
    return state;
}

#ifdef HAVE_X86_CRC

/* The instruction takes three cycles and can start every cycle, so three streams run side by side. Their states are
 * joined by multiplying with a power of x: a state that stands n bytes before another is worth x^8n as much. The
 * carry-less product of two reversed 32-bit numbers, put through the CRC instruction, comes out multiplied by x^33. */
#define LONG_STREAM 2048
#define SHORT_STREAM 128

static uint64_t join_long[2], join_short[2];

/* x to the given power, modulo the polynomial, bits reversed. */
static uint64_t
power_of_x(int exponent)
{
    uint32_t value = 0x80000000u;
    while (exponent-- > 0) {
        value = (value >> 1) ^ (value & 1 ? POLYNOMIAL : 0);
    }
    return value;
}

static void
make_joins(void)
{
    join_long[0] = power_of_x(8 * LONG_STREAM - 33);
    join_long[1] = power_of_x(16 * LONG_STREAM - 33);
    join_short[0] = power_of_x(8 * SHORT_STREAM - 33);
    join_short[1] = power_of_x(16 * SHORT_STREAM - 33);
}

static inline uint64_t
load64(const uint8_t *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return value;
}

__attribute__((target("sse4.2,pclmul"))) static inline uint32_t
join_streams(uint32_t first, uint32_t second, uint32_t third, const uint64_t join[2])
{
    __m128i left = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)first), _mm_cvtsi64_si128((long long)join[1]), 0);
    __m128i right = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)second), _mm_cvtsi64_si128((long long)join[0]), 0);
    uint64_t product = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(left, right));
    return (uint32_t)_mm_crc32_u64(0, product) ^ third;
}

__attribute__((target("sse4.2,pclmul"))) static inline uint32_t
crc_three_streams(uint32_t state, const uint8_t *data, size_t stream, const uint64_t join[2])
{
    uint64_t first = state, second = 0, third = 0;
    for (size_t at = 0; at < stream; at += 8) {
        first = _mm_crc32_u64(first, load64(data + at));
        second = _mm_crc32_u64(second, load64(data + stream + at));
        third = _mm_crc32_u64(third, load64(data + 2 * stream + at));
    }
    return join_streams((uint32_t)first, (uint32_t)second, (uint32_t)third, join);
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t
crc_by_sse42(uint32_t state, const uint8_t *data, size_t size)
{
    for (; size >= 3 * LONG_STREAM; data += 3 * LONG_STREAM, size -= 3 * LONG_STREAM) {
        state = crc_three_streams(state, data, LONG_STREAM, join_long);
    }
    for (; size >= 3 * SHORT_STREAM; data += 3 * SHORT_STREAM, size -= 3 * SHORT_STREAM) {
        state = crc_three_streams(state, data, SHORT_STREAM, join_short);
    }
    for (; size >= 8; data += 8, size -= 8) {
        state = (uint32_t)_mm_crc32_u64(state, load64(data));
    }
    for (; size > 0; data++, size--) {
        state = _mm_crc32_u8(state, *data);
    }
    return state;
}

#elif defined(HAVE_ARM_CRC)

static uint32_t
crc_by_arm(uint32_t state, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t value;
        memcpy(&value, data, sizeof value);
        state = __crc32cd(state, value);
    }
    for (; size > 0; data++, size--) {
        state = __crc32cb(state, *data);
    }
    return state;
}

#endif

static crc_function crc_update = crc_by_table;

static const char *
choose_crc(void)
{
#ifdef HAVE_X86_CRC
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        make_joins();
        crc_update = crc_by_sse42;
        return "sse4.2";
    }
#elif defined(HAVE_ARM_CRC)
    crc_update = crc_by_arm;
    return "arm";
#endif
    crc_update = crc_by_table;
    return "table";
}

static inline uint32_t
crc32c_of(const uint8_t *data, size_t size)
{
    return ~crc_update(0xFFFFFFFFu, data, size);
}

#endif
