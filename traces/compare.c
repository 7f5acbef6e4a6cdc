#include "traces/compare.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "traces/align.h"

static const trace_op *op_at(const trace_slice *s, uint32_t i)
{
  return i < s->count ? &s->trace->ops.items[s->first + i] : NULL;
}

/* Steps are counted from the trace's first. */
static bool same_work(const trace_slice *of_a, const trace_op *a, const trace_slice *of_b,
                      const trace_op *b)
{
  return a->step - op_at(of_a, 0)->step == b->step - op_at(of_b, 0)->step && a->kind == b->kind &&
         a->name == b->name && a->call == b->call && a->stream == b->stream &&
         a->layer == b->layer && a->module == b->module && a->phase == b->phase &&
         a->microbatch == b->microbatch && a->chunk == b->chunk &&
         a->output_count == b->output_count;
}

static trace_pair first_other_op(const trace_slice *a, const trace_slice *b)
{
  uint32_t i = 0;
  while (i < a->count && i < b->count && same_work(a, op_at(a, i), b, op_at(b, i)))
    i++;
  return (trace_pair){ op_at(a, i), op_at(b, i) };
}

/* ---- bytes ---- */

static int64_t highest_bytes(const trace_slice *s)
{
  int64_t highest = 0;
  for (uint32_t i = 0; i < s->count; i++)
    highest = max_i64(highest, op_at(s, i)->requested_bytes);
  return highest;
}

static void compare_bytes(rank_comparison *r, const trace_slice *a, const trace_slice *b)
{
  assert(a->count == b->count);
  for (uint32_t i = 0; i < a->count; i++) {
    trace_pair p = { op_at(a, i), op_at(b, i) };
    if (p.a->requested_bytes == p.b->requested_bytes) continue;
    if (r->bytes_differ++ == 0) r->bytes = p;
  }
}

/* ---- outputs ---- */

static bool same_output(const trace_output *a, const trace_output *b)
{
  return memcmp(a->fingerprint, b->fingerprint, sizeof a->fingerprint) == 0;
}

static void compare_outputs(trace_comparison *c, trace_pair p)
{
  assert(p.a->output_count == p.b->output_count);
  for (uint32_t i = 0; i < p.a->output_count; i++) {
    const trace_output *a = &c->a->outputs.items[p.a->first_output + i];
    const trace_output *b = &c->b->outputs.items[p.b->first_output + i];
    if (!a->known || !b->known) continue;
    c->outputs++;
    if (same_output(a, b)) continue;
    c->outputs_differ++;
    if (c->output.a == NULL || p.a->place < c->output.a->place) {
      c->output = p;
      c->output_index = i;
    }
  }
}

/* `partners` NULL: the ops are the same. */
static void compare_pairs(trace_comparison *c, const trace_slice *a, const trace_slice *b,
                          const uint32_t *partners)
{
  uint32_t pairs = 0;
  for (uint32_t i = 0; i < a->count; i++) {
    uint32_t partner = partners != NULL ? partners[i] : i;
    if (partner == ALIGN_NONE) continue;
    compare_outputs(c, (trace_pair){ op_at(a, i), op_at(b, partner) });
    pairs++;
  }
  assert(pairs <= a->count && pairs <= b->count);
  c->pairs += pairs;
  c->only_a += a->count - pairs;
  c->only_b += b->count - pairs;
}

static void compare_rank(trace_comparison *c, rank_comparison *r, const trace_slice *a,
                         const trace_slice *b)
{
  r->ops_a = a->count;
  r->ops_b = b->count;
  r->highest_a = highest_bytes(a);
  r->highest_b = highest_bytes(b);
  r->order = first_other_op(a, b);
  if (r->order.a == NULL && r->order.b == NULL) {
    compare_bytes(r, a, b);
    compare_pairs(c, a, b, NULL);
  } else {
    arena scratch = { 0 };
    compare_pairs(c, a, b, align_ops(a, b, &scratch));
    arena_release(&scratch);
    c->same_order = false;
  }
  c->same_bytes = c->same_bytes && r->bytes_differ == 0;
}

void trace_compare(trace_comparison *c, const trace *a, const trace *b, arena *memory)
{
  uint32_t ranks_a = a->header.ranks, ranks_b = b->header.ranks;
  *c = (trace_comparison){ .a = a,
                           .b = b,
                           .rank_count = ranks_a > ranks_b ? ranks_a : ranks_b,
                           .same_order = true,
                           .same_bytes = true };
  assert(c->rank_count > 0);
  c->ranks = ARENA_ARRAY(memory, rank_comparison, c->rank_count);
  for (uint32_t r = 0; r < c->rank_count; r++) {
    trace_slice of_a = trace_slice_of(a, r, c->rank_count);
    trace_slice of_b = trace_slice_of(b, r, c->rank_count);
    compare_rank(c, &c->ranks[r], &of_a, &of_b);
  }
  c->same_bytes = c->same_bytes && c->same_order;
}
