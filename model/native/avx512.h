/* Vectors of 16 numbers on processors with AVX-512 VNNI, and what differs with their width. avx2.h has the same names. */
#ifndef GS_VECTORS_H
#define GS_VECTORS_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))

#define ROWS_AT_ONCE 12    /* of a product: as many sums as there are registers */
#define OUTPUTS_AT_ONCE 32 /* of attention */
#define WEIGHT_SHIFT 128   /* added to a weight: the instruction multiplies unsigned by signed bytes */
#define SPLITS 0           /* inputs are never too large, see avx2.h */
#define FULL_APART 0       /* a mask costs nothing */
#define UNROLL_HALVES
#define INPUTS_AT_ONCE 1   /* that a row of rounded inputs is filled up to: not at all */
#if defined(__linux__) && defined(__has_include)
#if __has_include(<amxint8intrin.h>) /* the assembler is as new */
#define MATRICES 1
#endif
#endif

typedef __m512 floats;
typedef __m512i integers;
typedef __m256i halves;
typedef __mmask16 mask;

/* Which of 16 lanes count, if `count` numbers are left. */
INLINE mask lanes(int count) { return count >= 16 ? (mask)0xFFFF : count > 0 ? (mask)((1u << count) - 1) : 0; }
INLINE uint32_t bits(mask m) { return m; }

INLINE floats splat(float x) { return _mm512_set1_ps(x); }
INLINE floats zeros(void) { return _mm512_setzero_ps(); }
INLINE floats load(const float *from) { return _mm512_loadu_ps(from); }
INLINE void store(float *to, floats x) { _mm512_storeu_ps(to, x); }
/* The first `count`, or all if there are more; the others are 0, or `other`, or not written. */
INLINE floats load_some(int count, const float *from) { return _mm512_maskz_loadu_ps(lanes(count), from); }
INLINE floats load_or(floats other, int count, const float *from) { return _mm512_mask_loadu_ps(other, lanes(count), from); }
INLINE void store_some(float *to, int count, floats x) { _mm512_mask_storeu_ps(to, lanes(count), x); }
INLINE floats keep(mask m, floats x) { return _mm512_maskz_mov_ps(m, x); }
INLINE floats keep_or(floats other, mask m, floats x) { return _mm512_mask_mov_ps(other, m, x); }

INLINE floats add(floats a, floats b) { return _mm512_add_ps(a, b); }
INLINE floats subtract(floats a, floats b) { return _mm512_sub_ps(a, b); }
INLINE floats times(floats a, floats b) { return _mm512_mul_ps(a, b); }
INLINE floats divide(floats a, floats b) { return _mm512_div_ps(a, b); }
INLINE floats times_plus(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }
INLINE floats minus_times(floats a, floats b, floats c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
INLINE floats larger(floats a, floats b) { return _mm512_max_ps(a, b); } /* b where one of both is NaN */
INLINE floats smaller(floats a, floats b) { return _mm512_min_ps(a, b); }
INLINE floats magnitude(floats x) { return _mm512_abs_ps(x); }
INLINE floats nearest(floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
INLINE floats times_power(floats x, floats n) { return _mm512_scalef_ps(x, n); } /* x 2^n; n is whole, from -150 to 128 */
INLINE float sum_of(floats x) { return _mm512_reduce_add_ps(x); }
INLINE float maximum_of(floats x) { return _mm512_reduce_max_ps(x); }

INLINE mask equal(floats a, floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE mask not_equal(floats a, floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); } /* NaN is not */
INLINE mask greater(floats a, floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE mask not_less(floats a, floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); } /* NaN is not */
INLINE mask is_nan(floats a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }

INLINE integers no_integers(void) { return _mm512_setzero_si512(); }
INLINE integers add_integers(integers a, integers b) { return _mm512_add_epi32(a, b); }
INLINE integers rounded_integers(int count, floats x) { return _mm512_maskz_cvtps_epi32(lanes(count), x); }
INLINE int32_t sum_of_integers(integers x) { return _mm512_reduce_add_epi32(x); }
/* The floats of x - offset. */
INLINE floats from_integers(integers x, int32_t offset) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(x, _mm512_set1_epi32(offset)));
}
INLINE void store_bytes(int8_t *to, int count, integers x) { _mm512_mask_cvtsepi32_storeu_epi8(to, lanes(count), x); }

INLINE halves narrow(floats x) {
    /* In this order of arguments NaN stays NaN. */
    x = larger(splat(-65504.0f), smaller(splat(65504.0f), x));
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE floats widen(int count, const half *from) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes(count), from)); }
INLINE void store_halves(half *to, int count, halves x) { _mm256_mask_storeu_epi16(to, lanes(count), x); }

/* `height` rows times 32 outputs. The height is a constant where this is called, so that the compiler unrolls the loops
 * and keeps every sum in a register. */
INLINE void tile(const int height, const int8_t *a, const int32_t *corrections, size_t stride, const uint8_t *w, int groups,
                 integers sums[][2]) {
    (void)corrections;
    __m512i s[12][2];
#pragma GCC unroll 12
    for (int r = 0; r < height; r++) s[r][0] = s[r][1] = _mm512_setzero_si512();
    for (int g = 0; g < groups; g++) {
        const uint8_t *at = w + (size_t)g * 4 * COLUMNS;
        __m512i low = _mm512_loadu_si512(at), high = _mm512_loadu_si512(at + 64);
        /* Few rows wait for memory whatever is done; with more, the next block arrives while this one is used. */
        if (height > 6) {
            _mm_prefetch((const char *)at + (size_t)groups * 4 * COLUMNS, _MM_HINT_T1);
            _mm_prefetch((const char *)at + (size_t)groups * 4 * COLUMNS + 64, _MM_HINT_T1);
        }
#pragma GCC unroll 12
        for (int r = 0; r < height; r++) {
            int32_t four;
            memcpy(&four, a + r * stride + g * 4, 4);
            __m512i row = _mm512_set1_epi32(four);
            s[r][0] = _mm512_dpbusd_epi32(s[r][0], low, row);
            s[r][1] = _mm512_dpbusd_epi32(s[r][1], high, row);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < height; r++) sums[r][0] = s[r][0], sums[r][1] = s[r][1];
}

/* Processors with AMX multiply whole matrices: 16 rows of 64 inputs with 64 inputs of 16 outputs in one instruction, into
 * sums of 32 bits, the same numbers as above. The packed weights lie as it wants them. */
#ifdef MATRICES
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MATRIX_ROWS 16
#define MATRIX_INPUTS 64

/* Whether this processor has them and the system lets this process use them: their registers are 8 KB, which it must
 * keep for each thread. */
static int find_matrices(void) {
    enum { XCOMP_PERMISSION = 0x1023, TILE_DATA = 18, TILES_AND_BYTES = 3 << 24 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TILES_AND_BYTES) != TILES_AND_BYTES) return 0;
    return syscall(SYS_arch_prctl, XCOMP_PERMISSION, TILE_DATA) == 0;
}

/* From now on this thread has matrices of so many rows in registers 0 to 2, and of 16 in 3 and 4. */
INLINE void set_matrices(int rows) {
    struct { /* what the instruction reads */
        uint8_t palette, start, unused[14];
        uint16_t bytes_a_row[16];
        uint8_t rows[16];
    } shape __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 5; i++) shape.bytes_a_row[i] = 64, shape.rows[i] = (uint8_t)(i < 3 ? rows : 16);
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

/* Their registers are kept for nobody any more, and a change of threads costs nothing again. */
INLINE void leave_matrices(void) { __asm__ volatile("tilerelease"); }

/* As many rows as set_matrices() was told times 32 outputs; `steps` of 64 inputs. */
INLINE void multiply_matrices(const int8_t *a, size_t stride, const uint8_t *w, int steps, integers sums[][2]) {
    __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1" ::: "memory");
    for (int i = 0; i < steps; i++, a += MATRIX_INPUTS, w += MATRIX_INPUTS * COLUMNS)
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm2\n\t"
                         "tileloadd (%2,%3,1), %%tmm3\n\t"
                         "tileloadd 64(%2,%3,1), %%tmm4\n\t"
                         "tdpbsud %%tmm3, %%tmm2, %%tmm0\n\t"
                         "tdpbsud %%tmm4, %%tmm2, %%tmm1"
                         ::"r"(a), "r"(stride), "r"(w), "r"((size_t)(4 * COLUMNS)) : "memory");
    __asm__ volatile("tilestored %%tmm0, (%0,%1,1)\n\ttilestored %%tmm1, 64(%0,%1,1)" ::"r"(sums), "r"(sizeof sums[0])
                     : "memory");
}
#endif

INLINE int32_t split_row(int8_t *values, int32_t *corrections, rest *rests, int32_t *rest_count, int width) {
    (void)values, (void)corrections, (void)rests, (void)rest_count, (void)width;
    return 0;
}
INLINE void add_rests(const rest *rests, int count, const uint8_t *w, integers sums[2]) {
    (void)rests, (void)count, (void)w, (void)sums;
}

/* The products of `count` queries with the 16 keys of a block, [D][16]. What is summed in which order is the same for
 * any count, and the same in avx2.h. `next`: the block that is read after it; blocks lie apart, so that the processor
 * does not see what comes next. */
INLINE void score_block(const int count, const float *queries, size_t stride, const half *keys, const half *next, int width,
                        floats scores[4]) {
    __m512 s[4][4];
#pragma GCC unroll 4
    for (int q = 0; q < count; q++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) s[q][i] = _mm512_setzero_ps();
    int d = 0;
    for (; d + 4 <= width; d += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512 column = widen(16, keys + (d + i) * POSITIONS);
            if (i % 2 == 0) _mm_prefetch((const char *)(next + (d + i) * POSITIONS), _MM_HINT_T0);
#pragma GCC unroll 4
            for (int q = 0; q < count; q++)
                s[q][i] = _mm512_fmadd_ps(_mm512_set1_ps(queries[q * stride + d + i]), column, s[q][i]);
        }
    for (; d < width; d++)
#pragma GCC unroll 4
        for (int q = 0; q < count; q++)
            s[q][0] = _mm512_fmadd_ps(_mm512_set1_ps(queries[q * stride + d]), widen(16, keys + d * POSITIONS), s[q][0]);
#pragma GCC unroll 4
    for (int q = 0; q < count; q++) scores[q] = add(add(s[q][0], s[q][1]), add(s[q][2], s[q][3]));
}

#endif
