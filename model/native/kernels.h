/* What one file of the kernels uses of another. */
#ifndef GS_KERNELS_H
#define GS_KERNELS_H

#include <stdint.h>

typedef struct gs_model gs_model;

/* One position of every row; see decode_part in kernels.c. Returns -1 when there is no memory. */
int gs_decode(const gs_model *model, int32_t threads, int32_t rows, const int32_t *ids, const int32_t *positions,
              const float *table, float *const *pages, int32_t max_pages, float *const *cross,
              const int32_t *cross_lengths, float *logits, float *maxima, float *sums);

void gs_best(int32_t rows, int32_t vocabulary, const float *logits, const float *maxima, const float *sums, int32_t k,
             const int32_t *banned, const int32_t *banned_starts, float *values, int64_t *ids, float *log_sums);

#endif
