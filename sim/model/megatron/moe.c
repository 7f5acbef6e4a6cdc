/*
 * MoELayer: shared experts, router, dispatch, experts, combine.
 *
 * Megatron-LM (d98e8a64) core/transformer/moe/moe_layer.py, MoELayer.forward, and
 * shared_experts.py.
 */
#include "sim/model/megatron/moe.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/config/expert_rows.h"
#include "sim/graph/node.h"
#include "sim/graph/parts.h"
#include "sim/operators/moe.h"
#include "sim/operators/operators.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

/* moe_utils.py, get_capacity: ceil(tokens / experts x factor), computed as Python does. */
static int64_t capacity(const settings *s, int64_t tokens)
{
  if (s->model.moe_expert_capacity_factor < 0) return 0;
  double exact = (double)(tokens * s->model.moe_router_topk) / (double)s->model.num_experts *
                 s->model.moe_expert_capacity_factor;
  int64_t whole = (int64_t)exact;
  return (double)whole < exact ? whole + 1 : whole;
}

static dtype router_type(const settings *s)
{
  switch (s->model.moe_router_dtype) {
  case ROUTER_DTYPE_FP32: return DTYPE_FP32;
  case ROUTER_DTYPE_FP64: return DTYPE_FP64;
  case ROUTER_DTYPE_EMPTY: break;
  }
  return model_dtype(s);
}

/* Rows after each step. Padding to capacity makes them independent of the routing; a capacity
 * without padding only drops what exceeds it. */
static void set_rows(const settings *s, moe_sizes *m)
{
  m->sent = m->tokens * m->topk;
  if (m->capacity > 0)
    m->sent = m->padded ? m->capacity * m->experts : min_i64(m->sent, m->capacity * m->experts);
  m->received = m->padded ? m->sent : scaled_rows(m->sent, s->model.moe_imbalance);
  if (m->capacity > 0) m->received = min_i64(m->received, m->capacity * m->local_experts * m->ep);
  m->rows = m->computed = m->received * m->etp;
}

/* Buffers for the capacity of the whole rank. */
static void set_static_rows(const settings *s, moe_sizes *m)
{
  static_rows rows = static_expert_rows(s);

  m->is_static = rows.capacity > 0;
  if (!m->is_static) return;
  m->rows = rows.capacity;
  m->computed = rows.arriving;
}

/* If the rows of an expert go to other ranks or to separate buffers, their number is that of a
 * balanced load. */
static void set_slots(const settings *s, moe_sizes *m)
{
  bool buffers_apart = !s->model.moe_grouped_gemm && m->local_experts > 1;
  bool sees_all = s->model.moe_token_dispatcher_type == DISPATCHER_ALLGATHER;
  bool only_gathers = m->ep == 1 && m->etp > 1 && !sees_all;
  m->slotted = m->padded || buffers_apart || only_gathers;
}

moe_sizes moe_sizes_of(const settings *s)
{
  moe_sizes m = { .hidden = s->model.hidden_size,
                  .experts = s->model.num_experts,
                  .topk = s->model.moe_router_topk,
                  .ep = s->parallel.expert_model_parallel_size,
                  .etp = s->parallel.expert_tensor_parallel_size,
                  .padded = s->model.moe_pad_expert_input_to_capacity,
                  .type = model_dtype(s),
                  .router = router_type(s) };
  m.tokens = size_residual_sequence(s) * s->training.micro_batch_size;
  assert(m.experts % m.ep == 0 && s->model.moe_ffn_hidden_size % m.etp == 0);
  m.local_experts = m.experts / m.ep;
  m.capacity = capacity(s, m.tokens);
  m.ffn = s->model.moe_ffn_hidden_size / m.etp;
  m.fc1_outputs = is_gated(s) ? 2 * m.ffn : m.ffn;
  set_rows(s, &m);
  set_static_rows(s, &m);
  set_slots(s, &m);
  assert(m.sent > 0 && m.computed > 0 && m.computed <= m.rows);
  return m;
}

/* ---- shared experts -------------------------------------------------------------------------- */

/* shared_experts.py, forward: output x sigmoid(input x gate). The product keeps both factors. */
static tensor_id gated_output(graph *g, const settings *s, tensor_id x, tensor_id y)
{
  if (!s->model.moe_shared_expert_gate) return y;
  graph_site(g, "mlp.shared_experts.gate");
  linear_spec gate = { .module = "mlp.shared_experts.gate",
                       .split = LINEAR_WHOLE,
                       .inputs = s->model.hidden_size,
                       .outputs = 1,
                       .explicit_comm = true };
  tensor_id logits = linear(g, s, &gate, x).output;
  tensor_id score = graph_tensor_like(g, "gate_score", type_of(g, logits), logits);
  graph_node *sigmoid =
      moe_step(g, KERNEL_ROUTER_SCORE_FORWARD, KERNEL_ROUTER_SCORE_BACKWARD, logits, 0, score);
  sigmoid->scalars[0] = ROUTER_SIGMOID;
  node_save(sigmoid, score);
  tensor_id gated = graph_tensor_like(g, "gated_output", type_of(g, y), y);
  graph_node *n =
      moe_step(g, KERNEL_WEIGHT_ROWS_FORWARD, KERNEL_WEIGHT_ROWS_BACKWARD, y, score, gated);
  n->dims[MOE_STEP_D0] = tensor_elements(g, score);
  n->dims[MOE_STEP_D1] = s->model.hidden_size;
  node_save(n, y);
  node_save(n, score);
  return gated;
}

static tensor_id shared_mlp(graph *g, const settings *s, tensor_id x)
{
  mlp_spec spec = { .module = "mlp.shared_experts",
                    .ffn_hidden_size = s->model.moe_shared_expert_intermediate_size,
                    .keeps_original =
                        !recomputes(s, RECOMPUTE_SHARED_EXPERTS) }; /* the router keeps x */
  return gated_output(g, s, x, mlp(g, s, &spec, x).output);
}

/* moe_layer.py, shared_experts_compute: before the router. */
static tensor_id shared_experts(graph *g, const settings *s, tensor_id x)
{
  if (s->model.moe_shared_expert_intermediate_size == 0) return 0;
  if (!recomputes(s, RECOMPUTE_SHARED_EXPERTS)) return shared_mlp(g, s, x);
  region_id region = graph_region_begin(g, REGION_CHECKPOINT, (tensor_id[]){ x }, 1);
  tensor_id y = shared_mlp(g, s, x);
  graph_region_end(g, region, y);
  return y;
}

/* shared_experts.py, pre_forward_comm and post_forward_comm: communication apart from the linears,
 * whose saved input is then the whole sequence. */
static tensor_id overlapped_shared_experts(graph *g, const settings *s, tensor_id x)
{
  graph_site(g, "mlp.shared_experts");
  bool gathers = s->parallel.sequence_parallel && size_tp(s) > 1;
  tensor_id whole = gathers ? gathered_sequence(g, s, "gathered_input", x) : x;
  mlp_spec spec = { .module = "mlp.shared_experts",
                    .ffn_hidden_size = s->model.moe_shared_expert_intermediate_size,
                    .explicit_comm = true,
                    .keeps_original = true };
  tensor_id y = mlp(g, s, &spec, whole).output;
  graph_site(g, "mlp.shared_experts");
  if (gathers) y = sequence_part(g, s, "scattered_output", y, true);
  return gated_output(g, s, x, y);
}

/* ---- the layer ------------------------------------------------------------------------------- */

/* moe_layer.py, postprocess: a new tensor; the overlapped variant adds in place. */
static tensor_id sum_of(graph *g, const settings *s, tensor_id routed, tensor_id shared)
{
  if (shared == 0) return routed;
  graph_site(g, "mlp");
  graph_tensor of = g->tensors.items[routed];
  tensor_id y = graph_tensor_like(g, "output", type_of(g, routed), routed);
  if (s->model.moe_shared_expert_overlap) g->tensors.items[y].base = of.base;
  graph_node *n = graph_add_of(g, &operator_add, routed);
  node_input(n, shared);
  node_output(n, y);
  return y;
}

/* [tokens, hidden] rows as [sequence, micro-batch, hidden]. */
static tensor_id in_shape_of(graph *g, tensor_id rows, tensor_id x)
{
  graph_tensor of = g->tensors.items[x];
  return graph_view(g, "combined_view", rows, true, of.shape[0], of.shape[1], of.shape[2], 0);
}

/* custom_forward. Its locals live until it returns. */
static tensor_id routed_and_shared(graph *g, const settings *s, const moe_sizes *m, moe_place place,
                                   tensor_id x)
{
  moe_frame frame = { 0 };
  bool overlaps =
      s->model.moe_shared_expert_overlap && s->model.moe_shared_expert_intermediate_size > 0;
  tensor_id shared = overlaps ? 0 : shared_experts(g, s, x);
  part_detached(g, shared);
  moe_routing routing = moe_route(g, s, m, x);
  moe_dispatch d = moe_dispatch_tokens(g, s, m, &frame, x, routing);
  if (overlaps) shared = overlapped_shared_experts(g, s, x);
  d.norm = place.discarded_norm;
  tensor_id y = moe_experts(g, s, m, place.layer, &d);
  graph_site(g, "mlp.token_dispatcher");
  graph_keep(g, d.tokens);
  y = in_shape_of(g, moe_combine_tokens(g, s, m, &d, y), x);
  y = sum_of(g, s, y, shared);
  moe_release(g, &frame);
  return y;
}

module_output moe_layer(graph *g, const settings *s, moe_place place, tensor_id x)
{
  moe_sizes m = moe_sizes_of(s);
  module_output out = { 0 };
  if (!recomputes(s, RECOMPUTE_MOE)) {
    out.output = routed_and_shared(g, s, &m, place, x);
    return out;
  }
  region_id region = graph_region_begin(g, REGION_CHECKPOINT, (tensor_id[]){ x }, 1);
  out.output = routed_and_shared(g, s, &m, place, x);
  graph_region_end(g, region, out.output);
  return out;
}
