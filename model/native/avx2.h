/* Vectors of 16 numbers, each two registers, on processors with AVX2, FMA and F16C, and what differs with their width.
 *
 * Every sum is built in the order of avx512.h, so that both give the same bits. */
#ifndef GS_VECTORS_H
#define GS_VECTORS_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))

#define ROWS_AT_ONCE 4     /* of a product: 8 sums, 4 weights, ones, and room to work */
#define OUTPUTS_AT_ONCE 16 /* of attention */
#define WEIGHT_SHIFT 128   /* added to a weight: the instruction multiplies unsigned by signed bytes */
#define SPLITS 1           /* inputs too large for sums in 16 bits are split, see split_row() */
#define FULL_APART 1       /* code of its own for results without a mask, which takes some instructions here */
#define UNROLL_HALVES _Pragma("GCC unroll 2")
#define INPUTS_AT_ONCE 32  /* that a row of rounded inputs is filled up to */

typedef struct {
    __m256 low, high;
} floats;
typedef struct {
    __m256i low, high;
} integers;
typedef struct {
    __m128i low, high;
} halves;
typedef struct {
    __m256i low, high;
} mask;

INLINE mask lanes(int count) {
    const __m256i some = _mm256_set1_epi32(count), first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (mask){_mm256_cmpgt_epi32(some, first), _mm256_cmpgt_epi32(_mm256_sub_epi32(some, _mm256_set1_epi32(8)), first)};
}
INLINE uint32_t bits(mask m) {
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(m.low)) |
           (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(m.high)) << 8;
}

#define EACH(type, name, function) \
    INLINE type name(type a, type b) { return (type){function(a.low, b.low), function(a.high, b.high)}; }

INLINE floats splat(float x) { return (floats){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE floats zeros(void) { return (floats){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE floats load(const float *from) { return (floats){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
INLINE void store(float *to, floats x) {
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
}
/* The first `count`, or all if there are more; the others are 0, or `other`, or not written. Some processors take long
 * to store behind a mask. */
INLINE floats load_some(int count, const float *from) {
    if (__builtin_expect(count >= 16, 1)) return load(from);
    const mask m = lanes(count);
    return (floats){_mm256_maskload_ps(from, m.low), _mm256_maskload_ps(from + 8, m.high)};
}
INLINE void store_some(float *to, int count, floats x) {
    if (__builtin_expect(count >= 16, 1)) {
        store(to, x);
    } else {
        const mask m = lanes(count);
        _mm256_maskstore_ps(to, m.low, x.low);
        _mm256_maskstore_ps(to + 8, m.high, x.high);
    }
}
INLINE floats keep(mask m, floats x) {
    return (floats){_mm256_and_ps(_mm256_castsi256_ps(m.low), x.low), _mm256_and_ps(_mm256_castsi256_ps(m.high), x.high)};
}
INLINE floats keep_or(floats other, mask m, floats x) {
    return (floats){_mm256_blendv_ps(other.low, x.low, _mm256_castsi256_ps(m.low)),
                    _mm256_blendv_ps(other.high, x.high, _mm256_castsi256_ps(m.high))};
}
INLINE floats load_or(floats other, int count, const float *from) {
    return keep_or(other, lanes(count), load_some(count, from));
}

EACH(floats, add, _mm256_add_ps)
EACH(floats, subtract, _mm256_sub_ps)
EACH(floats, times, _mm256_mul_ps)
EACH(floats, divide, _mm256_div_ps)
EACH(floats, larger, _mm256_max_ps)
EACH(floats, smaller, _mm256_min_ps)
INLINE floats times_plus(floats a, floats b, floats c) {
    return (floats){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
INLINE floats minus_times(floats a, floats b, floats c) {
    return (floats){_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
INLINE floats magnitude(floats x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (floats){_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
INLINE floats nearest(floats x) {
    return (floats){_mm256_round_ps(x.low, _MM_FROUND_TO_NEAREST_INT), _mm256_round_ps(x.high, _MM_FROUND_TO_NEAREST_INT)};
}
/* In two steps: for a result that is smaller than any normal number, 2^n is no float itself. */
INLINE __m256 times_power_8(__m256 x, __m256 n) {
    const __m256i whole = _mm256_cvtps_epi32(n), first = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    const __m256i second = _mm256_sub_epi32(whole, first);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23)));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23)));
}
INLINE floats times_power(floats x, floats n) { return (floats){times_power_8(x.low, n.low), times_power_8(x.high, n.high)}; }
INLINE float sum_of(floats x) {
    const __m256 eight = _mm256_add_ps(x.high, x.low);
    const __m128 four = _mm_add_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
    const __m128 two = _mm_add_ps(four, _mm_shuffle_ps(four, four, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtss_f32(two) + _mm_cvtss_f32(_mm_shuffle_ps(two, two, 1));
}
INLINE float maximum_of(floats x) {
    const __m256 eight = _mm256_max_ps(x.high, x.low);
    const __m128 four = _mm_max_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
    const __m128 two = _mm_max_ps(four, _mm_shuffle_ps(four, four, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

#define COMPARE(name, kind)                                                                   \
    INLINE mask name(floats a, floats b) {                                                    \
        return (mask){_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, kind)),                 \
                      _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, kind))};              \
    }
COMPARE(equal, _CMP_EQ_OQ)
COMPARE(not_equal, _CMP_NEQ_UQ)
COMPARE(greater, _CMP_GT_OQ)
COMPARE(not_less, _CMP_NLT_UQ)
COMPARE(unordered, _CMP_UNORD_Q)
INLINE mask is_nan(floats a) { return unordered(a, a); }

INLINE integers no_integers(void) { return (integers){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
EACH(integers, add_integers, _mm256_add_epi32)
INLINE integers rounded_integers(int count, floats x) {
    const mask m = lanes(count);
    return (integers){_mm256_and_si256(m.low, _mm256_cvtps_epi32(x.low)), _mm256_and_si256(m.high, _mm256_cvtps_epi32(x.high))};
}
INLINE int32_t sum_of_integers(integers x) {
    const __m256i eight = _mm256_add_epi32(x.low, x.high);
    const __m128i four = _mm_add_epi32(_mm256_extracti128_si256(eight, 1), _mm256_castsi256_si128(eight));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
}
INLINE floats from_integers(integers x, int32_t offset) {
    const __m256i less = _mm256_set1_epi32(offset);
    return (floats){_mm256_cvtepi32_ps(_mm256_sub_epi32(x.low, less)), _mm256_cvtepi32_ps(_mm256_sub_epi32(x.high, less))};
}
INLINE void store_bytes(int8_t *to, int count, integers x) {
    /* Packed by halves of 128 bits: the four-byte groups come as low 0-3, high 0-3, low 4-7, high 4-7. */
    const __m256i words = _mm256_packs_epi32(x.low, x.high);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    const __m128i sorted = _mm_shuffle_epi32(bytes, _MM_SHUFFLE(3, 1, 2, 0));
    if (count >= 16) {
        _mm_storeu_si128((__m128i *)to, sorted);
    } else {
        int8_t some[16];
        _mm_storeu_si128((__m128i *)some, sorted);
        memcpy(to, some, count);
    }
}

INLINE halves narrow(floats x) {
    /* In this order of arguments NaN stays NaN. */
    x = larger(splat(-65504.0f), smaller(splat(65504.0f), x));
    return (halves){_mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT)};
}
INLINE floats widen(int count, const half *from) {
    half some[16] = {0};
    if (__builtin_expect(count < 16, 0)) {
        if (count > 0) memcpy(some, from, count * sizeof(half));
        from = some;
    }
    return (floats){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)),
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 8)))};
}
INLINE void store_halves(half *to, int count, halves x) {
    half some[16];
    half *at = count >= 16 ? to : some;
    _mm_storeu_si128((__m128i *)at, x.low);
    _mm_storeu_si128((__m128i *)(at + 8), x.high);
    if (count < 16) memcpy(to, some, count * sizeof(half));
}

/* Products in 8 bits. The instruction multiplies unsigned by signed bytes and adds pairs, with sums in 16 bits that are cut
 * off at 32,767. Two such sums are added before they are widened: a third fewer instructions than widening each, and
 * exact as long as a row's inputs are small enough for any weights. Weights are at most 255 (shifted) or 127 (not), so:
 * - of a pair of inputs, the positive ones add up to at most 128, and so do the negative ones (32,640 with 255);
 * - of the two pairs that are added, the magnitudes add up to at most 258 (32,766 with 127): what the shift of the
 *   weights adds is taken away again in 16 bits (`corrections`), where a sum may pass through any values on its way.
 * Where inputs are larger, half of each of the four of a step goes to the row's `rests`, which are added one by one. */

/* Split where that is needed, and write the corrections; `values` is filled up with zeros to a multiple of 32. Returns
 * the sum of what went to the rests. */
static int32_t split_row(int8_t *values, int32_t *corrections, rest *rests, int32_t *rest_count, int width) {
    const __m256i ones = _mm256_set1_epi8(1);
    int32_t moved = 0, count = 0;
    for (int i = 0; i < width; i += INPUTS_AT_ONCE) {
        uint32_t halved = 0; /* a bit for each of eight steps; with both steps of a pair halved every bound is kept */
        for (;;) {
            const __m256i x = _mm256_loadu_si256((const __m256i *)(values + i));
            const __m256i pairs = _mm256_maddubs_epi16(ones, x), sizes = _mm256_maddubs_epi16(_mm256_abs_epi8(x), ones);
            const __m256i lanes = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, _MM_SHUFFLE(2, 3, 0, 1)));
            const __m256i all = _mm256_add_epi16(sizes, _mm256_shuffle_epi32(sizes, _MM_SHUFFLE(2, 3, 0, 1)));
            /* magnitudes + |sum| of a pair: twice the larger of the positive and the negative part */
            const __m256i twice = _mm256_add_epi16(sizes, _mm256_abs_epi16(pairs));
            const uint32_t large = _mm256_movemask_epi8(_mm256_cmpgt_epi16(twice, _mm256_set1_epi16(256)));
            const uint32_t both = _mm256_movemask_epi8(_mm256_cmpgt_epi16(all, _mm256_set1_epi16(258)));
            if (__builtin_expect(!(large | both), 1)) {
                /* of each quadword one doubleword: lanes of step 0 and of step 1 are the same now */
                const __m256i less = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(lanes, 7));
                const __m256i sorted = _mm256_permutevar8x32_epi32(less, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
                _mm_storeu_si128((__m128i *)(corrections + i / 8), _mm256_castsi256_si128(sorted));
                break;
            }
            const uint32_t before = halved;
            for (int step = 0; step < INPUTS_AT_ONCE / 4; step++) {
                const int other = step ^ 1;
                const int8_t *own = values + i + step * 4, *beside = values + i + other * 4;
                int is_due = large >> step * 4 & 15;
                if (!is_due && both >> step * 4 & 15 && !(large >> other * 4 & 15)) {
                    /* One of both is enough, as a rule: the one with more in it. */
                    const int more = abs(own[0]) + abs(own[1]) + abs(own[2]) + abs(own[3]) - abs(beside[0]) -
                                     abs(beside[1]) - abs(beside[2]) - abs(beside[3]);
                    is_due = halved >> other & 1 ? before >> other & 1 : more > 0 || (more == 0 && step > other);
                }
                if (!is_due || halved >> step & 1) continue;
                halved |= 1u << step;
                rest *to = &rests[count++];
                to->step = i / 4 + step;
                for (int j = 0; j < 4; j++) {
                    to->values[j] = values[i + step * 4 + j] / 2;
                    values[i + step * 4 + j] -= to->values[j];
                    moved += to->values[j];
                }
            }
        }
    }
    *rest_count = count;
    return moved;
}

/* Four bytes, eight times; a load of its own, where the compiler would make three instructions of two neighbours. */
INLINE __m256i repeated(const void *four) { return _mm256_castps_si256(_mm256_broadcast_ss(four)); }

/* `height` rows times `vectors` of 8 outputs. */
INLINE void tile_part(const int height, const int vectors, const int8_t *a, const int32_t *corrections, size_t stride,
                      const uint8_t *w, int steps, __m256i sums[ROWS_AT_ONCE][4]) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i s[ROWS_AT_ONCE][4]; /* of its own: what has an address is stored at every step */
#pragma GCC unroll 4
    for (int r = 0; r < height; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) s[r][v] = _mm256_setzero_si256();
    const uint8_t *next = w + (size_t)steps * 4 * COLUMNS;
    for (size_t g = 0; g < (size_t)steps; g += 2) {
        const uint8_t *at = w + g * 4 * COLUMNS;
        const uint8_t *second = at + (g + 1 < (size_t)steps ? 4 * COLUMNS : 0); /* after the last step inputs are 0 */
        /* The next block arrives while this one is used. */
        if (height > 2) {
            _mm_prefetch((const char *)next + g * 4 * COLUMNS, _MM_HINT_T1);
            _mm_prefetch((const char *)next + g * 4 * COLUMNS + 4 * COLUMNS, _MM_HINT_T1);
        }
        __m256i weights[2][4];
#pragma GCC unroll 4
        for (int r = 0; r < height; r++) {
            /* Two vectors of outputs stay in registers; of four there is no room for the weights, which each row reads anew. */
            if (vectors > 2) __asm__("" : "+r"(at), "+r"(second));
            if (vectors > 2 || r == 0)
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    weights[0][v] = _mm256_loadu_si256((const __m256i *)(at + v * 32));
                    weights[1][v] = _mm256_loadu_si256((const __m256i *)(second + v * 32));
                }
            const int8_t *inputs = a + r * stride + g * 4;
            __m256i pairs[4], some = repeated(inputs);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                pairs[v] = _mm256_maddubs_epi16(weights[0][v], some);
                __asm__("" : "+x"(pairs[v])); /* keeps the compiler from moving things about, and sums out of registers */
            }
            some = repeated(inputs + 4);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                pairs[v] = _mm256_add_epi16(pairs[v], _mm256_maddubs_epi16(weights[1][v], some));
                __asm__("" : "+x"(pairs[v]));
            }
            some = repeated(corrections + r * (stride / 8) + g / 2);
            __asm__("" : "+x"(some));
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                s[r][v] = _mm256_add_epi32(s[r][v], _mm256_madd_epi16(_mm256_add_epi16(pairs[v], some), ones));
                __asm__("" : "+x"(s[r][v]));
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < height; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = s[r][v];
}

/* `height` rows times 32 outputs, the height a constant where this is called. */
INLINE void tile(const int height, const int8_t *a, const int32_t *corrections, size_t stride, const uint8_t *w, int steps,
                 integers sums[][2]) {
    __m256i s[ROWS_AT_ONCE][4];
    if (height <= 2) {
        tile_part(height, 4, a, corrections, stride, w, steps, s);
#pragma GCC unroll 2
        for (int r = 0; r < height; r++) sums[r][0] = (integers){s[r][0], s[r][1]}, sums[r][1] = (integers){s[r][2], s[r][3]};
        return;
    }
#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) {
        tile_part(height, 2, a, corrections, stride, w + part * 64, steps, s);
#pragma GCC unroll 4
        for (int r = 0; r < height; r++) sums[r][part] = (integers){s[r][0], s[r][1]};
    }
}

/* Add the products of what was split off a row. */
INLINE void add_rests(const rest *rests, int count, const uint8_t *w, integers sums[2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i s[4] = {sums[0].low, sums[0].high, sums[1].low, sums[1].high}; /* in registers, see tile_part() */
    for (int i = 0; i < count; i++) {
        const __m256i *at = (const __m256i *)(w + (size_t)rests[i].step * 4 * COLUMNS);
        const __m256i inputs = repeated(rests[i].values);
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            const __m256i pairs = _mm256_maddubs_epi16(_mm256_loadu_si256(at + v), inputs);
            s[v] = _mm256_add_epi32(s[v], _mm256_madd_epi16(pairs, ones));
            __asm__("" : "+x"(s[v]));
        }
    }
    sums[0] = (integers){s[0], s[1]}, sums[1] = (integers){s[2], s[3]};
}

/* The products of `count` queries with 8 of the 16 keys of a block. */
INLINE void score_part(const int count, const float *queries, size_t stride, const half *keys, const half *next, int width,
                       __m256 scores[2]) {
    __m256 s[2][4];
#pragma GCC unroll 2
    for (int q = 0; q < count; q++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) s[q][i] = _mm256_setzero_ps();
    int d = 0;
    for (; d + 4 <= width; d += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m256 column = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(keys + (d + i) * POSITIONS)));
            if (i % 2 == 0) _mm_prefetch((const char *)(next + (d + i) * POSITIONS), _MM_HINT_T0);
#pragma GCC unroll 2
            for (int q = 0; q < count; q++)
                s[q][i] = _mm256_fmadd_ps(_mm256_set1_ps(queries[q * stride + d + i]), column, s[q][i]);
        }
    for (; d < width; d++)
#pragma GCC unroll 2
        for (int q = 0; q < count; q++)
            s[q][0] = _mm256_fmadd_ps(_mm256_set1_ps(queries[q * stride + d]),
                                      _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(keys + d * POSITIONS))), s[q][0]);
#pragma GCC unroll 2
    for (int q = 0; q < count; q++)
        scores[q] = _mm256_add_ps(_mm256_add_ps(s[q][0], s[q][1]), _mm256_add_ps(s[q][2], s[q][3]));
}

/* The products of `count` queries with the 16 keys of a block, [D][16]; see avx512.h. Two queries at a time: more would not
 * fit into 16 registers. */
INLINE void score_block(const int count, const float *queries, size_t stride, const half *keys, const half *next, int width,
                        floats scores[4]) {
#pragma GCC unroll 2
    for (int q = 0; q < count; q += 2) {
        const int some = count - q < 2 ? count - q : 2;
        __m256 low[2], high[2];
        score_part(some, queries + q * stride, stride, keys, next, width, low);
        score_part(some, queries + q * stride, stride, keys + 8, next, width, high);
#pragma GCC unroll 2
        for (int i = 0; i < some; i++) scores[q + i] = (floats){low[i], high[i]};
    }
}

#endif
