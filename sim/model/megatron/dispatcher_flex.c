/* Dispatchers over one exchange of tokens: DeepEP and HybridEP. */
#include "sim/config/expert_rows.h"
#include "sim/graph/node.h"
#include "sim/model/megatron/dispatcher.h"
#include "sim/operators/moe.h"

/* The share of the ranks that a token reaches, if its experts are drawn evenly from `pool`
 * experts of which each rank has `local`: one minus the probability that none of k draws hits the
 * rank. */
static double hit_chance(int64_t pool, int64_t local, int64_t k)
{
  double miss = 1;
  for (int64_t i = 0; i < k; i++) {
    int64_t others = pool - local - i;
    if (others <= 0) return 1;
    miss = miss * (double)others / (double)(pool - i);
  }
  return 1 - miss;
}

/* Rows that a rank receives if every token arrives once, however many of its experts the rank
 * has. Group limited routing draws from the chosen groups only. */
static int64_t received_once(const settings *s, const moe_sizes *m)
{
  int64_t groups = s->model.moe_router_num_groups, chosen = s->model.moe_router_group_topk;
  double chance;
  if (groups > 0 && chosen > 0 && m->local_experts <= m->experts / groups)
    chance = (double)chosen / (double)groups *
             hit_chance(m->experts / groups * chosen, m->local_experts, m->topk);
  else
    chance = hit_chance(m->experts, m->local_experts, m->topk);
  int64_t all = m->tokens * m->ep * m->etp;
  int64_t rows = scaled_rows(scaled_rows(all, chance), s->model.moe_imbalance);
  return rows < all ? rows : all;
}

/* DeepEP runs dispatch and combine on its own stream, and compute waits for them. */
static tensor_id flex_exchange(graph *g, const char *name, tensor_id t, int64_t rows)
{
  return moe_exchange(g, name, t, COLLECTIVE_ALL_TO_ALL, GROUP_TP_EP, rows);
}

/* fused_a2a.py: the handle keeps, for both exchanges, the source of each received row and the
 * ranks that each token is sent to. Ranks exchange the numbers of rows (DeepEP) or their maps
 * (HybridEP). The handle is an attribute of autograd's context: no hook sees it. */
static moe_handle exchange_handle(graph *g, const moe_sizes *m, tensor_id map, int64_t received)
{
  moe_handle h = { graph_constant(g, "handle_source", DTYPE_INT32, received, 0),
                   graph_constant(g, "handle_sent", DTYPE_INT32, m->tokens, m->ep * m->etp),
                   received, m->tokens };
  g->tensors.items[h.source].not_offloadable = g->tensors.items[h.sent].not_offloadable = true;
  graph_node *n = graph_add(g, &operator_exchange_table);
  n->dims[TABLE_GROUP] = GROUP_TP_EP;
  node_input(n, map);
  node_output(n, h.source);
  node_output(n, h.sent);
  node_save(n, h.source);
  node_save(n, h.sent);
  return h;
}

/* _DeepepManager.setup_metadata: the top k probabilities again, now as indexes; fp32. */
static tensor_id token_probs(graph *g, const moe_sizes *m, tensor_id probs, tensor_id *indices)
{
  int64_t k = m->topk * m->etp;
  tensor_id top = graph_tensor_new(g, "token_probs", m->router, m->tokens, k, 0, 0);
  *indices = graph_constant(g, "token_indices", DTYPE_INT64, m->tokens, k);
  graph_node *n =
      moe_step(g, KERNEL_ROUTER_TOPK_FORWARD, KERNEL_ROUTER_TOPK_BACKWARD, probs, 0, top);
  n->dims[MOE_STEP_D0] = m->tokens;
  n->dims[MOE_STEP_D1] = m->experts;
  n->dims[MOE_STEP_D2] = k;
  node_output(n, *indices);
  node_save(n, *indices);
  return moe_cast(g, "token_probs_fp32", top, DTYPE_FP32);
}

/* _indices_to_multihot: masks and probabilities of the local experts for each received row. Indexing
 * with a mask copies: backward needs those copies, which belong to the experts' stream, and not what
 * the exchange received. Here they are as large as that; the real ones lack the masked numbers. */
static tensor_id multihot(graph *g, const moe_sizes *m, tensor_id probs, tensor_id indices,
                          int64_t received, tensor_id *map)
{
  int64_t k = g->tensors.items[probs].shape[1];
  tensor_id valid = graph_constant(g, "valid_indices", DTYPE_INT64, received, k);
  moe_step(g, KERNEL_COPY, KERNEL_COPY, indices, 0, valid)->flags |= MOE_STEP_FORWARD_ONLY;
  tensor_id wide =
      graph_tensor_new(g, "received_multihot", DTYPE_FP32, received, m->local_experts, 0, 0);
  *map = graph_constant(g, "received_map", DTYPE_BYTE, received, m->local_experts);
  graph_node *n =
      moe_step(g, KERNEL_MOE_MULTIHOT_FORWARD, KERNEL_MOE_MULTIHOT_BACKWARD, probs, valid, wide);
  n->dims[MOE_STEP_D0] = received;
  n->dims[MOE_STEP_D1] = m->local_experts;
  n->dims[MOE_STEP_D2] = k;
  n->dims[MOE_STEP_FORWARD_BYTES] = received * m->local_experts * 8;
  node_output(n, *map);
  node_save(n, valid);
  return wide;
}

static moe_dispatch deepep_dispatch(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                    tensor_id x, moe_routing routing)
{
  moe_dispatch d = { .received = received_once(s, m) };
  tensor_id indices = 0;
  tensor_id probs = token_probs(g, m, routing.probs, &indices);
  moe_keeps_graph(g);
  moe_begin_dispatch(g, s, f, x, probs);
  d.handle = exchange_handle(g, m, routing.map, d.received);
  tensor_id received = flex_exchange(g, "dispatched_tokens", x, d.received);
  moe_goes_by(g, &d.handle, true, false);
  moe_host_polls(g);
  tensor_id received_probs = flex_exchange(g, "dispatched_probs", probs, d.received);
  moe_goes_by(g, &d.handle, true, false);
  tensor_id received_indices = flex_exchange(g, "dispatched_indices", indices, d.received);
  moe_goes_by(g, &d.handle, true, false);
  moe_hold(f, received);
  moe_hold(f, received_probs);
  moe_hold(f, received_indices);
  moe_begin_experts(g, s, f, received, received_probs);
  tensor_id map = 0;
  tensor_id wide = multihot(g, m, received_probs, received_indices, d.received, &map);
  moe_hold(f, wide);
  moe_hold(f, map);
  permutation p = { d.received, m->local_experts, m->rows, m->hidden, false, m->slotted };
  row_pair rows = moe_permute(g, s, &p, (row_pair){ received, wide }, map, &d.restore_received);
  d.rows_of = m->slotted ? 0 : d.restore_received;
  d.tokens = rows.tokens;
  d.probs = moe_cast(g, "permuted_probs_cast", rows.probs,
                     m->router == DTYPE_FP64 ? DTYPE_FP64 : DTYPE_FP32);
  return d;
}

/* _HybridEPManager: exchange and permutation in one; its buffers are outside the caching
 * allocator. */
static moe_dispatch hybridep_dispatch(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                      tensor_id x, moe_routing routing)
{
  moe_dispatch d = { .received = received_once(s, m) };
  tensor_id probs = moe_cast(g, "token_probs_fp32", routing.probs, DTYPE_FP32);
  moe_begin_dispatch(g, s, f, x, probs);
  d.handle = exchange_handle(g, m, routing.map, d.received);
  d.tokens = flex_exchange(g, "dispatched_tokens", x, m->rows);
  moe_goes_by(g, &d.handle, false, false);
  if (!m->padded && !m->is_static) moe_host_polls(g);
  d.probs = flex_exchange(g, "dispatched_probs", probs, m->rows);
  graph_tensor *rows = &g->tensors.items[d.probs]; /* each has one of a token's probabilities */
  rows->rank = 1;
  rows->shape[1] = 0;
  moe_goes_by(g, &d.handle, false, false);
  moe_uses_computed_rows(g, m, d.tokens);
  d.rows_of = d.handle.source;
  moe_hold(f, d.tokens);
  moe_begin_experts(g, s, f, d.tokens, d.probs);
  return d;
}

static bool is_hybridep(const settings *s)
{
  return s->model.moe_flex_dispatcher_backend != FLEX_DEEPEP;
}

static tensor_id flex_combine(graph *g, const settings *s, const moe_sizes *m,
                              const moe_dispatch *d, tensor_id y)
{
  moe_frame frame = { 0 };
  moe_hold(&frame, y);
  if (!is_hybridep(s))
    y = moe_unpermute(g, s, "restored_tokens", y, d->restore_received, d->received, m->hidden);
  moe_release(g, &frame);
  moe_begin_combine(g, s, &frame, d, y);
  tensor_id tokens = flex_exchange(g, "combined", y, m->tokens);
  moe_goes_by(g, &d->handle, !is_hybridep(s), true);
  return tokens;
}

static moe_dispatch flex_dispatch(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                  tensor_id x, moe_routing routing)
{
  return is_hybridep(s) ? hybridep_dispatch(g, s, m, f, x, routing)
                        : deepep_dispatch(g, s, m, f, x, routing);
}

const moe_dispatcher moe_flex_dispatcher = { flex_dispatch, flex_combine };
