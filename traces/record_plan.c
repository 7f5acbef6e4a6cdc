#include "traces/record_plan.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/plan/text.h"

/* By op: the phase in which it was issued. */
static uint32_t *find_marks(const rank_plan *r, arena *a)
{
  uint32_t *marks = ARENA_ARRAY(a, uint32_t, r->ops.count);
  uint32_t mark = 0;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    if (r->ops.items[i].kind == OP_MARK) mark = r->ops.items[i].arg;
    marks[i] = mark;
  }
  return marks;
}

plan_describer plan_describer_new(const plan *p, arena *a)
{
  plan_describer t = { .plan = p,
                       .calls = ARENA_ARRAY(a, const char *, p->calls.count),
                       .marks = ARENA_ARRAY(a, uint32_t *, p->rank_count),
                       .memory = a };
  for (uint32_t r = 0; r < p->rank_count; r++)
    t.marks[r] = find_marks(&p->ranks[r], a);
  return t;
}

bool trace_tells(const plan_op *o)
{
  return op_runs_on_stream((op_kind)o->kind) && o->kind != OP_RECORD && o->kind != OP_WAIT;
}

static const char *print_call(const plan_call *c, arena *a)
{
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  if (out == NULL) die_refused("memory: the system has none left for the text of an op");
  plan_print_call(out, c);
  if (fclose(out) != 0) die_refused("memory: the system has none left for the text of an op");
  const char *kept = arena_strdup(a, text + 1); /* not the blank before it */
  free(text);
  return kept;
}

static void describe_call(plan_describer *t, const plan_op *o, trace_op *to)
{
  const plan_call *c = &t->plan->calls.items[o->arg];
  if (t->calls[o->arg] == NULL) t->calls[o->arg] = print_call(c, t->memory);
  to->call = t->calls[o->arg];
  to->name = c->is_collective ? collective_name((collective_kind)c->kind)
                              : kernel_name((kernel_kind)c->kind);
}

/* By a copy or a message. */
static int64_t moved_bytes(const plan *p, const rank_plan *r, const plan_op *o)
{
  return op_is_copy((op_kind)o->kind) ? copy_host_buffer(r, o)->bytes
                                      : p->messages.items[o->arg].bytes;
}

static uint32_t describe_outputs(const plan_describer *t, const rank_plan *r, const plan_op *o,
                                 trace_output *outputs)
{
  const uint32_t *written = r->operands.items + o->operands + o->reads;
  for (uint32_t i = 0; i < o->writes; i++)
    outputs[i] =
        (trace_output){ .buffer =
                            t->plan->tensors.items[r->buffers.items[written[i]].tensor].name };
  return o->writes;
}

void describe_op(plan_describer *t, uint32_t rank, uint32_t op, trace_op *to, trace_output *outputs)
{
  const rank_plan *r = &t->plan->ranks[rank];
  const plan_op *o = &r->ops.items[op];
  const plan_site *site = &t->plan->sites.items[o->site];
  const plan_mark *m = &r->marks.items[t->marks[rank][op]];
  to->rank = rank;
  to->op = op;
  to->kind = to->name = op_name((op_kind)o->kind);
  to->call = "";
  to->stream = stream_name((plan_stream)o->stream);
  to->layer = site->layer;
  to->module = site->module;
  to->phase = mark_name((mark_kind)m->kind);
  to->microbatch = m->microbatch;
  to->chunk = m->chunk;
  if (o->kind == OP_KERNEL || o->kind == OP_COLLECTIVE)
    describe_call(t, o, to);
  else
    to->call = arena_printf(t->memory, "%" PRId64 " bytes", moved_bytes(t->plan, r, o));
  to->output_count = describe_outputs(t, r, o, outputs);
}
