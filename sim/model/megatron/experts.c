/*
 * The routed experts of this rank.
 *
 * Megatron-LM (d98e8a64) core/transformer/moe/experts.py: TEGroupedMLP; experts_sequential.c has
 * SequentialMLP.
 */
#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/config/expert_rows.h"
#include "sim/graph/fp8.h"
#include "sim/graph/node.h"
#include "sim/model/megatron/expert_activation.h"
#include "sim/model/megatron/moe.h"
#include "sim/operators/moe.h"

typedef struct grouped {
  const char *site;
  int64_t inputs, outputs;
  bool keeps_original; /* fp8: the bf16 input is saved and quantised again in backward */
} grouped;

/* fp8: sets dims, and the columnwise copy as a second output. Returns the tensor that is saved. */
static tensor_id quantize(const settings *s, const grouped *l, int64_t rows, tensor_id x,
                          graph_node *n, tensor_id copy)
{
  n->dims[GROUPED_GRADIENT_BYTES] = fp8_gradient_bytes(s, rows, l->outputs);
  n->dims[GROUPED_FORWARD_BYTES] = fp8_forward_bytes(s, rows, l->inputs);
  if (!l->keeps_original) {
    node_output(n, copy);
    return copy;
  }
  if (n->dims[GROUPED_FORWARD_BYTES] == 0)
    n->dims[GROUPED_FORWARD_BYTES] = fp8_rowwise_bytes(s, rows, l->inputs);
  n->dims[GROUPED_REQUANTIZE_BYTES] = fp8_saved_bytes(s, rows, l->inputs, false);
  return x;
}

/* TE GroupedLinear: one weight for each expert; their gradients are one tensor. */
static tensor_id grouped_linear(graph *g, const settings *s, const moe_sizes *m, const grouped *l,
                                tensor_id rows_of, bool fp8, bool bias, tensor_id x)
{
  graph_site(g, l->site);
  int64_t rows = g->tensors.items[x].shape[0];
  tensor_id weight =
      graph_parameter(g, "weight", m->type, m->local_experts * l->outputs, l->inputs);
  tensor_id bias_parameter =
      bias ? graph_parameter(g, "bias", m->type, m->local_experts, l->outputs) : 0;
  tensor_id y = graph_tensor_new(g, "output", m->type, rows, l->outputs, 0, 0);
  tensor_id copy = 0;
  if (fp8 && !l->keeps_original)
    copy = graph_constant(g, "input_fp8", DTYPE_FP8, fp8_saved_bytes(s, rows, l->inputs, false), 0);
  if (copy != 0 && m->is_static)
    graph_uses_rows(g, copy, fp8_saved_bytes(s, m->computed, l->inputs, false));
  graph_node *n = graph_add(g, &operator_grouped_linear);
  n->dims[GROUPED_ROWS] = computed_rows(m, rows);
  n->dims[GROUPED_INPUTS] = l->inputs;
  n->dims[GROUPED_OUTPUTS] = l->outputs;
  n->dims[GROUPED_EXPERTS] = m->local_experts;
  n->dims[GROUPED_COUNTS] = rows_of;
  node_input(n, x);
  node_input(n, weight);
  node_input(n, bias_parameter);
  node_output(n, y);
  node_save(n, fp8 ? quantize(s, l, rows, x, n, copy) : x);
  node_save(n, weight);
  return y;
}

/* Bytes of an element of _apply_bias: product (bias times probability), sum, joined parts,
 * conversion. */
static int64_t weighted_bias_moved(int64_t own, int64_t wide)
{
  assert(wide >= own);
  return wide + (own + 2 * wide) + 2 * wide + (wide == own ? 0 : wide + own);
}

/* Of its backward: the conversion's, that of x converted back, split's (parts are joined), and of
 * each factor a product and its sum. */
static int64_t weighted_bias_moved_back(int64_t own, int64_t wide)
{
  assert(wide >= own);
  return (wide == own ? 0 : 2 * (own + wide)) + 2 * own + 2 * 3 * wide;
}

/* experts.py, _apply_bias: a part for each expert; they are joined in the wider type. */
static tensor_id add_weighted_bias(graph *g, const moe_sizes *m, tensor_id rows_of, tensor_id x,
                                   tensor_id probs)
{
  int64_t rows = g->tensors.items[x].shape[0];
  tensor_id bias = graph_parameter(g, "bias", m->type, m->local_experts, m->hidden);
  tensor_id y = graph_tensor_new(g, "output_with_bias", m->type, rows, m->hidden, 0, 0);
  graph_node *n = moe_step(g, KERNEL_EXPERT_BIAS_FORWARD, KERNEL_EXPERT_BIAS_BACKWARD, x, probs, y);
  n->dims[MOE_STEP_D0] = rows;
  n->dims[MOE_STEP_D1] = m->hidden;
  n->dims[MOE_STEP_D2] = m->local_experts;
  moe_reads_rows(g, rows_of);
  int64_t wide = wider_bytes(m->type, m->router), own = dtype_bytes(m->type);
  int64_t parts = wide == own ? 1 : 2; /* the parts, and before its conversion the joined tensor */
  n->dims[MOE_STEP_FORWARD_BYTES] = parts * rows * m->hidden * wide;
  n->dims[MOE_STEP_BACKWARD_BYTES] =
      rows / m->local_experts * m->hidden * wide + (wide == own ? 0 : rows * m->hidden * wide);
  n->dims[MOE_STEP_FORWARD_MOVED] = rows * m->hidden * weighted_bias_moved(own, wide);
  n->dims[MOE_STEP_BACKWARD_MOVED] = rows * m->hidden * weighted_bias_moved_back(own, wide);
  node_input(n, bias);
  node_save(n, bias);
  node_save(n, probs);
  return y;
}

/* Rows padded so that each expert's count is aligned. */
static int64_t aligned_rows(const settings *s, const moe_sizes *m)
{
  int64_t of_one = ceil_div(m->rows, m->local_experts);
  return round_up(of_one, quantised_row_alignment(s)) * m->local_experts;
}

/* Fp8Padding and Fp8Unpadding copy unless the counts are already aligned; routed counts never
 * are. */
static tensor_id with_rows(graph *g, const char *name, int64_t parts, tensor_id x, int64_t rows)
{
  graph_tensor of = g->tensors.items[x];
  tensor_id y = graph_tensor_new(g, name, (dtype)of.dtype, rows, of.shape[1], 0, 0);
  moe_step(g, KERNEL_RESIZE_ROWS, KERNEL_RESIZE_ROWS, x, 0, y)->dims[MOE_STEP_D1] = parts;
  return y;
}

/* The rows that are padded together: those of one expert, or all where counts separate the
 * experts. */
static int64_t padded_parts(const moe_sizes *m, const moe_dispatch *d)
{
  return d->rows_of != 0 ? 1 : m->local_experts;
}

static bool pads_here(const settings *s, const moe_sizes *m, bool fp8)
{
  return fp8 && !m->padded && !m->is_static && !s->model.moe_router_padding_for_quantization;
}

/* Megatron's own marks; other systems see expert_fc1 and moe_act, which are always there. */
static bool megatron_marks(const settings *s, offload_modules_choice module)
{
  return s->offload.system == SYSTEM_megatron && marks_group(s, module);
}

/* experts.py: offloading expert_fc1 makes fc1 keep its bf16 input, but not with mxfp8. */
static bool keeps_fc1_input(const settings *s)
{
  return megatron_marks(s, OFFLOAD_EXPERT_FC1) && s->training.fp8_recipe != FP8_RECIPE_MXFP8;
}

static tensor_id activation_with_markers(graph *g, const expert_rows *r, tensor_id x,
                                         tensor_id probs, region_id *region, group_id *group)
{
  const settings *s = r->settings;
  bool marked = marks_group(s, OFFLOAD_MOE_ACT);
  graph_site(g, r->site);
  *group = marked ? graph_group_start(g, "moe_act") : 0;
  bool discards = recomputes(s, RECOMPUTE_MOE_ACT);
  *region = discards ? graph_region_begin(g, REGION_DISCARD, (tensor_id[]){ x, probs },
                                          probs == 0 ? 1 : 2)
                     : 0;
  tensor_id y = expert_activation(g, r, x, probs);
  if (discards) graph_region_end(g, *region, y);
  if (marked) graph_group_hooks_end(g, *group);
  return y;
}

static tensor_id fc1_with_markers(graph *g, const expert_rows *r, bool fp8, tensor_id x)
{
  const settings *s = r->settings;
  const moe_sizes *m = r->sizes;
  bool marked = marks_group(s, OFFLOAD_EXPERT_FC1);
  grouped fc1 = { "mlp.experts.linear_fc1", m->hidden, m->fc1_outputs, keeps_fc1_input(s) };
  graph_site(g, fc1.site);
  group_id group = marked ? graph_group_start(g, "expert_fc1") : 0;
  tensor_id y = grouped_linear(g, s, m, &fc1, r->rows_of, fp8, s->model.add_bias_linear, x);
  if (marked) {
    graph_group_hooks_end(g, group);
    graph_group_release(g, group, x);
    graph_group_commit(g, group);
  }
  return y;
}

/* The rows that experts.py pads before the products and removes after them. */
static moe_dispatch padded_rows(graph *g, const settings *s, const moe_sizes *m, bool pads,
                                const moe_dispatch *d)
{
  moe_dispatch to = *d;
  if (!pads) return to;
  int64_t rows = aligned_rows(s, m);
  to.tokens = with_rows(g, "padded_tokens", padded_parts(m, d), d->tokens, rows);
  if (d->probs != 0) to.probs = with_rows(g, "padded_probs", padded_parts(m, d), d->probs, rows);
  return to;
}

/* fc1, activation, fc2 with their markers; `frame` gets the locals of TEGroupedMLP.forward. */
static tensor_id grouped_products(graph *g, const expert_rows *r, moe_frame *frame, bool fp8,
                                  tensor_id x, tensor_id probs)
{
  const settings *s = r->settings;
  tensor_id fc1_output = fc1_with_markers(g, r, fp8, x);
  region_id region = 0;
  group_id group = 0;
  tensor_id activated = activation_with_markers(g, r, fc1_output, probs, &region, &group);
  grouped fc2 = { "mlp.experts.linear_fc2", r->sizes->ffn, r->sizes->hidden, fp8 && region != 0 };
  tensor_id y = grouped_linear(g, s, r->sizes, &fc2, r->rows_of, fp8, false, activated);
  /* The operator fuser itself recomputes it and does not save it (activation_recompute_in_mlp). */
  if (region != 0 && s->model.use_transformer_engine_op_fuser)
    g->tensors.items[activated].not_offloadable = true;
  moe_hold(frame, fc1_output);
  if (region != 0)
    graph_discard(g, region);
  else
    moe_hold(frame, activated);
  if (group != 0) {
    graph_group_release(g, group, fc1_output);
    graph_group_commit(g, group);
  }
  return y;
}

/* Transformer Engine marks its saved tensors for the paged stash only where its fused kernels run
 * (pytorch/ops/fused/grouped_mlp.py). */
static bool stashes(const settings *s, const moe_sizes *m, bool fp8)
{
  return stashes_experts(s) && m->is_static && fp8 && s->model.use_transformer_engine_op_fuser &&
         s->training.fp8_recipe == FP8_RECIPE_MXFP8;
}

/* The operator fuser's grouped MLP as one group. */
static tensor_id fused_group(graph *g, const expert_rows *r, moe_frame *frame, bool fp8,
                             tensor_id x, tensor_id probs)
{
  bool stashed = stashes(r->settings, r->sizes, fp8);
  if (!stashed && !megatron_marks(r->settings, OFFLOAD_FUSED_GROUP_MLP))
    return grouped_products(g, r, frame, fp8, x, probs);
  group_id group = graph_group_start(g, stashed ? "grouped_mlp" : "fused_group_mlp");
  tensor_id y = grouped_products(g, r, frame, fp8, x, probs);
  graph_group_hooks_end(g, group);
  if (!stashed) graph_group_release(g, group, x);
  graph_group_commit(g, group);
  return y;
}

/* TEGroupedMLP.forward. Its locals live until it returns. */
static tensor_id grouped_mlp(graph *g, const settings *s, const moe_sizes *m, int32_t layer,
                             const moe_dispatch *d)
{
  bool fp8 = layer_is_fp8(s, layer);
  bool pads = pads_here(s, m, fp8);
  moe_frame frame = { 0 };
  graph_site(g, "mlp.experts");
  moe_dispatch from = padded_rows(g, s, m, pads, d);
  expert_rows r = { s, m, g->tensors.items[from.tokens].shape[0], "mlp.experts.activation_func",
                    d->rows_of };
  tensor_id probs = from.probs;
  tensor_id x = moe_probs_on_input(g, &r, from.tokens, &probs);
  moe_hold(&frame, x);
  tensor_id y = fused_group(g, &r, &frame, fp8, x, probs);
  moe_hold(&frame, y);
  if (s->model.add_bias_linear) y = add_weighted_bias(g, m, d->rows_of, y, probs);
  if (pads) y = with_rows(g, "unpadded_output", padded_parts(m, d), y, m->rows);
  moe_release(g, &frame);
  return y;
}

/* OffloadingExpertsMLP (pull request #6494): one node, which keeps x, the first product and
 * probabilities. With recompute_modules moe_act it makes the first product again. */
static tensor_id host_experts(graph *g, const settings *s, const moe_sizes *m, int32_t layer,
                              const moe_dispatch *d)
{
  bool again = recomputes(s, RECOMPUTE_MOE_ACT);
  graph_site(g, "mlp.experts.linear_fc1");
  tensor_id first =
      graph_parameter(g, "weight", m->type, m->local_experts * m->fc1_outputs, m->hidden);
  tensor_id wide = again ? 0 : graph_constant(g, "output", m->type, m->rows, m->fc1_outputs);
  graph_site(g, "mlp.experts.linear_fc2");
  tensor_id second = graph_parameter(g, "weight", m->type, m->local_experts * m->hidden, m->ffn);
  graph_site(g, "mlp.experts");
  tensor_id y = graph_tensor_new(g, "output", m->type, m->rows, m->hidden, 0, 0);
  graph_node *n = graph_add(g, &operator_host_experts);
  const int64_t dims[NODE_DIMS] = { [HOST_EXPERTS_ROWS] = m->rows,
                                    [HOST_EXPERTS_HIDDEN] = m->hidden,
                                    [HOST_EXPERTS_WIDE] = m->fc1_outputs,
                                    [HOST_EXPERTS_NARROW] = m->ffn,
                                    [HOST_EXPERTS_COUNT] = m->local_experts,
                                    [HOST_EXPERTS_LAYER] = layer,
                                    [HOST_EXPERTS_CHUNKS] = s->offload.moe_offloading_num_chunks,
                                    [HOST_EXPERTS_BUFFERS] = s->offload.moe_offloading_num_stages,
                                    [HOST_EXPERTS_OWNERS] = d->rows_of };
  memcpy(n->dims, dims, sizeof dims);
  n->flags = again ? HOST_EXPERTS_RECOMPUTES : 0;
  node_input(n, d->tokens);
  node_input(n, d->probs);
  node_input(n, first);
  node_input(n, second);
  node_output(n, y);
  node_output(n, wide);
  node_save(n, d->tokens);
  node_save(n, wide);
  node_save(n, d->probs);
  return y;
}

static tensor_id experts_of(graph *g, const settings *s, const moe_sizes *m, int32_t layer,
                            const moe_dispatch *d)
{
  assert(m->local_experts > 0);
  if (keeps_experts_on_host(s)) return host_experts(g, s, m, layer, d);
  return s->model.moe_grouped_gemm ? grouped_mlp(g, s, m, layer, d)
                                   : moe_sequential_mlp(g, s, m, d);
}

tensor_id moe_experts(graph *g, const settings *s, const moe_sizes *m, int32_t layer,
                      const moe_dispatch *d)
{
  tensor_id first = g->tensors.count;
  tensor_id y = experts_of(g, s, m, layer, d);
  moe_uses_computed_rows(g, m, first);
  return y;
}
