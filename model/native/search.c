/* Greedy and beam search for a running batch: many steps in one call, until a sequence ends or somebody wants in.
 *
 * The same rules as model/search.py, which stays the definition and says where they come from; a test holds the two
 * together. What is won is all that Python would do between two steps: with a small model that is more than a step.
 *
 * A row's pages (16 positions each) belong to its sequence. Beams that share their past share its pages, and copy one
 * only when they write to it, as model/pages.py has it for searches in Python.
 */
#define _POSIX_C_SOURCE 200112L
#include "kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PAGES_AT_ONCE 32
#define MAX_BEAMS 16
#define MIN_LOG_PROB -1e9f /* as in search.py */

/* A model whose weights fit into the processor's cache is run on a few rows at a time, by every thread on its own: they
 * do not wait for one another within a step, and what a few rows need lies near. Measured: docs/experiments.md. */
#define SMALL_WEIGHTS (8 << 20)
#define CHUNK_ROWS 16
#define MIN_CHUNK_ROWS 6
#define MAX_CHUNK_THREADS 64

/* ---------------------------------------------------------------------------------------------------------- pages */

typedef struct {
    size_t page_bytes;
    int32_t total, num_free, num_slabs;
    char **addresses, **slabs; /* of each page; of each 32 of them */
    int32_t *owners, *free_pages;
    pthread_mutex_t lock; /* of the book, while several threads choose */
    void *scratch; /* for a step: it lasts, so that its memory need not be fetched again and again */
    size_t scratch_size;
} gs_pool;

gs_pool *gs_pool_new(int64_t page_bytes) {
    gs_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->page_bytes = (size_t)page_bytes;
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

void gs_pool_free(gs_pool *pool) {
    for (int32_t i = 0; i < pool->num_slabs; i++) free(pool->slabs[i]);
    free(pool->slabs);
    free(pool->addresses);
    free(pool->owners);
    free(pool->free_pages);
    free(pool->scratch);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* Pages that rows hold, what they share counted once. */
int32_t gs_pool_used(const gs_pool *pool) { return pool->total - pool->num_free; }

/* Room for `total` pages; 0 if there is no memory. */
static int more_room(gs_pool *pool, int32_t total) {
    char **addresses = realloc(pool->addresses, total * sizeof *addresses);
    if (addresses) pool->addresses = addresses;
    int32_t *owners = realloc(pool->owners, total * sizeof *owners);
    if (owners) pool->owners = owners;
    int32_t *free_pages = realloc(pool->free_pages, total * sizeof *free_pages);
    if (free_pages) pool->free_pages = free_pages;
    char **slabs = realloc(pool->slabs, (pool->num_slabs + 1) * sizeof *slabs);
    if (slabs) pool->slabs = slabs;
    return addresses && owners && free_pages && slabs;
}

static int more_pages(gs_pool *pool) {
    int32_t total = pool->total + PAGES_AT_ONCE;
    if (!more_room(pool, total)) return 0;
    void *slab;
    if (posix_memalign(&slab, 64, PAGES_AT_ONCE * pool->page_bytes) != 0) return 0;
    /* A row reads whole blocks, and what lies behind its last position must be a finite number. */
    memset(slab, 0, PAGES_AT_ONCE * pool->page_bytes);
    pool->slabs[pool->num_slabs++] = slab;
    for (int32_t i = 0; i < PAGES_AT_ONCE; i++) {
        pool->addresses[pool->total + i] = (char *)slab + i * pool->page_bytes;
        pool->owners[pool->total + i] = 0;
        pool->free_pages[pool->num_free++] = total - 1 - i; /* the first ones are taken first */
    }
    pool->total = total;
    return 1;
}

static int32_t take_page(gs_pool *pool) {
    if (pool->num_free == 0 && !more_pages(pool)) return -1;
    int32_t page = pool->free_pages[--pool->num_free];
    pool->owners[page] = 1;
    return page;
}

static void release_page(gs_pool *pool, int32_t page) {
    if (--pool->owners[page] == 0) pool->free_pages[pool->num_free++] = page;
}

/* ------------------------------------------------------------------------------------------------------ sequences */

enum status { RUNNING = 0, FINISHED = 1, NOT_FINITE = 2 };

typedef struct {
    /* What is wanted. library.py repeats this, and what follows, as far as it says so. */
    int32_t beam_size; /* 1 may be a beam, too */
    int32_t is_greedy, keeps_log_probs, early_stopping;
    int32_t max_tokens, min_tokens, ngram, source_length, prefix_length, num_forbidden, eos, start;
    double length_penalty, beam_threshold; /* INFINITY: none */
    half *source; /* keys and values of the source, see gs_encode */
    const int32_t *prefix, *forbidden;
    /* What comes of it. */
    int32_t status, num_done;
    int32_t rows, length;  /* rows that go on, and tokens that each has written */
    const int32_t *tokens; /* [rows][max_tokens] */
    struct done {
        double score;
        int32_t length, is_stop;
        int32_t *tokens;  /* [length] */
        float *log_probs; /* [length], if kept */
    } done[MAX_BEAMS + 1]; /* best first; the last place is for the one that is too many */
    /* library.py repeats no more. */
    int32_t max_pages, now; /* pages of a row at most; which of the two is what rows have */
    double totals[2][MAX_BEAMS];
    int32_t *written[2]; /* [beam][max_tokens] */
    float *log_probs[2];
    int32_t *pages[2]; /* [beam][max_pages] */
} gs_sequence;

static void *part(char **from, size_t size) {
    void *got = *from;
    *from += (size + 15) & ~(size_t)15;
    return got;
}

/* A sequence before its first step, with the first part of a `gs_sequence`; what that points to must outlive it. */
gs_sequence *gs_sequence_new(const void *first_part) {
    const gs_sequence *wanted = first_part; /* read no further than max_pages */
    size_t beams = (size_t)wanted->beam_size, tokens = (size_t)wanted->max_tokens, pages = (tokens + POSITIONS - 1) / POSITIONS;
    size_t row = beams * ((tokens * 4 + 15) & ~(size_t)15);
    size_t size = sizeof(gs_sequence) + 64 + (2 + 2) * row + 2 * (beams * pages * 4 + 16) +
                  2 * (beams + 1) * (tokens * 4 + 16);
    char *at = calloc(1, size);
    if (!at) return NULL;
    gs_sequence *s = part(&at, sizeof *s);
    memcpy(s, first_part, offsetof(gs_sequence, max_pages));
    for (int i = 0; i < 2; i++) {
        s->written[i] = part(&at, beams * tokens * 4);
        s->log_probs[i] = part(&at, beams * tokens * 4);
        s->pages[i] = part(&at, beams * pages * 4);
    }
    for (size_t i = 0; i <= beams; i++) {
        s->done[i].tokens = part(&at, tokens * 4);
        s->done[i].log_probs = part(&at, tokens * 4);
    }
    s->max_pages = (int32_t)pages;
    s->rows = 1;
    s->tokens = s->written[0];
    return s;
}

static int32_t pages_begun(const gs_sequence *s) { return (s->length + POSITIONS - 1) / POSITIONS; }

static void let_go(gs_pool *pool, gs_sequence *s) {
    for (int32_t row = 0; row < s->rows; row++)
        for (int32_t i = 0; i < pages_begun(s); i++) release_page(pool, s->pages[s->now][row * s->max_pages + i]);
    s->rows = 0;
}

void gs_sequence_free(gs_pool *pool, gs_sequence *s) {
    let_go(pool, s);
    free(s);
}

/* Gives every row a place of its own to write its next position to. */
static int prepare(gs_pool *pool, gs_sequence *s) {
    int32_t at = s->length / POSITIONS;
    for (int32_t row = 0; row < s->rows; row++) {
        int32_t *page = &s->pages[s->now][row * s->max_pages + at];
        if (s->length % POSITIONS != 0 && pool->owners[*page] == 1) continue;
        int32_t own = take_page(pool);
        if (own < 0) return 0; /* The caller gives up, and with it the whole pool. */
        if (s->length % POSITIONS != 0) {
            memcpy(pool->addresses[own], pool->addresses[*page], pool->page_bytes);
            release_page(pool, *page);
        }
        *page = own;
    }
    return 1;
}

/* --------------------------------------------------------------------------------------------------------- choice */

typedef struct {
    double total;
    int32_t row, token;
    float value;
} candidate;

static int is_better(const candidate *a, const candidate *b) {
    if (a->total != b->total) return a->total > b->total;
    if (a->row != b->row) return a->row < b->row;
    return a->token < b->token;
}

/* What a row may not write next: how many tokens of `out`. */
static int32_t ban(const gs_sequence *s, const int32_t *written, int32_t *out) {
    int32_t count = s->num_forbidden;
    memcpy(out, s->forbidden, count * sizeof(int32_t));
    if (s->length < s->min_tokens) out[count++] = s->eos;
    if (s->ngram <= 0 || s->length < s->ngram) return count;
    const int32_t *last = written + s->length - s->ngram + 1;
    for (int32_t i = 0; i + s->ngram <= s->length; i++)
        if (memcmp(written + i, last, (s->ngram - 1) * sizeof(int32_t)) == 0) out[count++] = written[i + s->ngram - 1];
    return count;
}

typedef struct {
    const gs_model *model;
    int32_t vocabulary, blocks;
    /* Of the first row of a sequence. Logits are NULL where all search greedily: those of the few rows that want them are
     * computed again, in `own`; sums are NULL where nobody keeps log-probabilities. */
    const float *hidden, *logits, *maxima, *sums;
    const uint8_t *places;
    float *own;
    int32_t *banned; /* room for the bans of a row */
} numbers;

/* Without logits: a row's best token, and whether it is all that there is to know. */
static int look_at_top(const gs_sequence *s, const numbers *n, int32_t num_bans, float *value, int64_t *id) {
    gs_top(1, n->vocabulary, n->maxima, n->places, value, id);
    if (*value != *value) return -1;
    if (s->length < s->prefix_length) return 0;
    for (int32_t i = 0; i < num_bans; i++)
        if (n->banned[i] == *id) return 0;
    if (s->keeps_log_probs) *value -= gs_log_sum(n->blocks, n->maxima, n->sums, *value);
    return 1;
}

/* The best k continuations of one row, best first. Returns how many there are; -1 if the row is not finite. */
static int look(const gs_sequence *s, int32_t row, const numbers *n, int32_t k, float *values, int64_t *ids) {
    const size_t at = (size_t)row * n->blocks;
    const int32_t *written = s->written[s->now] + (size_t)row * s->max_tokens;
    int is_forced = s->length < s->prefix_length;
    int32_t bans[2] = {0, is_forced ? 0 : ban(s, written, n->banned)};
    const float *logits = n->own;
    if (n->logits) {
        logits = n->logits + (size_t)row * n->vocabulary;
    } else {
        int known = look_at_top(s, n, bans[1], values, ids);
        if (known) return known;
        if (gs_logits(n->model, n->hidden, n->own) != 0) return -1;
    }
    float log_sum = 0;
    gs_best(1, n->vocabulary, logits, n->maxima + at, n->sums ? n->sums + at : NULL, k, n->banned, bans, values, ids,
            s->keeps_log_probs ? &log_sum : NULL);
    if (values[0] != values[0]) return -1;
    if (is_forced || values[0] == -INFINITY) { /* Where all is banned, eos is allowed again. */
        ids[0] = is_forced ? s->prefix[s->length] : s->eos;
        float value = logits[ids[0]] - log_sum;
        values[0] = value > MIN_LOG_PROB ? value : MIN_LOG_PROB;
        return 1;
    }
    int count = 0;
    while (count < k && values[count] > -INFINITY) values[count++] -= log_sum;
    return count;
}

/* A hypothesis has ended: among the best, or forgotten. */
static void end(gs_sequence *s, int32_t row, int32_t token, float value, double total) {
    int32_t length = s->length + 1;
    struct done *last = &s->done[s->num_done], found = *last;
    found.score = total / pow(length, s->length_penalty);
    found.length = length;
    found.is_stop = token == s->eos;
    memcpy(found.tokens, s->written[s->now] + (size_t)row * s->max_tokens, s->length * sizeof(int32_t));
    found.tokens[s->length] = token;
    if (s->keeps_log_probs) {
        memcpy(found.log_probs, s->log_probs[s->now] + (size_t)row * s->max_tokens, s->length * sizeof(float));
        found.log_probs[s->length] = value;
    }
    int32_t place = s->num_done;
    for (; place > 0 && found.score > s->done[place - 1].score; place--) s->done[place] = s->done[place - 1];
    s->done[place] = found;
    if (s->num_done < s->beam_size) s->num_done++;
}

/* The rows that go on, one token longer. */
static void go_on(gs_pool *pool, gs_sequence *s, const candidate *chosen, int32_t count) {
    const int32_t tokens = s->max_tokens, pages = s->max_pages, begun = s->length / POSITIONS + 1;
    int from = s->now, is_same = count == s->rows;
    for (int32_t i = 0; i < count; i++) is_same &= chosen[i].row == i;
    if (!is_same) {
        int to = 1 - from;
        pthread_mutex_lock(&pool->lock);
        for (int32_t i = 0; i < count; i++) {
            size_t old = (size_t)chosen[i].row;
            memcpy(s->written[to] + (size_t)i * tokens, s->written[from] + old * tokens, s->length * sizeof(int32_t));
            memcpy(s->log_probs[to] + (size_t)i * tokens, s->log_probs[from] + old * tokens, s->length * sizeof(float));
            memcpy(s->pages[to] + (size_t)i * pages, s->pages[from] + old * pages, begun * sizeof(int32_t));
            for (int32_t p = 0; p < begun; p++) pool->owners[s->pages[to][i * pages + p]]++;
        }
        for (int32_t row = 0; row < s->rows; row++)
            for (int32_t p = 0; p < begun; p++) release_page(pool, s->pages[from][row * pages + p]);
        pthread_mutex_unlock(&pool->lock);
        s->now = to;
        s->tokens = s->written[to];
    }
    for (int32_t i = 0; i < count; i++) {
        s->written[s->now][(size_t)i * tokens + s->length] = chosen[i].token;
        s->log_probs[s->now][(size_t)i * tokens + s->length] = chosen[i].value;
        s->totals[s->now][i] = chosen[i].total;
    }
    s->rows = count;
    s->length++;
}

static void finish(gs_pool *pool, gs_sequence *s, enum status status) {
    s->length++; /* the position that was decoded has its pages, too */
    pthread_mutex_lock(&pool->lock);
    let_go(pool, s);
    pthread_mutex_unlock(&pool->lock);
    s->status = status;
}

static void select_greedy(gs_pool *pool, gs_sequence *s, const numbers *n) {
    float value;
    int64_t id;
    if (look(s, 0, n, 1, &value, &id) < 0) {
        finish(pool, s, NOT_FINITE);
        return;
    }
    if (value < MIN_LOG_PROB) value = MIN_LOG_PROB;
    candidate best = {s->totals[s->now][0] + (s->keeps_log_probs ? value : 0), 0, (int32_t)id, value};
    if (best.token == s->eos || s->length + 1 >= s->max_tokens) {
        end(s, 0, best.token, value, best.total);
        finish(pool, s, FINISHED);
    } else {
        go_on(pool, s, &best, 1);
    }
}

static void select_beams(gs_pool *pool, gs_sequence *s, const numbers *n) {
    const int32_t beams = s->beam_size, most = 2 * beams, length = s->length + 1;
    const int is_last = length >= s->max_tokens;
    candidate best[2 * MAX_BEAMS + 1], running[MAX_BEAMS];
    float values[2 * MAX_BEAMS];
    int64_t ids[2 * MAX_BEAMS];
    int32_t count = 0, num_running = 0;
    for (int32_t row = 0; row < s->rows; row++) {
        int found = look(s, row, n, most, values, ids);
        if (found < 0) {
            finish(pool, s, NOT_FINITE);
            return;
        }
        for (int i = 0; i < found; i++) {
            candidate one = {s->totals[s->now][row] + values[i], row, (int32_t)ids[i], values[i]};
            if (count == most && !is_better(&one, &best[most - 1])) {
                if (one.total < best[most - 1].total) break; /* those that follow are no better */
                continue;
            }
            int32_t place = count < most ? count++ : most - 1;
            for (; place > 0 && is_better(&one, &best[place - 1]); place--) best[place] = best[place - 1];
            best[place] = one;
        }
    }
    for (int32_t rank = 0; rank < count; rank++) {
        if (best[rank].token == s->eos || is_last) {
            if (rank < beams) end(s, best[rank].row, best[rank].token, best[rank].value, best[rank].total);
        } else if (num_running < beams) {
            running[num_running++] = best[rank];
        }
    }
    /* Given up are those that lie too far below the best; not the last one, while none has finished. */
    double least = count ? best[0].total : 0;
    if (s->num_done) {
        double even = s->done[0].score * pow(length, s->length_penalty);
        if (even > least) least = even;
    }
    least -= s->beam_threshold;
    while (num_running > !s->num_done && running[num_running - 1].total < least)
        num_running--;
    int is_decided = num_running == 0;
    if (!is_decided && s->num_done == beams)
        is_decided = s->early_stopping ||
                     running[0].total / pow(length, s->length_penalty) <= s->done[beams - 1].score;
    if (is_decided)
        finish(pool, s, FINISHED);
    else
        go_on(pool, s, running, num_running);
}

/* ---------------------------------------------------------------------------------------------------------- steps */

static void *room(char **at, size_t size) {
    void *got = *at;
    *at += (size + 63) & ~(size_t)63;
    return got;
}

typedef struct {
    const gs_model *model;
    gs_pool *pool;
    gs_sequence *const *sequences;
    const float *table;
    int32_t vocabulary, model_width, threads; /* threads that each chunk is run on */
    int with_logits, with_sums;
    size_t blocks, width, most_rows, most_bans, room_size; /* most of any chunk; bytes of scratch for one */
    const int32_t *starts; /* [chunks + 1] of their sequences */
    int32_t chunks;
    atomic_int next, has_failed;
} stage;

/* One position of the rows of some sequences, and what these choose then. */
static int decode_chunk(stage *stage, int32_t first, int32_t end, char *at) {
    const size_t width = stage->width, most = stage->most_rows, blocks = stage->blocks, vocabulary = (size_t)stage->vocabulary;
    int32_t *ids = room(&at, most * 4), *positions = room(&at, most * 4), *source_lengths = room(&at, most * 4);
    half **sources = room(&at, most * 8), **pages = room(&at, most * width * 8);
    float *hidden = room(&at, most * (size_t)stage->model_width * 4);
    float *logits = room(&at, (stage->with_logits ? most : 1) * vocabulary * 4);
    uint8_t *places = room(&at, most * blocks);
    float *maxima = room(&at, most * blocks * 4), *sums = room(&at, most * blocks * 4);
    int32_t *banned = room(&at, stage->most_bans * 4);
    size_t row = 0;
    for (int32_t i = first; i < end; i++) {
        const gs_sequence *s = stage->sequences[i];
        for (int32_t own = 0; own < s->rows; own++, row++) {
            ids[row] = s->length ? s->written[s->now][(size_t)own * s->max_tokens + s->length - 1] : s->start;
            positions[row] = s->length;
            sources[row] = s->source;
            source_lengths[row] = s->source_length;
            const int32_t *held = s->pages[s->now] + (size_t)own * s->max_pages;
            for (size_t p = 0; p < width; p++)
                pages[row * width + p] = p <= (size_t)s->length / POSITIONS ? (half *)stage->pool->addresses[held[p]] : NULL;
        }
    }
    if (gs_decode(stage->model, stage->threads, (int32_t)row, ids, positions, stage->table, pages, (int32_t)width, sources,
                  source_lengths, hidden, stage->with_logits ? logits : NULL, maxima, stage->with_sums ? sums : NULL,
                  places) != 0)
        return 0;
    row = 0;
    for (int32_t i = first; i < end; i++) {
        gs_sequence *s = stage->sequences[i];
        numbers n = {.model = stage->model,
                     .vocabulary = stage->vocabulary,
                     .blocks = (int32_t)blocks,
                     .hidden = hidden + row * (size_t)stage->model_width,
                     .logits = stage->with_logits ? logits + row * vocabulary : NULL,
                     .maxima = maxima + row * blocks,
                     .sums = stage->with_sums ? sums + row * blocks : NULL,
                     .places = places + row * blocks,
                     .own = logits,
                     .banned = banned};
        row += (size_t)s->rows;
        if (s->is_greedy)
            select_greedy(stage->pool, s, &n);
        else
            select_beams(stage->pool, s, &n);
    }
    return 1;
}

static void stage_part(team t, void *argument) {
    stage *stage = argument;
    for (int32_t chunk; (chunk = atomic_fetch_add(&stage->next, 1)) < stage->chunks;)
        if (!decode_chunk(stage, stage->starts[chunk], stage->starts[chunk + 1],
                          (char *)stage->pool->scratch + t.index * stage->room_size))
            atomic_store(&stage->has_failed, 1);
}

/* Parts sequences into chunks of about as many rows. `starts` has room for one more than there are sequences. */
static int32_t cut(gs_sequence *const *sequences, int32_t count, size_t rows, size_t wanted, int32_t *starts) {
    int32_t chunks = 0;
    size_t seen = 0;
    starts[0] = 0;
    for (int32_t i = 0; i < count; i++) {
        seen += (size_t)sequences[i]->rows;
        if (seen * wanted >= rows * ((size_t)chunks + 1)) starts[++chunks] = i + 1;
    }
    return chunks;
}

/* Decodes running sequences for at most `max_steps` steps, or until one ends, `max_seconds` are over or `*is_wanted`
 * is not 0, but one step at least. `table` has positional encodings as far as the steps may go.
 *
 * Returns the steps done, and in `*num_rows` the rows decoded in all of them; -1 when there is no memory. */
int gs_advance(const gs_model *model, int32_t threads, gs_pool *pool, gs_sequence *const *sequences, int32_t count,
               const float *table, int32_t vocabulary, int32_t model_width, int32_t max_steps, double max_seconds,
               const volatile int32_t *is_wanted, int64_t *num_rows) {
    const double until = 1e-9 * (double)gs_nanoseconds() + max_seconds;
    const int is_small = gs_step_weights(model) <= SMALL_WEIGHTS;
    int32_t *starts = malloc(((size_t)count + 1) * sizeof(int32_t));
    if (!starts) return -1;
    if (threads > MAX_CHUNK_THREADS) threads = MAX_CHUNK_THREADS;
    *num_rows = 0;
    for (int32_t step = 1;; step++) {
        stage stage = {model, pool, sequences, table, vocabulary, model_width,
                       .blocks = ((size_t)vocabulary + COLUMNS - 1) / COLUMNS, .width = 1, .starts = starts};
        size_t rows = 0;
        int has_ended = 0, has_memory = 1;
        for (int32_t i = 0; i < count; i++) {
            const gs_sequence *s = sequences[i];
            size_t width = (size_t)s->length / POSITIONS + 1, bans = (size_t)(s->num_forbidden + 1 + s->length);
            rows += (size_t)s->rows;
            stage.with_logits |= !s->is_greedy;
            stage.with_sums |= !s->is_greedy || s->keeps_log_probs;
            if (width > stage.width) stage.width = width;
            if (bans > stage.most_bans) stage.most_bans = bans;
            has_memory &= prepare(pool, sequences[i]);
        }
        size_t wanted = is_small ? (rows + CHUNK_ROWS - 1) / CHUNK_ROWS : 1, workers = 1;
        if (is_small && threads > 1 && rows >= 2 * MIN_CHUNK_ROWS) {
            workers = rows / MIN_CHUNK_ROWS < (size_t)threads ? rows / MIN_CHUNK_ROWS : (size_t)threads;
            wanted = (wanted + workers - 1) / workers * workers; /* as much for each */
        }
        stage.chunks = cut(sequences, count, rows, wanted, starts);
        stage.threads = is_small ? 1 : threads;
        for (int32_t chunk = 0; chunk < stage.chunks; chunk++) {
            size_t own = 0;
            for (int32_t i = starts[chunk]; i < starts[chunk + 1]; i++) own += (size_t)sequences[i]->rows;
            if (own > stage.most_rows) stage.most_rows = own;
        }
        size_t row_size = 3 * 4 + 8 + stage.width * 8 + (size_t)model_width * 4 + stage.blocks * 9;
        size_t logits_size = (stage.with_logits ? stage.most_rows : 1) * (size_t)vocabulary * 4;
        stage.room_size = (stage.most_rows * row_size + logits_size + stage.most_bans * 4 + 12 * 64 + 63) & ~(size_t)63;
        if (has_memory && stage.room_size * workers > pool->scratch_size) {
            free(pool->scratch);
            size_t size = stage.room_size * workers / 4 * 5;
            if (posix_memalign(&pool->scratch, 64, size) != 0) pool->scratch = NULL;
            pool->scratch_size = pool->scratch ? size : 0;
            has_memory = pool->scratch != NULL;
        }
        if (has_memory) gs_run(stage_part, &stage, (int32_t)workers);
        if (!has_memory || stage.has_failed) {
            free(starts);
            return -1;
        }
        *num_rows += (int64_t)rows;
        for (int32_t i = 0; i < count; i++) has_ended |= sequences[i]->status != RUNNING;
        if (has_ended || step >= max_steps || *is_wanted || 1e-9 * (double)gs_nanoseconds() >= until) {
            free(starts);
            return step;
        }
    }
}
