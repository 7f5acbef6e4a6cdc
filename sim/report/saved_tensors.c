#include "sim/report/saved_tensors.h"

#include <assert.h>
#include <inttypes.h>

#include "sim/base/arena.h"
#include "sim/report/json.h"

typedef enum saved_action { SAVED_KEPT, SAVED_OFFLOADED, SAVED_COMPUTED_AGAIN } saved_action;

static const char *const action_names[] = { "keep", "offload", "recompute" };

typedef struct saved_list {
  const plan *plan;
  const rank_plan *rank;
  FILE *out;
  bool *is_copied;   /* by buffer */
  bool *is_received; /* by buffer: from another stage, and not listed yet */
  bool any;
} saved_list;

static const uint32_t *reads_of(const rank_plan *r, const plan_op *o)
{
  assert(o->reads > 0);
  return &r->operands.items[o->operands];
}

static uint32_t received_by(const rank_plan *r, const plan_op *o)
{
  assert(o->kind == OP_RECV && o->writes == 1);
  return r->operands.items[o->operands + o->reads];
}

static bool is_saved(const rank_plan *r, uint32_t buffer)
{
  return r->buffers.items[buffer].purpose == CLASS_SAVED;
}

static void print_tensor(saved_list *l, saved_action action, uint32_t buffer)
{
  const plan_buffer *b = &l->rank->buffers.items[buffer];
  const plan_tensor *t = &l->plan->tensors.items[b->tensor];
  const plan_site *site = &l->plan->sites.items[t->site];
  fprintf(l->out, "%s\n        { \"action\": \"%s\", \"layer\": ", l->any ? "," : "",
          action_names[action]);
  if (site->layer < 0)
    fputs("null", l->out);
  else
    fprintf(l->out, "%" PRId32, site->layer);
  fputs(", \"module\": ", l->out);
  json_string(l->out, site->module);
  fputs(", \"tensor\": ", l->out);
  json_string(l->out, t->name);
  fprintf(l->out, ", \"dtype\": \"%s\", \"shape\": [", dtype_name((dtype)t->dtype));
  for (uint8_t i = 0; i < t->rank; i++)
    fprintf(l->out, "%s%" PRId64, i == 0 ? "" : ", ", t->shape[i]);
  fprintf(l->out, "], \"bytes\": %" PRId64 " }", b->bytes);
  l->any = true;
}

/* A stage may receive its input in the phase of another micro-batch: it is listed where it is read. */
static void list_received(saved_list *l, const plan_op *o)
{
  for (uint32_t i = 0; i < o->reads; i++) {
    uint32_t buffer = reads_of(l->rank, o)[i];
    if (!l->is_received[buffer] || l->is_copied[buffer] || !is_saved(l->rank, buffer)) continue;
    print_tensor(l, SAVED_KEPT, buffer);
    l->is_received[buffer] = false;
  }
}

/* An op of the first micro-batch. */
static void look_at_op(saved_list *l, const plan_op *o, mark_kind phase)
{
  if (o->kind == OP_D2H && phase == MARK_FORWARD && is_saved(l->rank, reads_of(l->rank, o)[0]))
    print_tensor(l, SAVED_OFFLOADED, reads_of(l->rank, o)[0]);
  if (op_works((op_kind)o->kind) && phase == MARK_FORWARD) list_received(l, o);
  if (o->kind != OP_ALLOC || !is_saved(l->rank, o->arg) || l->is_received[o->arg]) return;
  if (phase == MARK_BACKWARD)
    print_tensor(l, SAVED_COMPUTED_AGAIN, o->arg);
  else if (phase == MARK_FORWARD && !l->is_copied[o->arg])
    print_tensor(l, SAVED_KEPT, o->arg);
}

static void print_rank(saved_list *l)
{
  plan_mark now = { .kind = MARK_SETUP };
  for (uint32_t i = 0; i < l->rank->ops.count; i++) {
    const plan_op *o = &l->rank->ops.items[i];
    if (o->kind == OP_D2H) l->is_copied[reads_of(l->rank, o)[0]] = true;
    if (o->kind == OP_RECV) l->is_received[received_by(l->rank, o)] = true;
  }
  for (uint32_t i = 0; i < l->rank->ops.count; i++) {
    const plan_op *o = &l->rank->ops.items[i];
    if (o->kind == OP_MARK)
      now = l->rank->marks.items[o->arg];
    else if (now.microbatch == 0)
      look_at_op(l, o, (mark_kind)now.kind);
  }
}

void saved_tensors_json(const plan *p, FILE *out)
{
  fprintf(out, "{\n  \"format_version\": %d,\n  \"ranks\": [", JSON_FORMAT_VERSION);
  for (uint32_t r = 0; r < p->rank_count; r++) {
    arena scratch = { 0 };
    saved_list l = { .plan = p, .rank = &p->ranks[r], .out = out };
    l.is_copied = ARENA_ARRAY(&scratch, bool, l.rank->buffers.count);
    l.is_received = ARENA_ARRAY(&scratch, bool, l.rank->buffers.count);
    fprintf(out, "%s\n    { \"rank\": %u, \"saved\": [", r == 0 ? "" : ",", r);
    print_rank(&l);
    fputs(l.any ? "\n    ] }" : "] }", out);
    arena_release(&scratch);
  }
  fputs("\n  ]\n}\n", out);
}
