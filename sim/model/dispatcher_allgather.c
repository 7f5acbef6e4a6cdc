#include "sim/model/dispatcher.h"
#include "sim/model/node.h"
#include "sim/model/operators_moe.h"

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
  moe_step(g, KERNEL_COPY, KERNEL_COPY, t, 0, columns);
  return columns;
}

/* masked_select of the transposed probabilities: keeps the transposed mask; its gradient is that of
 * the transposed copy. */
static tensor_id selected_probs(graph *g, const moe_sizes *m, tensor_id probs, tensor_id map)
{
  tensor_id mask = moe_index(g, "local_map_t", DTYPE_BYTE, m->local_experts, gathered_tokens(m));
  moe_step(g, KERNEL_COPY, KERNEL_COPY, map, 0, mask)->flags = MOE_STEP_FORWARD_ONLY;
  tensor_id transposed =
      graph_tensor_new(g, "local_probs_t", m->router, m->local_experts, gathered_tokens(m), 0, 0);
  moe_step(g, KERNEL_COPY, KERNEL_COPY, probs, 0, transposed);
  tensor_id rows = graph_tensor_new(g, "permuted_probs", m->router, m->rows, 0, 0, 0);
  graph_node *n = moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, transposed, mask, rows);
  n->flags = MOE_STEP_WAITS;
  node_save(n, transposed);
  node_save(n, mask);
  return rows;
}

/* Rows of the gathered tokens, which stand in the global memory buffer when there is something to
 * gather. */
static tensor_id gathered_permute(graph *g, const settings *s, const moe_sizes *m, tensor_id x,
                                  tensor_id map, tensor_id *restore)
{
  int64_t all = gathered_tokens(m);
  permutation p = { all, m->local_experts, m->rows, m->hidden, false };
  if (s->model.moe_permute_fusion) {
    *restore = moe_index(g, "row_id_map", DTYPE_INT32, all, 2 * m->local_experts + 1);
    moe_step(g, KERNEL_SORT, KERNEL_SORT, map, 0, *restore)->flags = MOE_STEP_FORWARD_ONLY;
  } else {
    moe_sorted_cells(g, &p, map, restore);
  }
  tensor_id rows = graph_tensor_new(g, "permuted_tokens", m->type, m->rows, m->hidden, 0, 0);
  graph_node *n = moe_exchanges(m)
                      ? graph_add(g, &operator_gather_permute)
                      : moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, x, *restore, rows);
  if (moe_exchanges(m)) {
    n->dims[GATHER_TOKENS] = m->tokens;
    n->dims[GATHER_ALL_TOKENS] = all;
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
  d.probs = selected_probs(g, m, probs, map);
  return d;
}

static tensor_id allgather_combine(graph *g, const settings *s, const moe_sizes *m,
                                   const moe_dispatch *d, tensor_id y)
{
  moe_frame frame = { 0 };
  moe_hold(&frame, y);
  y = moe_unpermute(g, s, "unpermuted", y, d->restore, gathered_tokens(m), m->hidden);
  moe_release(g, &frame);
  return moe_exchanges(m) ? moe_scatter(g, m, GROUP_TP_EP, m->tokens, y) : y;
}

const moe_dispatcher moe_allgather_dispatcher = { allgather_dispatch, allgather_combine };
