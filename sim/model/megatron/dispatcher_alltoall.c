#include "sim/graph/node.h"
#include "sim/graph/parts.h"
#include "sim/model/megatron/dispatcher.h"
#include "sim/operators/moe.h"

/* Whether and where the host waits for counts (token_dispatcher.py, cuda_sync_point). */
static bool waits_before_permutation(const settings *s, const moe_sizes *m)
{
  return !m->padded && (m->capacity > 0 || s->model.moe_router_padding_for_quantization);
}

/* token_dispatcher.py, preprocess: every rank learns how many rows each other one sends to each
 * expert. The sizes of the exchanges come from it, so the host waits for it before the first. */
static void gather_counts(graph *g, const moe_sizes *m, tensor_id map)
{
  if (!moe_exchanges(m) || m->padded) return;
  tensor_id counts = graph_constant(g, "tokens_per_expert", DTYPE_INT64, 1, m->experts);
  graph_node *n = moe_step(g, KERNEL_MOE_COUNT, KERNEL_KINDS, map, 0, counts);
  n->dims[MOE_STEP_D0] = m->tokens;
  n->dims[MOE_STEP_D1] = m->experts;
  n->flags = MOE_STEP_FORWARD_ONLY;
  moe_exchange(g, "tokens_per_rank", counts, COLLECTIVE_ALL_GATHER, GROUP_TP_EP, m->ep * m->etp);
}

/* mappings.py, _AllToAll: with one rank the input itself. */
static row_pair exchanged_over_ep(graph *g, const settings *s, const moe_sizes *m,
                                  tensor_id restore, row_pair p)
{
  if (m->ep == 1) return p;
  p.tokens =
      moe_exchange(g, "dispatched_tokens", p.tokens, COLLECTIVE_ALL_TO_ALL, GROUP_EP, m->received);
  moe_finds_experts(g, m, restore, false);
  if (!m->padded && !waits_before_permutation(s, m)) moe_host_waits(g);
  if (p.probs == 0) return p;
  p.probs =
      moe_exchange(g, "dispatched_probs", p.probs, COLLECTIVE_ALL_TO_ALL, GROUP_EP, m->received);
  moe_finds_experts(g, m, restore, false);
  return p;
}

/* token_dispatcher.py, output_splits_tp: exchanges over ETP have a list of what each rank sends. The
 * parts are equal if no expert is elsewhere and none drops rows. Of unequal parts NCCL sends each by
 * itself; with padding there is no list. */
static bool lists_equal_parts(const moe_sizes *m)
{
  return m->ep == 1 && m->capacity == 0;
}

static tensor_id gathered(graph *g, const moe_sizes *m, const char *name, tensor_id t)
{
  tensor_id whole = moe_exchange(g, name, t, COLLECTIVE_ALL_GATHER, GROUP_ETP, m->rows);
  if (lists_equal_parts(m)) moe_lists_parts(g);
  return whole;
}

static row_pair gathered_over_etp(graph *g, const moe_sizes *m, row_pair p)
{
  if (m->etp == 1) return p;
  p.tokens = gathered(g, m, "gathered_tokens", p.tokens);
  if (p.probs != 0) p.probs = gathered(g, m, "gathered_probs", p.probs);
  return p;
}

/*
 * moe_utils.py, sort_chunks_by_idxs: chunks of ranks into chunks of experts, or back. The fused
 * kernel keeps a row index; split and cat keep nothing. Rows from only one rank are already in
 * order.
 */
static row_pair sorted_by_expert(graph *g, const settings *s, const moe_sizes *m, const char *name,
                                 bool back, row_pair p)
{
  if (m->local_experts == 1) return p;
  int64_t ranks = m->ep * m->etp, experts = moe_exchanges(m) ? m->local_experts : 1;
  bool fused = s->model.moe_permute_fusion && !m->padded;
  int64_t rows = g->tensors.items[p.tokens].shape[0];
  row_pair to = { graph_tensor_new(g, name, m->type, rows, m->hidden, 0, 0), 0 };
  graph_node *n = moe_step(g, KERNEL_MOE_SORT_CHUNKS_FORWARD, KERNEL_MOE_SORT_CHUNKS_BACKWARD,
                           p.tokens, p.probs, to.tokens);
  n->dims[MOE_STEP_D0] = rows;
  n->dims[MOE_STEP_D1] = m->hidden;
  n->dims[MOE_STEP_D2] = back ? experts : ranks;
  n->dims[MOE_STEP_D3] = back ? ranks : experts;
  if (fused) {
    tensor_id index = graph_constant(g, "chunk_map", DTYPE_INT32, rows, 0);
    n = &g->nodes.items[g->nodes.count - 1];
    node_output(n, index);
    node_save(n, index);
  }
  if (p.probs != 0) {
    to.probs = graph_tensor_new(g, "sorted_probs", m->router, rows, 0, 0, 0);
    node_output(&g->nodes.items[g->nodes.count - 1], to.probs);
  }
  return to;
}

static permutation sent_rows(const moe_sizes *m)
{
  return (permutation){ m->tokens, m->experts, m->sent, m->hidden, m->padded, m->slotted };
}

/* MoEAlltoAllTokenDispatcher: dispatch_preprocess, token_dispatch, dispatch_postprocess. */
static moe_dispatch alltoall_dispatch(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                      tensor_id x, moe_routing routing)
{
  moe_dispatch d = { 0 };
  permutation p = sent_rows(m);
  row_pair rows = { x, routing.probs };
  if (s->derived.weighs_expert_outputs) {
    d.weights = routing;
    rows.probs = 0;
  }
  moe_attribute(g, routing.probs); /* token_dispatcher.py:642 */
  moe_keeps_graph(g);
  moe_attribute(g, routing.map);
  gather_counts(g, m, routing.map);
  rows = moe_permute(g, s, &p, rows, routing.map, &d.restore);
  moe_attribute(g, d.restore); /* reversed_local_input_permutation_mapping */
  if (waits_before_permutation(s, m)) moe_host_waits(g);
  moe_hold(f, rows.tokens); /* moe_layer.py, custom_forward: hidden_states */
  part_leaves_graph(g);     /* the dispatcher keeps the router's probabilities */
  moe_begin_dispatch(g, s, f, rows.tokens, rows.probs);
  rows = exchanged_over_ep(g, s, m, d.restore, rows);
  moe_hold(f, rows.tokens); /* dispatched_input */
  moe_hold(f, rows.probs);
  moe_begin_experts(g, s, f, rows.tokens, rows.probs);
  rows = sorted_by_expert(g, s, m, "sorted_tokens", false, gathered_over_etp(g, m, rows));
  if (!moe_exchanges(m) && !m->padded && !waits_before_permutation(s, m)) moe_host_waits(g);
  d.rows_of = moe_exchanges(m) || m->slotted ? 0 : d.restore;
  d.tokens = rows.tokens;
  d.probs = rows.probs;
  return d;
}

static tensor_id alltoall_combine(graph *g, const settings *s, const moe_sizes *m,
                                  const moe_dispatch *d, tensor_id y)
{
  moe_frame frame = { 0 };
  moe_hold(&frame, y); /* routed_experts_compute: expert_output */
  y = sorted_by_expert(g, s, m, "unsorted_tokens", true, (row_pair){ y, 0 }).tokens;
  if (m->etp > 1) y = moe_scatter(g, m, GROUP_ETP, lists_equal_parts(m), m->received, y);
  moe_release(g, &frame);
  moe_begin_combine(g, s, &frame, d, y);
  if (m->ep > 1) {
    y = moe_exchange(g, "combined_rows", y, COLLECTIVE_ALL_TO_ALL, GROUP_EP, m->sent);
    moe_finds_experts(g, m, d->restore, true);
  }
  permutation p = sent_rows(m);
  y = moe_weighted_rows(g, &p, d, y);
  return moe_unpermute(g, s, "combined", y, d->restore, m->tokens, m->hidden);
}

const moe_dispatcher moe_alltoall_dispatcher = { alltoall_dispatch, alltoall_combine };
