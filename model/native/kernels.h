/* What one file of the kernels uses of another. */
#ifndef GS_KERNELS_H
#define GS_KERNELS_H

#include <stdint.h>

#define COLUMNS 32   /* outputs in a block of packed weights; library.py says it again */
#define POSITIONS 16 /* positions in a block of keys and values, and in a page; pages.py says it again */

typedef uint16_t half; /* IEEE 754 binary16 */

/* Four inputs of a product that were split off a row, see split_row() in avx2.h. */
typedef struct {
    int32_t step; /* of four inputs */
    int8_t values[4];
} rest;

typedef struct gs_model gs_model;

typedef struct {
    int index, count;
} team;

/* One thread's part of a call. */
typedef void (*program)(team, void *);

/* Of a clock that only goes forward. */
int64_t gs_nanoseconds(void);

/* Runs `body` on up to `threads` threads, this one among them; returns when all are done. */
void gs_run(program body, void *argument, int32_t threads);

/* Weights that a decode step reads. */
int64_t gs_step_weights(const gs_model *model);

/* One position of every row; see decode_part in kernels.c. Logits and sums may be NULL if they are not wanted; `hidden`
 * [rows][M] is what logits are computed from. Returns -1 when there is no memory. */
int gs_decode(const gs_model *model, int32_t threads, int32_t rows, const int32_t *ids, const int32_t *positions,
              const float *table, half *const *pages, int32_t max_pages, half *const *cross,
              const int32_t *cross_lengths, float *hidden, float *logits, float *maxima, float *sums, uint8_t *places);

/* The logits of one row. Returns -1 when there is no memory. */
int gs_logits(const gs_model *model, const float *hidden, float *logits);

/* The best token of each row. */
void gs_top(int32_t rows, int32_t vocabulary, const float *maxima, const uint8_t *places, float *values, int64_t *ids);

/* The logarithm of a row's sum of e^logit; `top` is the largest of its maxima. */
float gs_log_sum(int32_t blocks, const float *maxima, const float *sums, float top);

void gs_best(int32_t rows, int32_t vocabulary, const float *logits, const float *maxima, const float *sums, int32_t k,
             const int32_t *banned, const int32_t *banned_starts, float *values, int64_t *ids, float *log_sums);

#endif
