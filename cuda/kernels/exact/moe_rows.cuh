/*
 * The owners of rows (ref/kernels/moe_rows.h), computed in scratch on the device.
 *
 * Rows are sorted without an order of threads: an expert's choices are counted in runs of
 * consecutive tokens, the sum of all counts before a run is the index of its first row, and one
 * thread processes a run in order.
 */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_MOE_ROWS_CUH
#define OFFSIM_CUDA_KERNELS_EXACT_MOE_ROWS_CUH

#include "cuda/kernels/block.cuh"
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

enum { RUN_TOKENS = 64, EXPERT_BIT = 32 };

/* By row; -1: no token's. */
typedef struct row_owners {
  int64_t count;
  int32_t *token, *expert;
} row_owners;

static inline row_owners take_owners(scratch_arena *a, int64_t rows)
{
  row_owners r = { rows, take<int32_t>(a, rows), take<int32_t>(a, rows) };
  return r;
}

static inline void clear_owners(cuda_call *c, row_owners r)
{
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) { r.token[i] = r.expert[i] = -1; });
}

/* ---- from a choice -------------------------------------------------------------------------- */

/* A byte each: [tokens, experts], or [experts, tokens] if `by_expert`. */
typedef struct expert_choice {
  tensor map;
  int64_t tokens, experts;
  bool by_expert, slotted;
} expert_choice;

DEVICE static inline bool chooses(const expert_choice &h, int64_t token, int64_t expert)
{
  int64_t cell = h.by_expert ? expert * h.tokens + token : token * h.experts + expert;
  return load_int(h.map, cell) != 0;
}

/* A range of rows. */
typedef struct row_span {
  int64_t first, count;
} row_span;

/* If the rows do not divide evenly, the first experts have one more. */
DEVICE static inline row_span equal_span(int64_t rows, int64_t experts, int64_t e)
{
  int64_t each = rows / experts, more = rows % experts;
  row_span s = { e * each + least(e, more), each + (e < more) };
  return s;
}

/* What sorting needs besides its result. */
typedef struct sort_room {
  int64_t *before; /* [experts x runs + 1]: choices before the run */
  int64_t *pieces;
} sort_room;

static inline int64_t runs_of(int64_t tokens)
{
  return (tokens + RUN_TOKENS - 1) / RUN_TOKENS;
}

static inline sort_room take_sort_room(scratch_arena *a, int64_t tokens, int64_t experts)
{
  sort_room s = { take<int64_t>(a, experts * runs_of(tokens) + 1),
                  take<int64_t>(a, BLOCK_THREADS) };
  return s;
}

static inline void count_runs(cuda_call *c, expert_choice h, sort_room s)
{
  int64_t runs = runs_of(h.tokens);
  for_each(
      c, h.experts * runs, KERNEL_LAMBDA(int64_t i) {
        int64_t e = i % h.experts, run = i / h.experts, chosen = 0;
        for (int64_t t = run * RUN_TOKENS; t < least((run + 1) * RUN_TOKENS, h.tokens); t++)
          chosen += chooses(h, t, e);
        s.before[e * runs + run] = chosen;
      });
  prefix_sums(c, s.before, h.experts * runs, s.pieces);
}

static inline void sort_rows(cuda_call *c, expert_choice h, sort_room s, row_owners r)
{
  int64_t runs = runs_of(h.tokens);
  assert(elements_of(h.map) == h.tokens * h.experts);
  clear_owners(c, r);
  count_runs(c, h, s);
  for_each(
      c, h.experts * runs, KERNEL_LAMBDA(int64_t i) {
        int64_t e = i % h.experts, run = i / h.experts;
        row_span slot = equal_span(r.count, h.experts, e);
        int64_t next = s.before[e * runs + run], end = r.count;
        if (h.slotted) {
          next += slot.first - s.before[e * runs];
          end = slot.first + slot.count;
        }
        for (int64_t t = run * RUN_TOKENS; t < least((run + 1) * RUN_TOKENS, h.tokens); t++) {
          if (next >= end || !chooses(h, t, e)) continue;
          r.token[next] = (int32_t)t;
          r.expert[next++] = (int32_t)e;
        }
      });
}

/* Counts the choices that sort_rows dropped, if there is a counter. */
static inline void count_left_out(cuda_call *c, expert_choice h, sort_room s, int64_t rows)
{
  int64_t runs = runs_of(h.tokens), *left_out = c->left_out;
  if (!c->of->is_forward || left_out == NULL) return;
  run_once(
      c, KERNEL_LAMBDA(int64_t) {
        int64_t choices = s.before[h.experts * runs], placed = h.slotted ? 0 : least(choices, rows);
        for (int64_t e = 0; e < h.experts && h.slotted; e++) {
          int64_t wanted = s.before[(e + 1) * runs] - s.before[e * runs];
          placed += least(wanted, equal_span(rows, h.experts, e).count);
        }
        if (choices > placed) (void)count_up(left_out, choices - placed);
      });
}

/* ---- the index ------------------------------------------------------------------------------ */

static inline void read_owners(cuda_call *c, tensor index, row_owners r)
{
  clear_owners(c, r);
  if (index.type == DTYPE_INT32) {
    assert(index.rank == 2 && index.shape[1] % 2 == 1);
    int64_t width = index.shape[1], experts = width / 2;
    for_each(
        c, index.shape[0] * experts, KERNEL_LAMBDA(int64_t i) {
          int64_t t = i / experts, e = i % experts, row = load_int(index, t * width + e);
          if (row < 0 || row >= r.count) return;
          r.token[row] = (int32_t)t;
          r.expert[row] = (int32_t)e;
        });
    return;
  }
  int64_t known = least(r.count, elements_of(index));
  for_each(
      c, known, KERNEL_LAMBDA(int64_t i) {
        int64_t cell = load_int(index, i);
        if (cell < 0) return;
        r.token[i] = (int32_t)(cell & INT64_C(0xffffffff));
        r.expert[i] = (int32_t)(cell >> EXPERT_BIT);
      });
}

static inline void write_owners(cuda_call *c, row_owners r, int64_t tokens, int64_t experts,
                                tensor index)
{
  if (index.type != DTYPE_INT32) {
    for_each(
        c, elements_of(index), KERNEL_LAMBDA(int64_t i) {
          bool mine = i < r.count && r.token[i] >= 0;
          store_int(index, i, mine ? (int64_t)r.expert[i] << EXPERT_BIT | r.token[i] : -1);
        });
    return;
  }
  int64_t width = 2 * experts + 1;
  assert(elements_of(index) == tokens * width);
  for_each(
      c, tokens * width,
      KERNEL_LAMBDA(int64_t i) { store_int(index, i, i % width < experts ? -1 : 0); });
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) {
        if (r.token[i] >= 0) store_int(index, r.token[i] * width + r.expert[i], i);
      });
}

/* ---- the rows of an expert ------------------------------------------------------------------ */

/* [experts]; see moe_span_of. */
typedef struct expert_spans {
  row_span *of;
  row_owners owners;
} expert_spans;

static inline expert_spans take_spans(scratch_arena *a, int64_t rows, int64_t experts)
{
  expert_spans s = { take<row_span>(a, experts), take_owners(a, rows) };
  return s;
}

static inline void add_up_spans(cuda_call *c, row_span *spans, int64_t experts)
{
  run_once(
      c, KERNEL_LAMBDA(int64_t) {
        for (int64_t e = 1; e < experts; e++)
          spans[e].first = spans[e - 1].first + spans[e - 1].count;
      });
}

/* Rows that exceed the buffer are dropped. */
static inline void find_counted_spans(cuda_call *c, tensor counts, int64_t rows, row_span *spans,
                                      int64_t experts)
{
  assert(experts <= elements_of(counts));
  run_once(
      c, KERNEL_LAMBDA(int64_t) {
        int64_t before = 0;
        for (int64_t e = 0; e < experts; e++) {
          int64_t count = load_int(counts, e), first = least(before, rows);
          spans[e].first = first;
          spans[e].count = least(count, rows - first);
          before += count;
        }
      });
}

/* `index` NULL: equal parts. */
static inline void find_spans(cuda_call *c, const tensor *index, expert_spans s, int64_t experts)
{
  row_span *spans = s.of;
  row_owners r = s.owners;
  if (index != NULL && index->type == DTYPE_INT32 && index->rank == 1) {
    find_counted_spans(c, *index, r.count, spans, experts);
    return;
  }
  if (index == NULL) {
    for_each(
        c, experts, KERNEL_LAMBDA(int64_t e) { spans[e] = equal_span(r.count, experts, e); });
    return;
  }
  for_each(
      c, experts, KERNEL_LAMBDA(int64_t e) { spans[e].first = spans[e].count = 0; });
  read_owners(c, *index, r);
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) {
        if (r.expert[i] >= 0 && r.expert[i] < experts) (void)count_up(&spans[r.expert[i]].count, 1);
      });
  add_up_spans(c, spans, experts);
}

#endif
