#include "sim/graph/node.h"
#include "sim/model/megatron/dispatcher.h"
#include "sim/operators/moe.h"

static int64_t gathered_tokens(const moe_sizes *m)
{
  return m->tokens * m->ep * m->etp;
}

/* The columns of the local experts, a contiguous copy. */
static tensor_id local_columns(graph *g, const moe_sizes *m, const char *name, tensor_id t)
{
  if (m->local_experts == m->experts) return t;
  graph_tensor from = g->tensors.items[t];
  tensor_id columns =
      graph_tensor_new(g, name, (dtype)from.dtype, from.shape[0], m->local_experts, 0, 0);
  g->tensors.items[columns].requires_grad = from.requires_grad;
  graph_node *n = moe_step(g, KERNEL_MOE_LOCAL_COLUMNS_FORWARD, KERNEL_MOE_LOCAL_COLUMNS_BACKWARD,
                           t, 0, columns);
  n->dims[MOE_STEP_D0] = from.shape[0];
  n->dims[MOE_STEP_D1] = m->local_experts;
  n->dims[MOE_STEP_D2] = m->experts;
  return columns;
}

static permutation local_rows(const moe_sizes *m)
{
  return (
      permutation){ gathered_tokens(m), m->local_experts, m->rows, m->hidden, false, m->slotted };
}

/* Rows of the gathered tokens. They are in the global memory buffer if there is something to
 * gather. */
static tensor_id gathered_permute(graph *g, const settings *s, const moe_sizes *m, tensor_id x,
                                  tensor_id map, tensor_id *restore)
{
  permutation p = local_rows(m);
  if (s->model.moe_permute_fusion)
    *restore = moe_row_map(g, &p, map);
  else
    moe_sorted_cells(g, &p, map, restore);
  tensor_id rows = graph_tensor_new(g, "permuted_tokens", m->type, m->rows, m->hidden, 0, 0);
  graph_node *n = moe_exchanges(m)
                      ? graph_add(g, &operator_gather_permute)
                      : moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, x, *restore, rows);
  n->dims[MOE_STEP_D0] = m->rows;
  n->dims[MOE_STEP_D1] = m->hidden;
  if (moe_exchanges(m)) {
    n->dims[GATHER_TOKENS] = m->tokens;
    n->dims[GATHER_ALL_TOKENS] = p.tokens;
    n->dims[GATHER_WIDTH] = m->hidden;
    node_input(n, x);
    node_input(n, *restore);
    node_output(n, rows);
  }
  n->flags |= MOE_STEP_WAITS;
  node_save(n, *restore);
  return rows;
}

/* MoEAllGatherTokenDispatcher: every rank sees all tokens of its TP x EP group. */
static moe_dispatch allgather_dispatch(graph *g, const settings *s, const moe_sizes *m,
                                       moe_frame *f, tensor_id x, moe_routing routing)
{
  moe_dispatch d = { 0 };
  if (moe_exchanges(m)) {
    routing.map = moe_exchange(g, "gathered_map", routing.map, COLLECTIVE_ALL_GATHER, GROUP_TP_EP,
                               gathered_tokens(m));
    routing.probs = moe_exchange(g, "gathered_probs", routing.probs, COLLECTIVE_ALL_GATHER,
                                 GROUP_TP_EP, gathered_tokens(m));
    moe_hold(f, routing.probs);
  }
  tensor_id map = local_columns(g, m, "local_map", routing.map);
  tensor_id probs = local_columns(g, m, "local_probs", routing.probs);
  moe_hold(f, map);
  d.tokens = gathered_permute(g, s, m, x, map, &d.restore);
  if (!s->derived.weighs_expert_outputs) {
    permutation p = local_rows(m);
    probs = d.probs = moe_selected_probs(g, &p, probs, map);
  } else {
    d.weights = (moe_routing){ probs, map };
  }
  moe_attribute(g, map); /* local_map, reversed_local_input_permutation_mapping, local_probs */
  moe_attribute(g, d.restore);
  moe_attribute(g, probs);
  moe_keeps_graph(g);
  d.rows_of = m->slotted ? 0 : d.restore;
  return d;
}

static tensor_id allgather_combine(graph *g, const settings *s, const moe_sizes *m,
                                   const moe_dispatch *d, tensor_id y)
{
  moe_frame frame = { 0 };
  permutation p = local_rows(m);
  moe_hold(&frame, y);
  y = moe_weighted_rows(g, &p, d, y);
  y = moe_unpermute(g, s, "unpermuted", y, d->restore, gathered_tokens(m), m->hidden);
  moe_release(g, &frame);
  return moe_exchanges(m) ? moe_scatter(g, m, GROUP_TP_EP, false, m->tokens, y) : y;
}

const moe_dispatcher moe_allgather_dispatcher = { allgather_dispatch, allgather_combine };
