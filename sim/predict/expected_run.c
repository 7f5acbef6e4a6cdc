#include "sim/predict/expected_run.h"

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

/* ---- what the host does ---- */

/* False: nothing that orders. */
static bool action_of(const plan_op *o, uint32_t op, uint32_t mark, action *to)
{
  *to = (action){ .kind = ACTION_WORK, .stream = o->stream, .pass = mark };
  switch ((op_kind)o->kind) {
  case OP_D2H:
  case OP_H2D:
    to->kind = ACTION_COPY;
    to->number = op;
    return true;
  case OP_RECORD:
  case OP_WAIT:
    to->kind = o->kind == OP_RECORD ? ACTION_RECORD : ACTION_WAIT;
    to->number = o->arg;
    return true;
  case OP_HOST_WAIT:
  case OP_HOST_READ:
    to->kind = ACTION_EVENT_DONE;
    to->number = o->arg;
    return true;
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_SEND:
  case OP_RECV: return true;
  case OP_MARK:
  case OP_ALLOC:
  case OP_FREE:
  case OP_HOST_ALLOC:
  case OP_HOST_FREE:
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END:
  case OP_KINDS: break;
  }
  return false;
}

static void add_actions(predicted_run *to, const rank_plan *r, arena *a)
{
  action *actions = ARENA_ARRAY(a, action, (size_t)r->ops.count + 1);
  predicted_pass *passes = ARENA_ARRAY(a, predicted_pass, (size_t)r->marks.count + 1);
  uint32_t mark = 0;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind == OP_MARK) mark = o->arg;
    to->action_count += action_of(o, i, mark, &actions[to->action_count]);
  }
  for (uint32_t i = 0; i < r->marks.count; i++) {
    const plan_mark *m = &r->marks.items[i];
    passes[i] = (predicted_pass){ m->kind == MARK_FORWARD    ? REAL_FORWARD
                                  : m->kind == MARK_BACKWARD ? REAL_BACKWARD
                                                             : REAL_FINISH,
                                  m->microbatch, m->chunk };
  }
  to->actions = actions;
  to->mark_passes = passes;
  to->op_count = r->ops.count;
  to->stream_count = STREAMS;
  to->compute_stream = STREAM_COMPUTE;
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
    if (l.lives[i] && buffer_is_allocated(&r->buffers.items[i]) && r->buffers.items[i].bytes > 0)
      blocks[count++] = block_of(&l, i);
  arena_release(&scratch);
  predicted_run found = { .record = record,
                          .rank = rank,
                          .without_peak_bytes = p->baseline.ranks[rank].steady_allocated_peak_bytes,
                          .tokens = tokens_of_step(p->settings),
                          .gpus = p->settings->parallel.world_size,
                          .blocks = blocks,
                          .block_count = count };
  add_actions(&found, r, a);
  return found;
}
