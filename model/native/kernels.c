/* Whole encoder passes and whole decode steps in 8-bit integers, for x86-64 processors with AVX-512 VNNI or AVX2: compiled
 * once for each, with the same bits as the result.
 *
 * The same arithmetic as the PyTorch modules of model/ in int8 (which stay the definition, and run where this file was
 * not compiled): weights rounded by output, inputs rounded by row, everything between the matrix products in float32.
 * What is won here is all that stands around the products in a decode step of a few rows: dispatch, copies, masks.
 *
 * Conventions: row-major; R rows, M model width, H heads, D = M / H, N outputs, K inputs of a matrix.
 *
 * One call runs on several threads at once, each doing its share of every stage, with a barrier between stages (one
 * program, many data): a step has about ninety stages of 5 to 100 microseconds, too short to hand out one by one.
 * Every number is computed by one thread in an order that depends on nothing but its own row, so results are the same
 * bits for any number of threads and whatever rows are beside it.
 *
 * A key-value block holds 16 positions of one layer and head: keys transposed [D][16], then values [16][D]. Sixteen
 * scores are then one multiply-add a dimension, without horizontal sums. They are float16: where sources are long or rows
 * many, a step waits for keys and values to come from memory. What is beyond its range becomes its largest number.
 */
#define _DEFAULT_SOURCE /* syscall() */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels.h"

#if defined(__AVX512VNNI__)
#include "avx512.h"
#else
#include "avx2.h"
#endif

#define GS_ABI 6
#define MAX_THREADS 64

enum activation { ACT_NONE = 0, ACT_RELU = 1, ACT_SWISH = 2, ACT_GELU = 3, ACT_GELU_TANH = 4 };

/* The layouts of these structures are repeated in library.py. */
typedef struct {
    const uint8_t *weights; /* [ceil(N / 32)][K / 4][32][4], each rounded weight + gs_weight_shift() */
    const float *scales;    /* [N]: the value of one step of the weight, over the levels of the input */
    const float *bias;      /* [N], or NULL */
    int32_t outputs, inputs;
} gs_linear;

typedef struct {
    const float *weight, *bias; /* [M]; weight NULL: there is no norm */
    float eps;
    int32_t unused;
} gs_norm;

typedef struct {
    gs_linear qkv, out, inner, outer;
    gs_norm attention_norm, ffn_norm;
} gs_encoder_layer;

typedef struct {
    gs_linear qkv, out, query, kv, cross_out, inner, outer;
    gs_norm attention_norm, cross_norm, ffn_norm;
} gs_decoder_layer;

struct gs_model {
    int32_t width, heads, ffn_width, encoder_layers, decoder_layers, vocabulary, pre_norm, activation;
    const gs_encoder_layer *encoder;
    const gs_decoder_layer *decoder;
    gs_norm encoder_norm, decoder_norm;
    gs_linear output;
    const float *source_embedding, *target_embedding; /* [vocabulary][M] */
    float embedding_factor;
    int32_t unused;
};

/* ---------------------------------------------------------------------------------------------------- threads */

static struct {
    pthread_mutex_t busy; /* held by the call that owns the workers */
    pthread_mutex_t sleep_lock;
    pthread_cond_t wake;
    atomic_uint ticket;
    atomic_int sleepers, finished;
    int workers, count;
    int crowded;                /* see crowd() */
    int64_t alone_until, pause; /* nanoseconds */
    uint64_t waited;            /* cycles that the calling thread has waited for others in this call */
    unsigned first_tickets[MAX_THREADS]; /* what each worker has seen when it starts */
    program run;
    void *argument;
    atomic_int arrived;
    atomic_uint round;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .sleep_lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

INLINE void relax(int *spins) {
    /* Where another process has the core that a thread of ours needs, spinning on would only keep it waiting. */
    if (++*spins < 4000)
        _mm_pause();
    else
        sched_yield();
}

static void barrier(team t) {
    if (t.count == 1) return;
    unsigned round = atomic_load_explicit(&pool.round, memory_order_acquire);
    if (atomic_fetch_add_explicit(&pool.arrived, 1, memory_order_acq_rel) == t.count - 1) {
        atomic_store_explicit(&pool.arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&pool.round, round + 1, memory_order_release);
        return;
    }
    int spins = 0;
    uint64_t begin = t.index ? 0 : __rdtsc();
    while (atomic_load_explicit(&pool.round, memory_order_acquire) == round) relax(&spins);
    if (!t.index) pool.waited += __rdtsc() - begin;
}

int64_t gs_nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

#define FIRST_PAUSE INT64_C(50000000)
#define LONGEST_PAUSE INT64_C(2000000000)
#define WAKING INT64_C(1000000)

/* Where other processes want the cores, threads that wait for one another at every stage wait for the scheduler: a step
 * of 2 milliseconds then takes 30. When a call has mostly waited, three times in a row, the next ones do without the
 * workers for a while; each time that they still had to wait when tried again, for twice as long. A call that is over
 * in a millisecond says nothing: to wake a worker takes a good part of it. */
static void crowd(uint64_t cycles, int64_t begin) {
    int64_t now = gs_nanoseconds();
    if (now - begin < WAKING) return;
    if (pool.waited * 2 < cycles) {
        pool.crowded = 0;
        pool.pause = 0;
    } else if (++pool.crowded >= 3) {
        pool.pause = pool.pause ? 2 * pool.pause : FIRST_PAUSE;
        if (pool.pause > LONGEST_PAUSE) pool.pause = LONGEST_PAUSE;
        pool.alone_until = now + pool.pause;
        pool.crowded = 2; /* one more bad call is enough */
    }
}

static void *work(void *argument) {
    int index = (int)(intptr_t)argument;
    unsigned seen = pool.first_tickets[index];
    for (;;) {
        int spins = 0;
        /* About 100 microseconds: what lies between two steps of a busy engine. */
        while (atomic_load_explicit(&pool.ticket, memory_order_acquire) == seen && spins < 3000) {
            _mm_pause();
            spins++;
        }
        if (atomic_load_explicit(&pool.ticket, memory_order_acquire) == seen) {
            pthread_mutex_lock(&pool.sleep_lock);
            atomic_fetch_add(&pool.sleepers, 1);
            while (atomic_load(&pool.ticket) == seen) pthread_cond_wait(&pool.wake, &pool.sleep_lock);
            atomic_fetch_sub(&pool.sleepers, 1);
            pthread_mutex_unlock(&pool.sleep_lock);
        }
        seen = atomic_load_explicit(&pool.ticket, memory_order_acquire);
        if (index < pool.count) pool.run((team){index, pool.count}, pool.argument);
        atomic_fetch_add_explicit(&pool.finished, 1, memory_order_acq_rel);
    }
    return NULL;
}

static void run(program body, void *argument, int threads) {
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    /* Another call has the workers: alone it takes longer, and gives the same numbers. */
    if (threads <= 1 || pthread_mutex_trylock(&pool.busy) != 0) {
        body((team){0, 1}, argument);
        return;
    }
    int64_t started = gs_nanoseconds();
    if (started < pool.alone_until) {
        pthread_mutex_unlock(&pool.busy);
        body((team){0, 1}, argument);
        return;
    }
    pool.waited = 0;
    uint64_t begin = __rdtsc();
    while (pool.workers < threads - 1) {
        pthread_t thread;
        pool.first_tickets[pool.workers + 1] = atomic_load(&pool.ticket);
        if (pthread_create(&thread, NULL, work, (void *)(intptr_t)(pool.workers + 1)) != 0) break;
        pthread_detach(thread);
        pool.workers++;
    }
    pool.count = threads < pool.workers + 1 ? threads : pool.workers + 1;
    pool.run = body;
    pool.argument = argument;
    atomic_store(&pool.finished, 0);
    atomic_fetch_add(&pool.ticket, 1);
    if (atomic_load(&pool.sleepers) > 0) {
        pthread_mutex_lock(&pool.sleep_lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep_lock);
    }
    body((team){0, pool.count}, argument);
    int spins = 0;
    uint64_t end = __rdtsc();
    while (atomic_load_explicit(&pool.finished, memory_order_acquire) < pool.workers) relax(&spins);
    pool.waited += __rdtsc() - end;
    crowd(__rdtsc() - begin, started);
    pthread_mutex_unlock(&pool.busy);
}

void gs_run(program body, void *argument, int32_t threads) { run(body, argument, threads); }

/* Threads that are worth waking for products of `rows` rows with `weights` weights: each gets 0.4 milliseconds of work, at
 * 20 weights (read from memory) or 100 products a nanosecond. */
static int worthwhile(int threads, int64_t rows, int64_t weights) {
    double milliseconds = weights / 20e6, computing = (double)rows * weights / 100e6;
    if (computing > milliseconds) milliseconds = computing;
    int most = 1 + (int)(milliseconds / 0.4);
    return threads < most ? threads : most;
}

/* A child of fork has none of the workers. */
static void forget_workers(void) {
    pool.workers = 0;
    atomic_store(&pool.ticket, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.arrived, 0);
    pthread_mutex_init(&pool.busy, NULL);
    pthread_mutex_init(&pool.sleep_lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

static void prepare_matrices(void);

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget_workers);
    prepare_matrices();
}

/* This thread's part of `count` things: [first, last). */
INLINE void share(team t, int count, int *first, int *last) {
    *first = (int)((int64_t)count * t.index / t.count);
    *last = (int)((int64_t)count * (t.index + 1) / t.count);
}

/* ---------------------------------------------------------------------------------------------------- numbers */

/* e^x to about 1 ulp: x = n ln 2 + r, a polynomial in r, times 2^n (the coefficients of Cephes' expf). */
INLINE floats exponential(floats x) {
    x = larger(smaller(x, splat(88.7f)), splat(-103.9f));
    floats n = nearest(times(x, splat(1.44269504f)));
    floats r = minus_times(n, splat(0.693359375f), x);
    r = minus_times(n, splat(-2.12194440e-4f), r);
    floats p = splat(1.9875691500e-4f);
    p = times_plus(p, r, splat(1.3981999507e-3f));
    p = times_plus(p, r, splat(8.3334519073e-3f));
    p = times_plus(p, r, splat(4.1665795894e-2f));
    p = times_plus(p, r, splat(1.6666665459e-1f));
    p = times_plus(p, r, splat(5.0000001201e-1f));
    p = times_plus(p, times(r, r), add(r, splat(1.0f)));
    return times_power(p, n);
}

static floats activate_rare(floats x, int kind) {
    float values[16];
    store(values, x);
    for (int i = 0; i < 16; i++) {
        float v = values[i];
        values[i] = kind == ACT_GELU ? 0.5f * v * (1.0f + erff(v * 0.70710678f))
                                     : 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    }
    return load(values);
}

INLINE floats activate(floats x, int kind) {
    switch (kind) {
        case ACT_NONE: return x;
        case ACT_RELU: return larger(x, zeros());
        case ACT_SWISH: return divide(x, add(splat(1.0f), exponential(subtract(zeros(), x))));
        default: return activate_rare(x, kind);
    }
}

/* gamma (x - mean) / sqrt(variance + eps) + beta; in place is fine. */
static void normalize(const float *x, float *y, int width, const gs_norm *norm) {
    floats sum = zeros();
    for (int i = 0; i < width; i += 16) sum = add(sum, load_some(width - i, x + i));
    float mean = sum_of(sum) / width;
    floats center = splat(mean), squares = zeros();
    for (int i = 0; i < width; i += 16) {
        floats d = keep(lanes(width - i), subtract(load_some(width - i, x + i), center));
        squares = times_plus(d, d, squares);
    }
    floats rate = splat(1.0f / sqrtf(sum_of(squares) / width + norm->eps));
    for (int i = 0; i < width; i += 16) {
        const int left = width - i;
        floats d = times(subtract(load_some(left, x + i), center), rate);
        d = times_plus(d, load_some(left, norm->weight + i), load_some(left, norm->bias + i));
        store_some(y + i, left, d);
    }
}

/* ------------------------------------------------------------------------------------------------------- memory */

static __thread char *arena;
static __thread size_t arena_size;

static char *reserve(size_t size) {
    if (size > arena_size) {
        free(arena);
        size = (size + size / 4 + 4095) & ~(size_t)4095;
        arena = aligned_alloc(64, size);
        arena_size = arena ? size : 0;
    }
    return arena;
}

static void *take(char **from, size_t size) {
    char *got = *from;
    *from += (size + 63) & ~(size_t)63;
    return got;
}

/* Rows of numbers in 8 bits. The last three are only used where SPLITS is 1. */
typedef struct {
    int8_t *values;       /* [R][stride] */
    float *ranges;        /* [R] largest magnitude */
    int32_t *offsets;     /* [R] what the shift of the weights adds to a product */
    int32_t *corrections; /* [R][stride / 8] */
    rest *rests;          /* [R][stride / 4] */
    int32_t *rest_counts; /* [R] */
    int stride;
} rounded;

INLINE size_t filled_up(size_t width) { return (width + INPUTS_AT_ONCE - 1) / INPUTS_AT_ONCE * INPUTS_AT_ONCE; }

/* Bytes of `rows` rows of `width` in 8 bits, and where in a buffer they are to lie. */
INLINE size_t rounded_size(int rows, size_t width) {
    const size_t stride = filled_up(width);
    const size_t split = stride / 8 * sizeof(int32_t) + stride / 4 * sizeof(rest) + sizeof(int32_t);
    return rows * (stride + sizeof(float) + sizeof(int32_t) + (SPLITS ? split : 0)) + 64 * 6;
}

INLINE rounded rounded_at(char **from, int rows, size_t width) {
    const size_t stride = filled_up(width);
    rounded at = {.stride = (int)stride};
    at.values = take(from, rows * stride);
    at.ranges = take(from, rows * sizeof(float));
    at.offsets = take(from, rows * sizeof(int32_t));
    if (SPLITS) {
        at.corrections = take(from, rows * (stride / 8) * sizeof(int32_t));
        at.rests = take(from, rows * (stride / 4) * sizeof(rest));
        at.rest_counts = take(from, rows * sizeof(int32_t));
    }
    return at;
}

/* Round a row to 127 steps of its own largest magnitude. */
static void round_row(const float *x, int width, rounded out, int row) {
    floats largest = zeros();
    for (int i = 0; i < width; i += 16) largest = larger(largest, magnitude(load_some(width - i, x + i)));
    float range = maximum_of(largest);
    if (!(range >= 1e-30f)) range = range != range ? range : 1e-30f;
    floats divisor = splat(range), levels = splat(127.0f);
    integers sum = no_integers();
    const size_t start = (size_t)row * out.stride;
    for (int i = 0; i < width; i += 16) {
        const int left = width - i;
        integers whole = rounded_integers(left, times(divide(load_some(left, x + i), divisor), levels));
        sum = add_integers(sum, whole);
        store_bytes(out.values + start + i, left, whole);
    }
    out.ranges[row] = range;
    int32_t shifted = SPLITS ? 0 : sum_of_integers(sum); /* inputs whose products are not corrected elsewhere */
    if (SPLITS) {
        memset(out.values + start + width, 0, filled_up(width) - width);
        shifted = split_row(out.values + start, out.corrections + start / 8, out.rests + start / 4, out.rest_counts + row, width);
    }
    out.offsets[row] = WEIGHT_SHIFT * shifted;
}

/* ------------------------------------------------------------------------------------------- matrix products */

typedef struct {
    float *to;             /* [R][stride]; NULL: only what follows is wanted */
    size_t stride;
    const float *residual; /* added, same layout as `to`, or NULL */
    int activation;
    float *maxima;         /* [R][blocks] of each 32 outputs the maximum, NaN where one is NaN or +inf; or NULL */
    uint8_t *places;       /* [R][blocks] where in the block the first such stands */
    float *sums;           /* [R][blocks] the sum of e^(x - maximum); or NULL */
    int blocks;
} target;

/* A function of its own, so that no tile spills for the sake of what follows it. */
#define TILE(height)                                                                                                 \
    static __attribute__((noinline)) void tile_##height(const int8_t *a, const int32_t *corrections, size_t stride,  \
                                                        const uint8_t *w, int groups, integers sums[][2]) {          \
        tile(height, a, corrections, stride, w, groups, sums);                                                       \
    }
typedef void (*tile_function)(const int8_t *, const int32_t *, size_t, const uint8_t *, int, integers[][2]);
TILE(1) TILE(2) TILE(3) TILE(4)
#if ROWS_AT_ONCE == 4
static const tile_function tiles[5] = {NULL, tile_1, tile_2, tile_3, tile_4};
#else
TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
static const tile_function tiles[13] = {NULL,   tile_1, tile_2, tile_3, tile_4,  tile_5, tile_6,
                                        tile_7, tile_8, tile_9, tile_10, tile_11, tile_12};
#endif

#ifdef MATRICES
#define MOST_ROWS MATRIX_ROWS
static int has_matrices; /* whether they are used; see gs_use_matrices() */

/* One row alone is as fast without. */
INLINE int suits_matrices(const gs_linear *linear, int rows) {
    return has_matrices && rows > 1 && linear->inputs % MATRIX_INPUTS == 0;
}
#else
#define MOST_ROWS ROWS_AT_ONCE
#endif

INLINE floats finish(integers sum, const gs_linear *linear, int column, int left, float range, int32_t offset,
                     int activation, const float *residual) {
    floats value = from_integers(sum, offset);
    value = times(value, load_some(left, linear->scales + column));
    value = times(value, splat(range));
    if (linear->bias) value = add(value, load_some(left, linear->bias + column));
    if (activation) value = activate(value, activation);
    if (residual) value = add(load_some(left, residual), value);
    return value;
}

/* What is kept of a block of outputs; there may be no need of the outputs themselves. */
INLINE void describe(const floats values[2], target out, size_t at) {
    const floats infinity = splat(INFINITY);
    const uint32_t odd = bits(not_less(values[0], infinity)) |
                         bits(not_less(values[1], infinity)); /* must not vanish in a maximum */
    const float maximum = odd ? NAN : maximum_of(larger(values[0], values[1]));
    const floats center = splat(maximum);
    const uint32_t best = bits(equal(values[0], center)) | bits(equal(values[1], center)) << 16;
    out.maxima[at] = maximum;
    out.places[at] = best ? (uint8_t)__builtin_ctz(best) : 0;
    if (!out.sums) return;
    /* Where all are -inf, e^(-inf + inf) would be NaN. */
    const floats from = maximum == -INFINITY ? zeros() : center, nothing = splat(-INFINITY);
    const floats total = add(keep(not_equal(values[0], nothing), exponential(subtract(values[0], from))),
                             keep(not_equal(values[1], nothing), exponential(subtract(values[1], from))));
    out.sums[at] = sum_of(total);
}

/* One block of 32 outputs for all rows: of up to 512 inputs it stays in the first cache while the rows come by. `full`:
 * whether all 32 are there, a constant where this is called. */
INLINE void multiply_block_as(const int full, const gs_linear *linear, int block, rounded input, int rows, target out,
                              int *shaped) {
    (void)shaped;
    const int groups = linear->inputs / 4, start = block * COLUMNS;
    const uint8_t *weights = linear->weights + (size_t)block * linear->inputs * COLUMNS;
    integers sums[MOST_ROWS][2];
    for (int first = 0; first < rows;) {
        int left = rows - first;
        /* As many rows as there are registers for their sums; no tile is left with one row, a rest of nearly two is halved. */
        int height = left <= ROWS_AT_ONCE ? left : left < 2 * ROWS_AT_ONCE ? (left + 1) / 2 : ROWS_AT_ONCE;
        const size_t from = (size_t)first * input.stride;
#ifdef MATRICES
        if (suits_matrices(linear, left)) {
            height = left < MATRIX_ROWS ? left : MATRIX_ROWS;
            if (*shaped != height) set_matrices(*shaped = height);
            multiply_matrices(input.values + from, input.stride, weights, linear->inputs / MATRIX_INPUTS, sums);
        } else
#endif
            tiles[height](input.values + from, input.corrections + from / 8, input.stride, weights, groups, sums);
        for (int r = 0; r < height; r++) {
            const int row = first + r;
            if (SPLITS) add_rests(input.rests + (size_t)row * input.stride / 4, input.rest_counts[row], weights, sums[r]);
            floats values[2];
            UNROLL_HALVES
            for (int v = 0; v < 2; v++) {
                const int column = start + v * 16, columns = full ? COLUMNS : linear->outputs - column;
                if (columns <= 0) {
                    values[v] = splat(-INFINITY);
                    continue;
                }
                const size_t at = (size_t)row * out.stride + column;
                values[v] = finish(sums[r][v], linear, column, columns, input.ranges[row], input.offsets[row], out.activation,
                                   out.residual ? out.residual + at : NULL);
                if (out.to) store_some(out.to + at, columns, values[v]);
                if (!full) values[v] = keep_or(splat(-INFINITY), lanes(columns), values[v]);
            }
            if (out.maxima) describe(values, out, (size_t)row * out.blocks + block);
        }
        first += height;
    }
}

static void multiply_block(const gs_linear *linear, int block, rounded input, int rows, target out, int *shaped) {
    if (FULL_APART && (block + 1) * COLUMNS <= linear->outputs)
        multiply_block_as(1, linear, block, input, rows, out, shaped);
    else
        multiply_block_as(0, linear, block, input, rows, out, shaped);
}

static void multiply(team t, const gs_linear *linear, rounded input, int rows, target out) {
    int first, last;
    share(t, (linear->outputs + COLUMNS - 1) / COLUMNS, &first, &last);
    int shaped = 0; /* for how many rows the registers for matrices are */
    for (int block = first; block < last; block++) multiply_block(linear, block, input, rows, out, &shaped);
#ifdef MATRICES
    if (shaped) leave_matrices();
#endif
}

/* -------------------------------------------------------------------------------------------------- attention */

INLINE size_t block_numbers(int width) { return (size_t)2 * POSITIONS * width; } /* of one head of width D */

/* Write one position's key and value of one head into a block. */
INLINE void put(half *block, int position, const float *key, const float *value, int width) {
    half *values = block + (size_t)width * POSITIONS + (size_t)position * width;
    for (int d = 0; d < width; d += 16) {
        const int left = width - d;
        half keys[16];
        store_halves(keys, 16, narrow(load_some(left, key + d)));
        for (int i = 0; i < 16 && i < left; i++) block[(d + i) * POSITIONS + position] = keys[i];
        store_halves(values + d, left, narrow(load_some(left, value + d)));
    }
}

/* Where the keys and values of a head lie: pages of their own, or blocks one after the other in one buffer. */
typedef struct {
    half *const *pages;  /* one pointer a block; or, with `step`, one pointer in all */
    size_t offset, step; /* of the head in each; numbers from block to block */
    int length;          /* positions */
} memory;

INLINE const half *block_of(const memory *m, int block) {
    return (m->step ? m->pages[0] + block * m->step : m->pages[block]) + m->offset;
}

/* softmax(q K^T / sqrt(D)) V for `count` queries of one head that look at the same positions. `count` is a constant
 * where this is called; the order of every sum is the same for each. */
INLINE void attend_together(const int count, const float *queries, size_t query_stride, const memory *m, int width,
                            float scale, float *scores, size_t score_stride, float *out, size_t out_stride) {
    const int blocks = (m->length + POSITIONS - 1) / POSITIONS;
    floats largest[4];
#pragma GCC unroll 4
    for (int q = 0; q < count; q++) largest[q] = splat(-INFINITY);
    for (int b = 0; b < blocks; b++) {
        const half *keys = block_of(m, b), *next = b + 1 < blocks ? block_of(m, b + 1) : keys;
        const mask real = lanes(m->length - b * POSITIONS);
        floats score[4];
        score_block(count, queries, query_stride, keys, next, width, score);
#pragma GCC unroll 4
        for (int q = 0; q < count; q++) {
            score[q] = keep_or(splat(-INFINITY), real, times(score[q], splat(scale)));
            largest[q] = larger(largest[q], score[q]);
            store(scores + q * score_stride + b * POSITIONS, score[q]);
        }
    }
    float part[4];
#pragma GCC unroll 4
    for (int q = 0; q < count; q++) {
        floats maximum = splat(maximum_of(largest[q])), total = zeros();
        for (int b = 0; b < blocks; b++) {
            float *at = scores + q * score_stride + b * POSITIONS;
            floats e = keep(lanes(m->length - b * POSITIONS), exponential(subtract(load(at), maximum)));
            total = add(total, e);
            store(at, e);
        }
        part[q] = 1.0f / sum_of(total);
    }
    for (int first = 0; first < width; first += OUTPUTS_AT_ONCE) {
        const int parts = OUTPUTS_AT_ONCE / 16;
        floats mixed[4][2];
#pragma GCC unroll 4
        for (int q = 0; q < count; q++) mixed[q][0] = mixed[q][1] = zeros();
        for (int b = 0; b < blocks; b++) {
            const half *values = block_of(m, b) + (size_t)width * POSITIONS + first;
            int positions = m->length - b * POSITIONS < POSITIONS ? m->length - b * POSITIONS : POSITIONS;
            const half *next = b + 1 < blocks ? block_of(m, b + 1) + (size_t)width * POSITIONS + first : values;
            for (int p = 0; p < positions; p++) {
                _mm_prefetch((const char *)(next + (size_t)p * width), _MM_HINT_T0);
                floats some[2];
#pragma GCC unroll 2
                for (int i = 0; i < parts; i++) some[i] = widen(width - first - i * 16, values + (size_t)p * width + i * 16);
#pragma GCC unroll 4
                for (int q = 0; q < count; q++) {
                    const floats weight = splat(scores[q * score_stride + b * POSITIONS + p]);
#pragma GCC unroll 2
                    for (int i = 0; i < parts; i++) mixed[q][i] = times_plus(weight, some[i], mixed[q][i]);
                }
            }
        }
#pragma GCC unroll 4
        for (int q = 0; q < count; q++)
#pragma GCC unroll 2
            for (int i = 0; i < parts; i++) {
                const int left = width - first - i * 16;
                if (left > 0) store_some(out + q * out_stride + first + i * 16, left, times(mixed[q][i], splat(part[q])));
            }
    }
}

static void attend(const float *query, const memory *m, int width, float scale, float *scores, float *out) {
    attend_together(1, query, 0, m, width, scale, scores, 0, out, 0);
}

static void attend_four(const float *queries, size_t query_stride, const memory *m, int width, float scale,
                        float *scores, size_t score_stride, float *out, size_t out_stride) {
    attend_together(4, queries, query_stride, m, width, scale, scores, score_stride, out, out_stride);
}

/* --------------------------------------------------------------------------------------------------- workspace */

typedef struct {
    float *hidden, *wide, *mixed, *scores; /* [R][M], [R][max(3 M, F)], [R][M], [threads][4][longest] */
    rounded input;
    size_t wide_stride;
    int longest;
} workspace;

static int get_workspace(const gs_model *model, int rows, int longest, int threads, size_t more, workspace *space,
                         char **rest) {
    size_t width = model->width, ffn = model->ffn_width;
    size_t wide = 3 * width > ffn ? 3 * width : ffn, deep = ffn > width ? ffn : width;
    size_t padded = ((size_t)longest + POSITIONS - 1) / POSITIONS * POSITIONS;
    size_t size = rows * (2 * width + wide) * sizeof(float) + rounded_size(rows, deep) + threads * 4 * padded * sizeof(float) +
                  more + 64 * 16;
    char *at = reserve(size);
    if (!at) return 0;
    space->hidden = take(&at, rows * width * sizeof(float));
    space->mixed = take(&at, rows * width * sizeof(float));
    space->wide = take(&at, rows * wide * sizeof(float));
    space->wide_stride = wide;
    space->scores = take(&at, threads * 4 * padded * sizeof(float));
    space->longest = (int)padded;
    space->input = rounded_at(&at, rows, deep);
    *rest = at;
    return 1;
}

/* ------------------------------------------------------------------------------------------------ shared stages */

INLINE void embed(const float *table, float factor, const float *positions, int32_t id, int32_t position, int width,
                  float *to) {
    const float *row = table + (size_t)id * width, *add = positions ? positions + (size_t)position * width : NULL;
    for (int i = 0; i < width; i++) to[i] = row[i] * factor + (add ? add[i] : 0.0f);
}

/* Stage: what a sublayer reads, rounded. With pre-norm that is the normed stream. */
static void prepare_rows(team t, const gs_model *model, const workspace *space, const gs_norm *norm, int rows) {
    int first, last, width = model->width;
    share(t, rows, &first, &last);
    for (int row = first; row < last; row++) {
        const float *x = space->hidden + (size_t)row * width;
        if (norm && norm->weight) {
            float *y = space->mixed + (size_t)row * width;
            normalize(x, y, width, norm);
            x = y;
        }
        round_row(x, width, space->input, row);
    }
    barrier(t);
}

static void round_rows(team t, const float *from, size_t stride, int width, rounded to, int rows) {
    int first, last;
    share(t, rows, &first, &last);
    for (int row = first; row < last; row++) round_row(from + row * stride, width, to, row);
    barrier(t);
}

static void apply(team t, const gs_linear *linear, const workspace *space, int rows, float *to, size_t stride,
                  const float *residual, int activation) {
    multiply(t, linear, space->input, rows, (target){.to = to, .stride = stride, .residual = residual, .activation = activation});
    barrier(t);
}

/* Stage: the norm after a sublayer, with post-norm. */
static void finish_rows(team t, const gs_model *model, const workspace *space, const gs_norm *norm, int rows) {
    if (model->pre_norm) return;
    int first, last, width = model->width;
    share(t, rows, &first, &last);
    for (int row = first; row < last; row++) {
        float *x = space->hidden + (size_t)row * width;
        normalize(x, x, width, norm);
    }
    barrier(t);
}

static void feed_forward(team t, const gs_model *model, const workspace *space, const gs_linear *inner,
                         const gs_linear *outer, const gs_norm *norm, int rows) {
    prepare_rows(t, model, space, model->pre_norm ? norm : NULL, rows);
    apply(t, inner, space, rows, space->wide, space->wide_stride, NULL, model->activation);
    round_rows(t, space->wide, space->wide_stride, model->ffn_width, space->input, rows);
    apply(t, outer, space, rows, space->hidden, model->width, space->hidden, ACT_NONE);
    finish_rows(t, model, space, norm, rows);
}

/* ----------------------------------------------------------------------------------------------------- encoder */

typedef struct {
    const gs_model *model;
    const int32_t *ids;      /* [rows], the sequences one after the other */
    const float *positions;  /* table of positional encodings, or NULL */
    int32_t sequences;
    const int32_t *starts;   /* [sequences + 1] */
    half *const *cross;      /* a buffer for each sequence: [decoder layers][blocks][H][2 * 16 * D] */
    workspace space;
    half *blocks;            /* keys and values of one layer, of all sequences */
    size_t *block_starts;    /* [sequences], in numbers */
} encoding;

static void scatter(half *blocks, int heads, int depth, int position, const float *key, const float *value) {
    half *page = blocks + (size_t)(position / POSITIONS) * heads * block_numbers(depth);
    for (int head = 0; head < heads; head++)
        put(page + head * block_numbers(depth), position % POSITIONS, key + head * depth, value + head * depth, depth);
}

static void encode_part(team t, void *argument) {
    encoding *e = argument;
    const gs_model *model = e->model;
    const workspace *space = &e->space;
    const int width = model->width, heads = model->heads, depth = width / heads, rows = e->starts[e->sequences];
    const float scale = 1.0f / sqrtf((float)depth);
    const size_t page = heads * block_numbers(depth);
    int first, last;
    share(t, e->sequences, &first, &last);
    for (int s = first; s < last; s++)
        for (int row = e->starts[s]; row < e->starts[s + 1]; row++)
            embed(model->source_embedding, model->embedding_factor, e->positions, e->ids[row], row - e->starts[s], width,
                  space->hidden + (size_t)row * width);
    barrier(t);
    for (int l = 0; l < model->encoder_layers; l++) {
        const gs_encoder_layer *layer = &model->encoder[l];
        prepare_rows(t, model, space, model->pre_norm ? &layer->attention_norm : NULL, rows);
        apply(t, &layer->qkv, space, rows, space->wide, space->wide_stride, NULL, ACT_NONE);
        /* Work items are a head of a sequence: its keys and values are laid out, then every query looks at them. */
        int items = e->sequences * heads;
        for (int item = t.index; item < items; item += t.count) {
            int s = item / heads, head = item % heads, start = e->starts[s], length = e->starts[s + 1] - start;
            half *blocks = e->blocks + e->block_starts[s];
            for (int p = 0; p < length; p++) {
                const float *row = space->wide + (size_t)(start + p) * space->wide_stride + head * depth;
                put(blocks + (size_t)(p / POSITIONS) * page + head * block_numbers(depth), p % POSITIONS, row + width,
                    row + 2 * width, depth);
            }
            memory seen = {&blocks, head * block_numbers(depth), page, length};
            float *scores = space->scores + (size_t)t.index * 4 * space->longest;
            for (int p = 0; p < length;) {
                const float *query = space->wide + (size_t)(start + p) * space->wide_stride + head * depth;
                float *out = space->mixed + (size_t)(start + p) * width + head * depth;
                if (p + 4 <= length) {
                    attend_four(query, space->wide_stride, &seen, depth, scale, scores, space->longest, out, width);
                    p += 4;
                } else {
                    attend(query, &seen, depth, scale, scores, out);
                    p++;
                }
            }
        }
        barrier(t);
        round_rows(t, space->mixed, width, width, space->input, rows);
        apply(t, &layer->out, space, rows, space->hidden, width, space->hidden, ACT_NONE);
        finish_rows(t, model, space, &layer->attention_norm, rows);
        feed_forward(t, model, space, &layer->inner, &layer->outer, &layer->ffn_norm, rows);
    }
    prepare_rows(t, model, space, &model->encoder_norm, rows);
    for (int l = 0; l < model->decoder_layers; l++) {
        apply(t, &model->decoder[l].kv, space, rows, space->wide, space->wide_stride, NULL, ACT_NONE);
        for (int s = t.index; s < e->sequences; s += t.count) {
            int start = e->starts[s], length = e->starts[s + 1] - start;
            half *blocks = e->cross[s] + (size_t)l * ((length + POSITIONS - 1) / POSITIONS) * page;
            for (int p = 0; p < length; p++) {
                const float *row = space->wide + (size_t)(start + p) * space->wide_stride;
                scatter(blocks, heads, depth, p, row, row + width);
            }
        }
        barrier(t);
    }
}

int gs_encode(const gs_model *model, int32_t threads, const int32_t *ids, const float *positions, int32_t sequences,
              const int32_t *starts, half *const *cross) {
    int rows = starts[sequences], longest = 0, depth = model->width / model->heads;
    size_t pages = 0, page = model->heads * block_numbers(depth);
    for (int s = 0; s < sequences; s++) {
        int length = starts[s + 1] - starts[s];
        if (length > longest) longest = length;
        pages += (length + POSITIONS - 1) / POSITIONS;
    }
    encoding e = {model, ids, positions, sequences, starts, cross, {0}, NULL, NULL};
    char *rest;
    size_t more = pages * page * sizeof(half) + sequences * sizeof(size_t) + 256;
    if (!get_workspace(model, rows, longest, threads, more, &e.space, &rest)) return -1;
    e.block_starts = take(&rest, sequences * sizeof(size_t));
    e.blocks = take(&rest, pages * page * sizeof(half));
    size_t at = 0;
    for (int s = 0; s < sequences; s++) {
        e.block_starts[s] = at;
        at += (size_t)(starts[s + 1] - starts[s] + POSITIONS - 1) / POSITIONS * page;
    }
    int64_t weights = 0;
    for (int l = 0; l < model->encoder_layers; l++)
        weights += 4ll * model->width * model->width + 2ll * model->width * model->ffn_width;
    run(encode_part, &e, worthwhile(threads, rows, weights));
    return 0;
}

/* ------------------------------------------------------------------------------------------------------ decoder */

typedef struct {
    const gs_model *model;
    int32_t rows;
    const int32_t *ids, *positions; /* [rows] */
    const float *table;             /* of positional encodings, or NULL */
    half *const *pages;             /* [rows][max_pages], each [decoder layers][H][2 * 16 * D] */
    int32_t max_pages;
    half *const *cross;             /* [rows], see gs_encode */
    const int32_t *cross_lengths;   /* [rows] */
    float *hidden; /* [rows][M], what the logits are computed from */
    float *logits, *maxima, *sums;
    uint8_t *places;
    workspace space;
} decoding;

static void decode_part(team t, void *argument) {
    decoding *s = argument;
    const gs_model *model = s->model;
    const workspace *space = &s->space;
    const int width = model->width, heads = model->heads, depth = width / heads, rows = s->rows;
    const float scale = 1.0f / sqrtf((float)depth);
    float *scores = space->scores + (size_t)t.index * 4 * space->longest;
    int first, last;
    share(t, rows, &first, &last);
    for (int row = first; row < last; row++)
        embed(model->target_embedding, model->embedding_factor, s->table, s->ids[row], s->positions[row], width,
              space->hidden + (size_t)row * width);
    barrier(t);
    share(t, rows * heads, &first, &last);
    for (int l = 0; l < model->decoder_layers; l++) {
        const gs_decoder_layer *layer = &model->decoder[l];
        prepare_rows(t, model, space, model->pre_norm ? &layer->attention_norm : NULL, rows);
        apply(t, &layer->qkv, space, rows, space->wide, space->wide_stride, NULL, ACT_NONE);
        /* A head of all rows before the next head: beams of one sequence, which stand side by side, share their pages. */
        for (int item = first; item < last; item++) {
            int head = item / rows, row = item % rows, position = s->positions[row];
            size_t offset = ((size_t)l * heads + head) * block_numbers(depth);
            memory past = {s->pages + (size_t)row * s->max_pages, offset, 0, position + 1};
            const float *query = space->wide + row * space->wide_stride + head * depth;
            put(past.pages[position / POSITIONS] + offset, position % POSITIONS, query + width, query + 2 * width, depth);
            attend(query, &past, depth, scale, scores, space->mixed + (size_t)row * width + head * depth);
        }
        barrier(t);
        round_rows(t, space->mixed, width, width, space->input, rows);
        apply(t, &layer->out, space, rows, space->hidden, width, space->hidden, ACT_NONE);
        finish_rows(t, model, space, &layer->attention_norm, rows);

        prepare_rows(t, model, space, model->pre_norm ? &layer->cross_norm : NULL, rows);
        apply(t, &layer->query, space, rows, space->wide, space->wide_stride, NULL, ACT_NONE);
        for (int item = first; item < last;) {
            int head = item / rows, row = item % rows, length = s->cross_lengths[row];
            size_t page = heads * block_numbers(depth);
            half *blocks = s->cross[row] + (size_t)l * ((length + POSITIONS - 1) / POSITIONS) * page;
            memory source = {&blocks, head * block_numbers(depth), page, length};
            const float *query = space->wide + row * space->wide_stride + head * depth;
            float *out = space->mixed + (size_t)row * width + head * depth;
            int last_row = row + 3; /* beams read one source: four queries look at it together */
            if (item + 4 <= last && last_row < rows && s->cross[row + 1] == s->cross[row] &&
                s->cross[row + 2] == s->cross[row] && s->cross[last_row] == s->cross[row]) {
                attend_four(query, space->wide_stride, &source, depth, scale, scores, space->longest, out, width);
                item += 4;
            } else {
                attend(query, &source, depth, scale, scores, out);
                item++;
            }
        }
        barrier(t);
        round_rows(t, space->mixed, width, width, space->input, rows);
        apply(t, &layer->cross_out, space, rows, space->hidden, width, space->hidden, ACT_NONE);
        finish_rows(t, model, space, &layer->cross_norm, rows);
        feed_forward(t, model, space, &layer->inner, &layer->outer, &layer->ffn_norm, rows);
    }
    prepare_rows(t, model, space, &model->decoder_norm, rows);
    share(t, rows, &first, &last);
    if (last > first)
        memcpy(s->hidden + (size_t)first * width,
               (model->decoder_norm.weight ? space->mixed : space->hidden) + (size_t)first * width,
               (size_t)(last - first) * width * sizeof(float));
    multiply(t, &model->output, space->input, rows,
             (target){.to = s->logits, .stride = model->vocabulary, .maxima = s->maxima, .sums = s->sums,
                      .places = s->places, .blocks = (model->vocabulary + COLUMNS - 1) / COLUMNS});
}

int64_t gs_step_weights(const gs_model *model) {
    int64_t layer = 6ll * model->width * model->width + 2ll * model->width * model->ffn_width;
    return model->decoder_layers * layer + (int64_t)model->vocabulary * model->width;
}

int gs_decode(const gs_model *model, int32_t threads, int32_t rows, const int32_t *ids, const int32_t *positions,
              const float *table, half *const *pages, int32_t max_pages, half *const *cross,
              const int32_t *cross_lengths, float *hidden, float *logits, float *maxima, float *sums, uint8_t *places) {
    int longest = 0;
    for (int row = 0; row < rows; row++) {
        if (positions[row] + 1 > longest) longest = positions[row] + 1;
        if (cross_lengths[row] > longest) longest = cross_lengths[row];
    }
    decoding s = {model, rows, ids, positions, table, pages, max_pages, cross, cross_lengths, hidden, logits, maxima, sums, places, {0}};
    char *rest;
    if (!get_workspace(model, rows, longest, threads, 0, &s.space, &rest)) return -1;
    run(decode_part, &s, worthwhile(threads, rows, gs_step_weights(model)));
    return 0;
}

/* ------------------------------------------------------------------------------------------------- best tokens */

float gs_log_sum(int32_t blocks, const float *maxima, const float *sums, float top) {
    const floats center = splat(top);
    floats total = zeros();
    for (int b = 0; b < blocks; b += 16) {
        const int left = blocks - b;
        const floats e = exponential(subtract(load_some(left, maxima + b), center));
        total = times_plus(keep(lanes(left), e), load_some(left, sums + b), total);
    }
    return top + logf(sum_of(total));
}

/* The k best tokens of each row that are not banned, best first, of equals the lowest first; by the blocks' maxima, so
 * that few logits are read. log_sums: the logarithm of each row's sum of e^logit, or NULL. A row whose logits are not
 * finite has NaN as its first value. What is missing (fewer than k permitted tokens) is -inf. */
void gs_best(int32_t rows, int32_t vocabulary, const float *logits, const float *maxima, const float *sums, int32_t k,
             const int32_t *banned, const int32_t *banned_starts, float *values, int64_t *ids, float *log_sums) {
    const int blocks = (vocabulary + COLUMNS - 1) / COLUMNS;
    for (int row = 0; row < rows; row++) {
        const float *peaks = maxima + (size_t)row * blocks, *from = logits + (size_t)row * vocabulary;
        const int32_t *ban = banned + banned_starts[row];
        const int bans = banned_starts[row + 1] - banned_starts[row];
        float *best = values + (size_t)row * k;
        int64_t *best_ids = ids + (size_t)row * k;
        for (int i = 0; i < k; i++) best[i] = -INFINITY, best_ids[i] = 0;
        floats largest = splat(-INFINITY);
        uint32_t odd = 0;
        for (int some = 0; some < blocks; some += 16) {
            const floats sixteen = load_or(splat(-INFINITY), blocks - some, peaks + some);
            odd |= bits(is_nan(sixteen));
            largest = larger(largest, sixteen);
            uint32_t better = bits(greater(sixteen, splat(best[k - 1])));
            for (; better; better &= better - 1) {
                const int b = some + __builtin_ctz(better);
                if (!(peaks[b] > best[k - 1])) continue;
                const int end = (b + 1) * COLUMNS < vocabulary ? (b + 1) * COLUMNS : vocabulary;
                for (int id = b * COLUMNS; id < end; id++) {
                    float value = from[id];
                    if (!(value > best[k - 1])) continue;
                    int skip = 0;
                    for (int i = 0; i < bans; i++) skip |= ban[i] == id;
                    if (skip) continue;
                    int place = k - 1; /* ids rise, so an equal one found before stays before */
                    while (place > 0 && value > best[place - 1]) {
                        best[place] = best[place - 1];
                        best_ids[place] = best_ids[place - 1];
                        place--;
                    }
                    best[place] = value;
                    best_ids[place] = id;
                }
            }
        }
        const float top = odd ? NAN : maximum_of(largest);
        if (top != top || top == -INFINITY) best[0] = NAN;
        if (log_sums) log_sums[row] = gs_log_sum(blocks, peaks, sums + (size_t)row * blocks, top);
    }
}

/* The best token of each row, of equals the lowest; a value is NaN where the row is not finite. Needs no logits. */
void gs_top(int32_t rows, int32_t vocabulary, const float *maxima, const uint8_t *places, float *values, int64_t *ids) {
    const int blocks = (vocabulary + COLUMNS - 1) / COLUMNS;
    for (int row = 0; row < rows; row++) {
        const float *peaks = maxima + (size_t)row * blocks;
        floats largest = splat(-INFINITY);
        uint32_t odd = 0;
        int best = 0;
        for (int b = 0; b < blocks; b += 16) {
            const floats sixteen = load_or(splat(-INFINITY), blocks - b, peaks + b);
            odd |= bits(is_nan(sixteen));
            largest = larger(largest, sixteen);
        }
        const float top = maximum_of(largest);
        while (!odd && best < blocks - 1 && peaks[best] != top) best++;
        values[row] = odd || top == -INFINITY ? NAN : top;
        ids[row] = (int64_t)best * COLUMNS + places[(size_t)row * blocks + best];
    }
}

/* ----------------------------------------------------------------------------------------------- single products */

typedef struct {
    const gs_linear *linear;
    const float *input;
    int32_t rows;
    float *output;
    rounded rounded_input;
} product;

static void product_part(team t, void *argument) {
    product *p = argument;
    round_rows(t, p->input, p->linear->inputs, p->linear->inputs, p->rounded_input, p->rows);
    multiply(t, p->linear, p->rounded_input, p->rows, (target){.to = p->output, .stride = p->linear->outputs});
}

/* output[rows][N] = input[rows][K] W^T + b */
int gs_multiply(const gs_linear *linear, int32_t threads, int32_t rows, const float *input, float *output) {
    char *at = reserve(rounded_size(rows, linear->inputs));
    if (!at) return -1;
    product p = {linear, input, rows, output, rounded_at(&at, rows, linear->inputs)};
    run(product_part, &p, worthwhile(threads, rows, (int64_t)linear->outputs * linear->inputs));
    return 0;
}

int gs_logits(const gs_model *model, const float *hidden, float *logits) {
    return gs_multiply(&model->output, 1, 1, hidden, logits);
}

/* Whether products of several rows are to be computed with AMX, for comparisons; returns whether they are from now on. */
int gs_use_matrices(int wanted) {
#ifdef MATRICES
    return has_matrices = wanted && find_matrices();
#else
    return wanted && 0;
#endif
}

static void prepare_matrices(void) { gs_use_matrices(1); }

int gs_weight_shift(void) { return WEIGHT_SHIFT; }

int gs_abi(void) { return GS_ABI; }
