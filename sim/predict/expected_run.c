#include "sim/predict/expected_run.h"

#include <assert.h>
#include <stdio.h>

#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"

bool expected_record(trace *t, const prediction *p, const char *scenario, arena *a, diag *d)
{
  intern_table texts = { .memory = a };
  FILE *stream = tmpfile();
  *t = (trace){ .figures = NULL };
  if (stream == NULL) return diag_refused(d, "a temporary file: the system has none");
  prediction_record_to(p, scenario, stream);
  rewind(stream);
  bool ok = !ferror(stream) && trace_read_stream(t, scenario, stream, &texts, d);
  fclose(stream);
  return ok;
}

/* ---- blocks ---- */

typedef struct block_list {
  const plan *plan;
  const rank_plan *rank;
  bool *lives; /* [buffers] */
} block_list;

static bool is_on_device(const plan_buffer *b)
{
  return class_side((buffer_class)b->purpose) == ON_DEVICE;
}

/* After the ops up to `at_op`. */
static void mark_living(block_list *l, uint32_t at_op)
{
  for (uint32_t i = 0; i < l->rank->residents; i++)
    l->lives[i] = true;
  for (uint32_t i = 0; i <= at_op && i < l->rank->ops.count; i++) {
    const plan_op *o = &l->rank->ops.items[i];
    if (o->kind == OP_ALLOC || o->kind == OP_FREE) l->lives[o->arg] = o->kind == OP_ALLOC;
  }
}

static predicted_block block_of(const block_list *l, uint32_t buffer)
{
  const plan_buffer *b = &l->rank->buffers.items[buffer];
  const plan_tensor *tensor = &l->plan->tensors.items[b->tensor];
  const plan_site *site = &l->plan->sites.items[tensor->site];
  return (predicted_block){ .bytes = round_up(b->bytes, ALLOCATOR_ROUNDING_BYTES),
                            .tensor = tensor->name,
                            .module = site->module,
                            .layer = site->layer,
                            .resident = buffer < l->rank->residents };
}

predicted_run expected_run(const trace *record, const prediction *p, uint32_t rank, arena *a)
{
  const rank_plan *r = &p->steady.plan.ranks[rank];
  block_list l = { .plan = &p->steady.plan, .rank = r };
  arena scratch = { 0 };
  uint32_t count = 0;
  l.lives = ARENA_ARRAY(&scratch, bool, (size_t)r->buffers.count + 1);
  mark_living(&l, p->result.ranks[rank].peak_op);
  predicted_block *blocks = ARENA_ARRAY(a, predicted_block, (size_t)r->buffers.count + 1);
  for (uint32_t i = 0; i < r->buffers.count; i++)
    if (l.lives[i] && is_on_device(&r->buffers.items[i]) && r->buffers.items[i].bytes > 0)
      blocks[count++] = block_of(&l, i);
  arena_release(&scratch);
  return (predicted_run){ .record = record,
                          .rank = rank,
                          .without_peak_bytes = p->baseline.ranks[rank].steady_allocated_peak_bytes,
                          .blocks = blocks,
                          .block_count = count };
}
