#include "sim/compile/graphs.h"

#include <assert.h>
#include <string.h>

#include "sim/plan/repeats.h"

/*
 * The part of a layer that each of cuda_graph_modules captures (Megatron-LM core/transformer/
 * transformer_layer.py, _te_cuda_graph_capture; docs/user-guide/features/cuda_graph.md): the first
 * row whose name is a prefix of the module's. The kernels of moe_preprocess are among those of the
 * dispatcher, whose exchanges have unknown sizes, so no graph includes them.
 */
static const struct {
  const char *module;
  cuda_graph_modules_choice of_dense, of_moe;
} captures[] = {
  { "input_layernorm", CAPTURE_ATTN, CAPTURE_ATTN },
  { "self_att", CAPTURE_ATTN, CAPTURE_ATTN },
  { "pre_mlp_layernorm", CAPTURE_MLP, CAPTURE_MOE_ROUTER },
  { "mlp.router", CAPTURE_MLP, CAPTURE_MOE_ROUTER },
  { "mlp.shared_experts", CAPTURE_MLP, CAPTURE_MOE_ROUTER },
  { "mlp", CAPTURE_MLP, CAPTURE_MOE },
};

enum { ROWS = sizeof captures / sizeof captures[0] };

enum { OUTSIDE, FIRST_GRAPH }; /* numbers of graphs; ops with equal numbers form one graph */

typedef struct capture {
  const settings *settings;
  const plan *plan;
  const rank_plan *rank;
  bool whole_iteration, whole_layer, by_module;
} capture;

static bool is_moe_layer(const settings *s, int32_t layer)
{
  assert(layer >= 0);
  int64_t last = s->model.num_layers - 1; /* MTP layers are like the decoder's last layer */

  return s->derived.layer_is_moe[layer < last ? layer : last];
}

static bool is_captured(const settings *s, cuda_graph_modules_choice module)
{
  assert(s->training.cuda_graph_impl != GRAPHS_NONE);
  const choice_list *captured = &s->training.cuda_graph_modules;

  return has_choice(captured, module) ||
         (module == CAPTURE_MOE_ROUTER && has_choice(captured, CAPTURE_MOE));
}

/* The graph of a kernel, by its site in the model. */
static uint32_t graph_of_site(const capture *c, const plan_site *site)
{
  assert(!c->whole_iteration);
  if (site->layer < 0) return OUTSIDE;
  uint32_t of_layer = FIRST_GRAPH + (uint32_t)site->layer * ROWS;
  if (c->whole_layer) return of_layer;
  bool moe = is_moe_layer(c->settings, site->layer);
  for (uint32_t i = 0; i < ROWS; i++)
    if (strncmp(site->module, captures[i].module, strlen(captures[i].module)) == 0) {
      cuda_graph_modules_choice by = moe ? captures[i].of_moe : captures[i].of_dense;
      if (!is_captured(c->settings, by)) return OUTSIDE;
      return of_layer + (c->by_module && by != CAPTURE_ATTN);
    }
  return OUTSIDE;
}

typedef enum op_role { GRAPHED, PASSES, BREAKS } op_role;

/* Whether an op belongs to a graph, may be between the kernels of one (PASSES: the graph has it as
 * a node or does not need it), or ends it. */
static op_role role_of(const capture *c, const plan_op *o)
{
  assert(o->kind != OP_GRAPH_BEGIN && o->kind != OP_GRAPH_END && "graphs are marked once");
  switch ((op_kind)o->kind) {
  case OP_KERNEL:
  case OP_COLLECTIVE: return GRAPHED;
  case OP_SEND:
  case OP_RECV: return c->whole_iteration ? GRAPHED : BREAKS;
  case OP_MARK: {
    const plan_mark *m = &c->rank->marks.items[o->arg];
    bool inside = m->kind == MARK_FORWARD || m->kind == MARK_BACKWARD || m->kind == MARK_FINISH;
    return c->whole_iteration && inside ? PASSES : BREAKS;
  }
  case OP_ALLOC:
  case OP_FREE:
  case OP_HOST_ALLOC:
  case OP_HOST_FREE:
  case OP_D2H:
  case OP_H2D:
  case OP_RECORD:
  case OP_WAIT: return PASSES;
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_HOST_WAIT:
  case OP_HOST_READ:
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END:
  case OP_KINDS: break;
  }
  return BREAKS;
}

/* The number of the graph, or OUTSIDE. `in_step`: between the iteration's first mark and the
 * optimizer. */
static uint32_t graph_of(const capture *c, const plan_op *o, bool in_step)
{
  assert(o->kind < OP_KINDS);
  if (!in_step || role_of(c, o) != GRAPHED) return OUTSIDE;
  return c->whole_iteration ? FIRST_GRAPH : graph_of_site(c, &c->plan->sites.items[o->site]);
}

static void push(op_array *ops, op_kind kind)
{
  assert(kind == OP_GRAPH_BEGIN || kind == OP_GRAPH_END);
  *ARRAY_PUSH(ops) = (plan_op){ .kind = (uint8_t)kind, .stream = STREAM_HOST };
}

/* Copies ops of `from` to `to`; those up to `last` belong to the open graph. */
static void copy_with_end(op_array *to, const op_array *from, uint32_t first, uint32_t last,
                          uint32_t end)
{
  assert(first <= end && end <= from->count &&
         (last == UINT32_MAX || (first <= last && last < end)));
  for (uint32_t i = first; i < end; i++) {
    *ARRAY_PUSH(to) = from->items[i];
    if (i == last) push(to, OP_GRAPH_END);
  }
}

static bool begins_step(const capture *c, const plan_op *o, bool in_step)
{
  if (o->kind != OP_MARK) return in_step;
  assert(o->arg < c->rank->marks.count);
  mark_kind kind = (mark_kind)c->rank->marks.items[o->arg].kind;
  return kind != MARK_SETUP && kind != MARK_OPTIMIZER;
}

static op_array with_graphs(const capture *c)
{
  const op_array *from = &c->rank->ops;
  op_array to = { 0 };
  uint32_t open = OUTSIDE, first = 0, last = 0;
  bool in_step = false;

  for (uint32_t i = 0; i < from->count; i++) {
    const plan_op *o = &from->items[i];
    in_step = begins_step(c, o, in_step);
    uint32_t graph = graph_of(c, o, in_step);
    bool ends = open != OUTSIDE && graph != open && role_of(c, o) != PASSES;
    if (ends || (open == OUTSIDE && graph != OUTSIDE)) {
      copy_with_end(&to, from, first, open == OUTSIDE ? UINT32_MAX : last, i);
      first = i;
      open = graph;
      if (open != OUTSIDE) push(&to, OP_GRAPH_BEGIN);
    }
    if (graph != OUTSIDE) last = i;
  }
  copy_with_end(&to, from, first, open == OUTSIDE ? UINT32_MAX : last, from->count);
  assert(to.count >= from->count && "only marks are added");
  return to;
}

void mark_graphs(const settings *s, const plan *p, rank_plan *r)
{
  cuda_graph_impl_choice impl = s->training.cuda_graph_impl;
  bool whole_iteration = impl == GRAPHS_FULL_ITERATION;
  capture c = { .settings = s,
                .plan = p,
                .rank = r,
                .whole_iteration = whole_iteration,
                .whole_layer = s->training.cuda_graph_modules.count == 0,
                .by_module = impl == GRAPHS_LOCAL };

  if (impl == GRAPHS_NONE) return;
  op_array marked = with_graphs(&c);
  assert((marked.count - r->ops.count) % 2 == 0 && "every graph ends");
  ARRAY_FREE(&r->ops);
  r->ops = marked;
  plan_forget_repeat(r);
}
