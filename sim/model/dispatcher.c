/*
 * Token dispatchers: from the router's choice to rows in the order of the local experts, and back.
 *
 * Megatron-LM (d98e8a64) core/transformer/moe/token_dispatcher.py, moe_utils.py (permute,
 * unpermute, sort_chunks_by_idxs), fused_a2a.py; Transformer Engine (d0067d0d)
 * pytorch/permutation.py and pytorch/triton/permutation.py for the fused kernels.
 */
#include <string.h>

#include "sim/config/expert_rows.h"
#include "sim/model/moe.h"
#include "sim/model/node.h"
#include "sim/model/operators_moe.h"
#include "sim/model/parts.h"

static const char site[] = "mlp.token_dispatcher";

/* Rows on their way: tokens and the probability of each row. */
typedef struct row_pair {
  tensor_id tokens, probs;
} row_pair;

/* ---- permutation ----------------------------------------------------------------------------- */

typedef struct permutation {
  int64_t tokens, experts, rows, width;
  bool padded;
} permutation;

/* triton/permutation.py, make_row_id_map: int32 [tokens, 2 experts + 1], kept for backward and for
 * the way back; its workspace has a number for each expert and 1024 tokens. */
static row_pair fused_permute(graph *g, const permutation *p, row_pair from, tensor_id map,
                              tensor_id *restore)
{
  dtype router = (dtype)g->tensors.items[from.probs].dtype;
  dtype type = (dtype)g->tensors.items[from.tokens].dtype;
  row_pair to = { graph_tensor_new(g, "permuted_tokens", type, p->rows, p->width, 0, 0),
                  graph_tensor_new(g, "permuted_probs", router, p->rows, 0, 0, 0) };
  *restore = moe_index(g, "row_id_map", DTYPE_INT32, p->tokens, 2 * p->experts + 1);
  graph_node *n = moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, from.tokens, from.probs, to.tokens);
  n->dims[MOE_STEP_FORWARD_BYTES] = p->experts * ((p->tokens + 1023) / 1024) * 4;
  node_input(n, map);
  node_output(n, *restore);
  node_output(n, to.probs);
  node_save(n, *restore);
  return to;
}

/* moe_utils.py, permute: a stable argsort of the transposed map. Dropless, the kept index is a
 * slice of the sort of all cells; with padding it is a copy. The sort works on a copy of keys and
 * values. */
static tensor_id sorted_cells(graph *g, const permutation *p, tensor_id map, tensor_id *indices)
{
  int64_t cells = p->tokens * p->experts;
  int64_t kept = p->padded ? p->rows : cells;
  tensor_id sorted = moe_index(g, "flat_sorted", DTYPE_INT64, kept, 0);
  *indices = moe_index(g, "sorted_indices", DTYPE_INT64, p->rows, 0);
  graph_node *n = moe_step(g, KERNEL_SORT, KERNEL_SORT, map, 0, sorted);
  n->flags = MOE_STEP_FORWARD_ONLY;
  n->dims[MOE_STEP_FORWARD_BYTES] = cells * (3 + 8);
  node_output(n, *indices);
  return sorted;
}

static tensor_id permuted_probs(graph *g, const permutation *p, tensor_id probs, tensor_id sorted)
{
  dtype type = (dtype)g->tensors.items[probs].dtype;
  tensor_id rows = graph_tensor_new(g, "permuted_probs", type, p->rows, 0, 0, 0);
  graph_node *n = moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, probs, sorted, rows);
  n->dims[MOE_STEP_FORWARD_BYTES] =
      p->tokens * p->experts * dtype_bytes(type); /* the transposed copy */
  node_save(n, sorted);
  return rows;
}

static row_pair unfused_permute(graph *g, const permutation *p, row_pair from, tensor_id map,
                                tensor_id *restore)
{
  row_pair to = { 0, 0 };
  tensor_id sorted = sorted_cells(g, p, map, restore);
  to.probs = permuted_probs(g, p, from.probs, sorted);
  dtype type = (dtype)g->tensors.items[from.tokens].dtype;
  to.tokens = graph_tensor_new(g, "permuted_tokens", type, p->rows, p->width, 0, 0);
  graph_node *n = moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, from.tokens, *restore, to.tokens);
  node_save(n, *restore);
  return to;
}

static row_pair permute(graph *g, const settings *s, const permutation *p, row_pair from,
                        tensor_id map, tensor_id *restore)
{
  return s->model.moe_permute_fusion ? fused_permute(g, p, from, map, restore)
                                     : unfused_permute(g, p, from, map, restore);
}

/*
 * moe_utils.py, unpermute: deterministic algorithms add rows by index_add, whose autograd node
 * keeps them (its formula expands the gradient "as source"), and make the zeros they are added to
 * twice. This came with Megatron-LM 56818f9e50 (2025-10); images before 25.09 ran the older
 * scatter_add, which keeps only indexes.
 */
static bool unpermute_keeps_rows(const settings *s)
{
  return image_is_from(s, 2025, 9) && s->training.deterministic_mode &&
         !s->model.moe_permute_fusion;
}

static tensor_id unpermute(graph *g, const settings *s, const char *name, tensor_id rows,
                           tensor_id restore, int64_t tokens, int64_t width)
{
  dtype type = (dtype)g->tensors.items[rows].dtype;
  tensor_id y = graph_tensor_new(g, name, type, tokens, width, 0, 0);
  graph_node *n = moe_step(g, KERNEL_UNPERMUTE, KERNEL_PERMUTE, rows, restore, y);
  node_save(n, restore);
  if (unpermute_keeps_rows(s)) {
    n->dims[MOE_STEP_FORWARD_BYTES] = tokens * width * dtype_bytes(type);
    node_save(n, rows);
  }
  return y;
}

/* ---- all-to-all ------------------------------------------------------------------------------ */

/* Whether and where the host waits for counts (token_dispatcher.py, cuda_sync_point). */
static bool waits_before_permutation(const settings *s, const moe_sizes *m)
{
  return !m->padded && (m->capacity > 0 || s->model.moe_router_padding_for_quantization);
}

static void host_waits_at_last_node(graph *g)
{
  g->nodes.items[g->nodes.count - 1].flags |= MOE_STEP_WAITS;
}

static bool exchanges(const moe_sizes *m)
{
  return m->ep > 1 || m->etp > 1;
}

/* mappings.py, _AllToAll: with one rank the input itself. */
static row_pair exchanged_over_ep(graph *g, const settings *s, const moe_sizes *m, row_pair p)
{
  if (m->ep == 1) return p;
  p.tokens =
      moe_exchange(g, "dispatched_tokens", p.tokens, COLLECTIVE_ALL_TO_ALL, GROUP_EP, m->received);
  if (!m->padded && !waits_before_permutation(s, m)) host_waits_at_last_node(g);
  p.probs =
      moe_exchange(g, "dispatched_probs", p.probs, COLLECTIVE_ALL_TO_ALL, GROUP_EP, m->received);
  return p;
}

static row_pair gathered_over_etp(graph *g, const moe_sizes *m, row_pair p)
{
  if (m->etp == 1) return p;
  p.tokens =
      moe_exchange(g, "gathered_tokens", p.tokens, COLLECTIVE_ALL_GATHER, GROUP_ETP, m->rows);
  p.probs = moe_exchange(g, "gathered_probs", p.probs, COLLECTIVE_ALL_GATHER, GROUP_ETP, m->rows);
  return p;
}

/* moe_utils.py, sort_chunks_by_idxs: chunks of ranks into chunks of experts. The fused kernel keeps
 * a row index; split and cat keep nothing. */
static row_pair sorted_by_expert(graph *g, const settings *s, const moe_sizes *m, const char *name,
                                 row_pair p)
{
  if (m->local_experts == 1) return p;
  bool fused = s->model.moe_permute_fusion && !m->padded;
  int64_t rows = g->tensors.items[p.tokens].shape[0];
  row_pair to = { graph_tensor_new(g, name, m->type, rows, m->hidden, 0, 0), 0 };
  graph_node *n = moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, p.tokens, p.probs, to.tokens);
  if (fused) {
    tensor_id index = moe_index(g, "chunk_map", DTYPE_INT32, rows, 0);
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

/* MoEAlltoAllTokenDispatcher: dispatch_preprocess, token_dispatch, dispatch_postprocess. */
static moe_dispatch alltoall_dispatch(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                      tensor_id x, moe_routing routing)
{
  moe_dispatch d = { 0 };
  permutation p = { m->tokens, m->experts, m->sent, m->hidden, m->padded };
  row_pair rows = permute(g, s, &p, (row_pair){ x, routing.probs }, routing.map, &d.restore);
  if (waits_before_permutation(s, m)) host_waits_at_last_node(g);
  moe_hold(f, rows.tokens); /* moe_layer.py, custom_forward: hidden_states */
  part_leaves_graph(g);     /* the dispatcher keeps the router's probabilities */
  moe_begin_dispatch(g, s, f, rows.tokens, rows.probs);
  rows = exchanged_over_ep(g, s, m, rows);
  moe_hold(f, rows.tokens); /* dispatched_input */
  moe_hold(f, rows.probs);
  moe_begin_experts(g, s, f, rows.tokens, rows.probs);
  rows = sorted_by_expert(g, s, m, "sorted_tokens", gathered_over_etp(g, m, rows));
  if (!exchanges(m) && !m->padded && !waits_before_permutation(s, m)) host_waits_at_last_node(g);
  d.tokens = rows.tokens;
  d.probs = rows.probs;
  return d;
}

/* token_dispatcher.py, combine_preprocess: the sum over ETP runs in the type of the probabilities.
 */
static tensor_id scattered_over_etp(graph *g, const moe_sizes *m, comm_group group, int64_t rows,
                                    tensor_id y)
{
  tensor_id wide = moe_cast(g, "combined_cast", y, m->router);
  tensor_id part = moe_exchange(g, "combined_part", wide, COLLECTIVE_REDUCE_SCATTER, group, rows);
  return moe_cast(g, "combined_tokens", part, m->type);
}

static tensor_id alltoall_combine(graph *g, const settings *s, const moe_sizes *m,
                                  const moe_dispatch *d, tensor_id y)
{
  moe_frame frame = { 0 };
  moe_hold(&frame, y); /* routed_experts_compute: expert_output */
  y = sorted_by_expert(g, s, m, "unsorted_tokens", (row_pair){ y, 0 }).tokens;
  if (m->etp > 1) y = scattered_over_etp(g, m, GROUP_ETP, m->received, y);
  moe_release(g, &frame);
  moe_begin_combine(g, s, &frame, d, y);
  if (m->ep > 1) y = moe_exchange(g, "combined_rows", y, COLLECTIVE_ALL_TO_ALL, GROUP_EP, m->sent);
  return unpermute(g, s, "combined", y, d->restore, m->tokens, m->hidden);
}

/* ---- all-gather ------------------------------------------------------------------------------ */

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
    sorted_cells(g, &p, map, restore);
  }
  tensor_id rows = graph_tensor_new(g, "permuted_tokens", m->type, m->rows, m->hidden, 0, 0);
  graph_node *n = exchanges(m) ? graph_add(g, &operator_gather_permute)
                               : moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, x, *restore, rows);
  if (exchanges(m)) {
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
  if (exchanges(m)) {
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
  y = unpermute(g, s, "unpermuted", y, d->restore, gathered_tokens(m), m->hidden);
  moe_release(g, &frame);
  return exchanges(m) ? scattered_over_etp(g, m, GROUP_TP_EP, m->tokens, y) : y;
}

/* ---- flex: DeepEP and HybridEP --------------------------------------------------------------- */

/* The part of the ranks that a token reaches when its experts are drawn evenly from `pool` experts
 * of which each rank has `local`: one minus the chance that none of k draws hits the rank. */
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

/* Rows received by a rank when every token comes once, however many of its experts live there.
 * Group limited routing draws from the chosen groups only. */
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

/* DeepEP's dispatch and combine are kernels on its own stream that compute waits for. */
static tensor_id flex_exchange(graph *g, const char *name, tensor_id t, int64_t rows)
{
  return moe_exchange(g, name, t, COLLECTIVE_ALL_TO_ALL, GROUP_TP_EP, rows);
}

/* fused_a2a.py: what the handle keeps for the reverse exchange: the source of each received row,
 * and which ranks each token was sent to. */
static void keep_handle(graph *g, const moe_sizes *m, tensor_id t, int64_t received)
{
  tensor_id source = moe_index(g, "handle_source", DTYPE_INT32, received, 0);
  tensor_id sent = moe_index(g, "handle_sent", DTYPE_INT32, m->tokens, m->ep * m->etp);
  graph_node *n = moe_step(g, KERNEL_SORT, KERNEL_SORT, t, 0, source);
  n->flags = MOE_STEP_FORWARD_ONLY;
  node_output(n, sent);
  node_save(n, source);
  node_save(n, sent);
}

/* _DeepepManager.setup_metadata: the top k probabilities again, now as indexes; fp32. */
static tensor_id token_probs(graph *g, const moe_sizes *m, tensor_id probs, tensor_id *indices)
{
  int64_t k = m->topk * m->etp;
  tensor_id top = graph_tensor_new(g, "token_probs", m->router, m->tokens, k, 0, 0);
  *indices = moe_index(g, "token_indices", DTYPE_INT64, m->tokens, k);
  graph_node *n = moe_step(g, KERNEL_ROUTER_FORWARD, KERNEL_ELEMENTWISE, probs, 0, top);
  n->dims[MOE_STEP_D0] = m->tokens;
  n->dims[MOE_STEP_D1] = m->experts;
  n->dims[MOE_STEP_D2] = k;
  node_output(n, *indices);
  node_save(n, *indices);
  return moe_cast(g, "token_probs_fp32", top, DTYPE_FP32);
}

/* _indices_to_multihot: masks and probabilities of the local experts for each received row. */
static tensor_id multihot(graph *g, const moe_sizes *m, tensor_id probs, tensor_id indices,
                          int64_t received, tensor_id *map)
{
  tensor_id wide =
      graph_tensor_new(g, "received_multihot", DTYPE_FP32, received, m->local_experts, 0, 0);
  *map = moe_index(g, "received_map", DTYPE_BYTE, received, m->local_experts);
  graph_node *n = moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, probs, indices, wide);
  n->dims[MOE_STEP_FORWARD_BYTES] = received * m->local_experts * 8;
  node_output(n, *map);
  node_save(n, indices);
  return wide;
}

static moe_dispatch deepep_dispatch(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                    tensor_id x, moe_routing routing)
{
  moe_dispatch d = { .received = received_once(s, m) };
  int64_t k = m->topk * m->etp;
  tensor_id indices = 0;
  tensor_id probs = token_probs(g, m, routing.probs, &indices);
  moe_begin_dispatch(g, s, f, x, probs);
  tensor_id received = flex_exchange(g, "dispatched_tokens", x, d.received);
  host_waits_at_last_node(g);
  keep_handle(g, m, received, d.received);
  tensor_id received_probs = flex_exchange(g, "dispatched_probs", probs, d.received);
  tensor_id received_indices = moe_index(g, "dispatched_indices", DTYPE_INT64, d.received, k);
  moe_step(g, KERNEL_COPY, KERNEL_COPY, indices, 0, received_indices)->flags =
      MOE_STEP_FORWARD_ONLY;
  moe_hold(f, received);
  moe_hold(f, received_probs);
  moe_begin_experts(g, s, f, received, received_probs);
  tensor_id map = 0;
  tensor_id wide = multihot(g, m, received_probs, received_indices, d.received, &map);
  moe_hold(f, wide);
  moe_hold(f, map);
  permutation p = { d.received, m->local_experts, m->rows, m->hidden, false };
  row_pair rows = permute(g, s, &p, (row_pair){ received, wide }, map, &d.restore_received);
  d.tokens = rows.tokens;
  d.probs = moe_cast(g, "permuted_probs_cast", rows.probs,
                     m->router == DTYPE_FP64 ? DTYPE_FP64 : DTYPE_FP32);
  return d;
}

/* _HybridEPManager: exchange and permutation in one; its own buffers lie outside the allocator. */
static moe_dispatch hybridep_dispatch(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                      tensor_id x, moe_routing routing)
{
  moe_dispatch d = { .received = received_once(s, m) };
  tensor_id probs = moe_cast(g, "token_probs_fp32", routing.probs, DTYPE_FP32);
  moe_begin_dispatch(g, s, f, x, probs);
  d.tokens = flex_exchange(g, "dispatched_tokens", x, m->rows);
  if (!m->padded && !m->is_static) host_waits_at_last_node(g);
  keep_handle(g, m, d.tokens, d.received);
  tensor_id rows = graph_tensor_new(g, "dispatched_probs", DTYPE_FP32, m->rows, 0, 0, 0);
  moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, probs, 0, rows);
  moe_hold(f, d.tokens);
  moe_begin_experts(g, s, f, d.tokens, rows);
  d.probs = rows;
  return d;
}

static bool is_hybridep(const settings *s)
{
  return strcmp(s->model.moe_flex_dispatcher_backend, "deepep") != 0;
}

static tensor_id flex_combine(graph *g, const settings *s, const moe_sizes *m,
                              const moe_dispatch *d, tensor_id y)
{
  moe_frame frame = { 0 };
  moe_hold(&frame, y);
  if (!is_hybridep(s))
    y = unpermute(g, s, "restored_tokens", y, d->restore_received, d->received, m->hidden);
  moe_release(g, &frame);
  moe_begin_combine(g, s, &frame, d, y);
  return flex_exchange(g, "combined", y, m->tokens);
}

/* ---- choice ---------------------------------------------------------------------------------- */

typedef struct dispatcher {
  const char *name; /* moe_token_dispatcher_type */
  moe_dispatch (*dispatch)(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                           tensor_id x, moe_routing routing);
  tensor_id (*combine)(graph *g, const settings *s, const moe_sizes *m, const moe_dispatch *d,
                       tensor_id y);
} dispatcher;

static moe_dispatch flex_dispatch(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                  tensor_id x, moe_routing routing)
{
  return is_hybridep(s) ? hybridep_dispatch(g, s, m, f, x, routing)
                        : deepep_dispatch(g, s, m, f, x, routing);
}

static const dispatcher dispatchers[] = {
  { "allgather", allgather_dispatch, allgather_combine },
  { "alltoall", alltoall_dispatch, alltoall_combine },
  { "alltoall_seq", alltoall_dispatch, alltoall_combine },
  { "flex", flex_dispatch, flex_combine },
};

static const dispatcher *dispatcher_of(const settings *s)
{
  for (uint32_t i = 0; i < sizeof dispatchers / sizeof dispatchers[0]; i++)
    if (strcmp(dispatchers[i].name, s->model.moe_token_dispatcher_type) == 0)
      return &dispatchers[i];
  return &dispatchers[0];
}

moe_dispatch moe_dispatch_tokens(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                 tensor_id x, moe_routing routing)
{
  graph_site(g, site);
  tensor_id rows = graph_view(g, "tokens", x, true, m->tokens, m->hidden, 0, 0);
  return dispatcher_of(s)->dispatch(g, s, m, f, rows, routing);
}

tensor_id moe_combine_tokens(graph *g, const settings *s, const moe_sizes *m, const moe_dispatch *d,
                             tensor_id expert_output)
{
  graph_site(g, site);
  return dispatcher_of(s)->combine(g, s, m, d, expert_output);
}
