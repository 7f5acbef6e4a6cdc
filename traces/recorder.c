#include "traces/recorder.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "sim/plan/text.h"

bool recorder_open(trace_recorder *r, const char *path, const trace_header *h, diag *d)
{
  *r = (trace_recorder){ .plan = NULL };
  return trace_open(&r->writer, path, h, d);
}

void recorder_begin(trace_recorder *r, FILE *stream, const trace_header *h)
{
  *r = (trace_recorder){ .plan = NULL };
  trace_begin(&r->writer, stream, h);
}

void recorder_end(trace_recorder *r)
{
  arena_release(&r->memory);
}

bool recorder_close(trace_recorder *r, diag *d)
{
  arena_release(&r->memory);
  return trace_close(&r->writer, d);
}

void recorder_discard(trace_recorder *r)
{
  arena_release(&r->memory);
  trace_discard(&r->writer);
}

/* ---- the plan ---- */

/* By op: the phase in which it was issued. */
static uint32_t *find_marks(const rank_plan *r, arena *a)
{
  uint32_t *marks = ARENA_ARRAY(a, uint32_t, r->ops.count);
  uint32_t mark = 0;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    if (r->ops.items[i].kind == OP_MARK) mark = r->ops.items[i].arg;
    assert(mark < r->marks.count);
    marks[i] = mark;
  }
  return marks;
}

void recorder_plan(trace_recorder *r, const plan *p)
{
  arena_release(&r->memory);
  r->memory = (arena){ 0 };
  r->plan = p;
  r->calls = ARENA_ARRAY(&r->memory, const char *, p->calls.count);
  r->marks = ARENA_ARRAY(&r->memory, uint32_t *, p->rank_count);
  for (uint32_t rank = 0; rank < p->rank_count; rank++)
    r->marks[rank] = find_marks(&p->ranks[rank], &r->memory);
}

/* ---- an op ---- */

bool recorder_takes(const plan_op *o)
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
  assert(text[0] == ' ');
  const char *kept = arena_strdup(a, text + 1);
  free(text);
  return kept;
}

static void describe_call(trace_recorder *r, uint32_t number, trace_op *to)
{
  const plan_call *c = &r->plan->calls.items[number];
  assert(number < r->plan->calls.count);
  if (r->calls[number] == NULL) r->calls[number] = print_call(c, &r->memory);
  to->call = r->calls[number];
  to->name = call_name(c);
}

/* Fills in what the plan says about the op. */
static void describe_op(trace_recorder *r, uint32_t pp_rank, uint32_t op, trace_op *to)
{
  const plan *p = r->plan;
  const rank_plan *of = &p->ranks[pp_rank];
  const plan_op *o = &of->ops.items[op];
  const plan_site *site = &p->sites.items[o->site];
  const plan_mark *m = &of->marks.items[r->marks[pp_rank][op]];
  to->op = op;
  to->kind = to->name = op_name((op_kind)o->kind);
  to->stream = stream_name((plan_stream)o->stream);
  to->layer = site->layer;
  to->module = site->module;
  to->phase = mark_name((mark_kind)m->kind);
  to->microbatch = m->microbatch;
  to->chunk = m->chunk;
  to->output_count = o->writes;
  if (op_is_call((op_kind)o->kind)) {
    describe_call(r, o->arg, to);
    return;
  }
  int64_t moved_bytes =
      op_is_copy((op_kind)o->kind) ? copy_bytes(p, of, o) : p->messages.items[o->arg].bytes;
  to->call = arena_printf(&r->memory, "%" PRId64 " bytes", moved_bytes);
}

void recorder_op(trace_recorder *r, uint32_t pp_rank, uint32_t op, const trace_op *known,
                 trace_output *outputs)
{
  assert(r->plan != NULL && pp_rank < r->plan->rank_count);
  const rank_plan *of = &r->plan->ranks[pp_rank];
  assert(op < of->ops.count);
  const plan_op *o = &of->ops.items[op];
  trace_output unknown[TRACE_OUTPUTS];
  trace_op told = *known;
  if (!recorder_takes(o)) return;
  assert(o->writes <= TRACE_OUTPUTS);
  assert(known->begin_ps >= 0 && known->requested_bytes >= 0 && known->host_bytes >= 0);
  describe_op(r, pp_rank, op, &told);
  const uint32_t *written = of->operands.items + o->operands + o->reads;
  for (uint32_t i = 0; i < o->writes; i++) {
    if (outputs == NULL) unknown[i] = (trace_output){ .known = false };
    (outputs == NULL ? unknown : outputs)[i].buffer =
        r->plan->tensors.items[of->buffers.items[written[i]].tensor].name;
  }
  trace_put(&r->writer, &told, outputs == NULL ? unknown : outputs);
}
