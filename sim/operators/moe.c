/*
 * Forward and backward of the operators of mixture-of-experts layers; experts.c has the
 * local experts'.
 *
 * Megatron-LM core/transformer/moe (d98e8a64): moe_utils.py, experts.py, token_dispatcher.py;
 * Transformer Engine (d0067d0d): pytorch/module/grouped_linear.py, pytorch/permutation.py.
 */
#include "sim/operators/moe.h"

#include <assert.h>
#include <string.h>

#include "sim/graph/operand_list.h"
#include "sim/operators/shared.h"
#include "sim/plan/words.h"

/* ---- step ------------------------------------------------------------------------------------ */

static bool counts_elements(const shape_letters *letters)
{
  return strncmp(letters->text[0], "elements", letters->length[0]) == 0;
}

/* Forward and backward may be kernels of different shape letters. */
static kernel_shape step_kernel(const graph *g, const graph_node *n, enum step_dims which)
{
  kernel_kind kind = (kernel_kind)n->dims[which];
  assert(kind < KERNEL_KINDS && n->outputs[0] != 0);
  kernel_shape shape = { .kind = kind, .type = type_of(g, n->outputs[0]) };
  shape_letters letters = kernel_letters(kind);
  for (uint32_t i = 0; i < letters.dims && i <= MOE_STEP_D3 - MOE_STEP_D0; i++)
    shape.dims[i] = n->dims[MOE_STEP_D0 + i];
  if (counts_elements(&letters)) shape.dims[0] = tensor_elements(g, n->outputs[0]);
  for (uint32_t i = 0; i < letters.count - letters.dims; i++)
    shape.scalars[i] = n->scalars[i];
  shape.uncounted = n->dims[MOE_STEP_ROWS] != 0;
  return shape;
}

/* The gradient of an input or of a parameter, 0 when it wants none. */
static ref input_gradient(emitter *e, const graph *g, tensor_id t)
{
  return g->tensors.items[t].parameter ? emit_parameter_grad(e, t, false) : emit_grad_for(e, t);
}

static void step_forward(emitter *e, const graph *g, const graph_node *n)
{
  if (n->flags & MOE_STEP_WAITS) emit_host_sync(e);
  operand_list reads = operands_of_inputs(e, n);
  if (n->dims[MOE_STEP_ROWS] != 0)
    operands_append(&reads, emit_input(e, (tensor_id)n->dims[MOE_STEP_ROWS]));
  operand_list writes = { 0 };
  operands_append(&writes, emit_scratch(e, "scratch", n->dims[MOE_STEP_FORWARD_BYTES]));
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    operands_append(&writes, emit_output(e, n->outputs[i]));
  emit_kernel(e, step_kernel(g, n, MOE_STEP_FORWARD), reads.items, writes.items);
}

static void step_backward(emitter *e, const graph *g, const graph_node *n)
{
  if (n->flags & MOE_STEP_FORWARD_ONLY) return;
  operand_list reads = { 0 };
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    operands_append(&reads, emit_grad_of(e, n->outputs[i]));
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++)
    operands_append(&reads, emit_saved(e, i));
  if (n->dims[MOE_STEP_ROWS] != 0)
    operands_append(&reads, emit_kept(e, (tensor_id)n->dims[MOE_STEP_ROWS]));
  operand_list writes = { 0 };
  operands_append(&writes, emit_scratch(e, "scratch", n->dims[MOE_STEP_BACKWARD_BYTES]));
  for (uint32_t i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++)
    operands_append(&writes, input_gradient(e, g, n->inputs[i]));
  emit_kernel(e, step_kernel(g, n, MOE_STEP_BACKWARD), reads.items, writes.items);
}

const operator_kind operator_step = { "moe_step", step_forward, step_backward };

/* ---- exchange -------------------------------------------------------------------------------- */

/* Rows that arrived by a table. */
static ref by_table(emitter *e, const graph *g, const graph_node *n, tensor_id t, ref r)
{
  const graph_tensor *of = &g->tensors.items[t];
  int64_t rows = of->view.rank > 0 ? of->view.shape[0] : of->shape[0];
  int64_t width = tensor_elements(g, t) / of->shape[0];
  bool once = n->dims[EXCHANGE_ROWS] == ROWS_BY_TOKEN;
  int64_t shape[] = { once ? rows : 1, once ? 1 : rows, 1, width };
  return emit_strided(e, r, (dtype)of->dtype, 0, 4, shape, NULL);
}

/* The rows that an index has brought to a rank's experts: each expert has an equal part from each
 * rank. */
static ref in_slots(emitter *e, const graph *g, const graph_node *n, bool at_experts, tensor_id t,
                    ref r)
{
  const graph_tensor *of = &g->tensors.items[t];
  if (n->dims[EXCHANGE_RESTORE] == 0 || !at_experts) return r;
  if (n->dims[EXCHANGE_ROWS] != ROWS_IN_SLOTS) return by_table(e, g, n, t, r);
  int64_t parts = n->dims[EXCHANGE_RANKS] * n->dims[EXCHANGE_EXPERTS];
  if (of->shape[0] % parts != 0) return r;
  int64_t shape[] = { n->dims[EXCHANGE_RANKS], n->dims[EXCHANGE_EXPERTS], of->shape[0] / parts,
                      tensor_elements(g, t) / of->shape[0] };
  return emit_strided(e, r, (dtype)of->dtype, 0, 4, shape, NULL);
}

/* The index or table that routes the rows; a table is viewed with one more dimension. */
static ref seen_index(emitter *e, const graph *g, const graph_node *n, ref r)
{
  if (r == 0 || n->dims[EXCHANGE_ROWS] == ROWS_IN_SLOTS) return r;
  const graph_tensor *table = &g->tensors.items[n->dims[EXCHANGE_RESTORE]];
  int64_t shape[] = { table->shape[0], table->shape[1], 1 };
  return emit_strided(e, r, DTYPE_INT32, 0, 3, shape, NULL);
}

static void exchange_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[EXCHANGE_FORWARD] < COLLECTIVE_KINDS && n->dims[EXCHANGE_GROUP] < COMM_GROUPS);
  if (n->flags & MOE_STEP_WAITS) emit_host_sync(e);
  ref x = emit_input(e, n->inputs[0]);
  tensor_id restore = (tensor_id)n->dims[EXCHANGE_RESTORE];
  ref index = seen_index(e, g, n, restore != 0 ? emit_input(e, restore) : 0);
  bool back = n->dims[EXCHANGE_BACK];
  emit_collective(
      e, STREAM_COMPUTE, (collective_kind)n->dims[EXCHANGE_FORWARD],
      (comm_group)n->dims[EXCHANGE_GROUP], tensor_bytes(g, n->inputs[0]),
      (ref[]){ in_slots(e, g, n, back, n->inputs[0], x), index, 0 },
      (ref[]){ in_slots(e, g, n, !back, n->outputs[0], emit_output(e, n->outputs[0])), 0 });
}

static void exchange_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  if (gx == 0) return;
  if (n->dims[EXCHANGE_BACKWARD] == COLLECTIVE_KINDS) {
    emit_kernel(e,
                (kernel_shape){ .kind = KERNEL_OWN_PART,
                                .type = type_of(g, n->inputs[0]),
                                .dims = { tensor_elements(g, n->inputs[0]) },
                                .scalars = { (double)n->dims[EXCHANGE_GROUP] } },
                (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
    return;
  }
  tensor_id restore = (tensor_id)n->dims[EXCHANGE_RESTORE];
  ref index = seen_index(e, g, n, restore != 0 ? emit_kept(e, restore) : 0);
  bool back = n->dims[EXCHANGE_BACK];
  emit_collective(e, STREAM_COMPUTE, (collective_kind)n->dims[EXCHANGE_BACKWARD],
                  (comm_group)n->dims[EXCHANGE_GROUP], tensor_bytes(g, n->outputs[0]),
                  (ref[]){ in_slots(e, g, n, !back, n->outputs[0], gy), index, 0 },
                  (ref[]){ in_slots(e, g, n, back, n->inputs[0], gx), 0 });
}

const operator_kind operator_exchange = { "exchange", exchange_forward, exchange_backward };

/* ---- exchange table -------------------------------------------------------------------------- */

static void exchange_table_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref map = emit_input(e, n->inputs[0]);
  ref source = emit_output(e, n->outputs[0]), sent = emit_output(e, n->outputs[1]);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_TO_ALL, (comm_group)n->dims[TABLE_GROUP],
                  tensor_bytes(g, n->inputs[0]), (ref[]){ map, 0 }, (ref[]){ source, sent, 0 });
}

static void no_backward(emitter *e, const graph *g, const graph_node *n)
{
  (void)e, (void)g, (void)n;
}

const operator_kind operator_exchange_table = { "exchange_table", exchange_table_forward,
                                                no_backward };

/* ---- gathered permutation -------------------------------------------------------------------- */

/* mappings.py: the gather with use_global_buffer writes to the buffer "mpu" (token_dispatcher.py,
 * 281). */
static void gather_permute_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[GATHER_ALL_TOKENS] % n->dims[GATHER_TOKENS] == 0);
  dtype type = type_of(g, n->outputs[0]);
  ref x = emit_input(e, n->inputs[0]);
  ref whole = emit_shared_buffer(e, "global_memory_buffer", type, n->dims[GATHER_ALL_TOKENS],
                                 n->dims[GATHER_WIDTH], 0);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_TP_EP,
                  tensor_bytes(g, n->inputs[0]), (ref[]){ x, 0 }, (ref[]){ whole, 0 });
  if (n->flags & MOE_STEP_WAITS) emit_host_sync(e);
  emit_row_kernel(e, KERNEL_PERMUTE, type, g->tensors.items[n->outputs[0]].shape[0],
                  n->dims[GATHER_WIDTH], (ref[]){ whole, emit_input(e, n->inputs[1]), 0 },
                  (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void gather_permute_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t all = n->dims[GATHER_ALL_TOKENS];
  int64_t width = n->dims[GATHER_WIDTH];
  ref whole = emit_temporary(e, "gathered_gradient", type, all, width, 0, 0, CLASS_TRANSIENT);
  emit_row_kernel(e, KERNEL_UNPERMUTE, type, g->tensors.items[n->outputs[0]].shape[0], width,
                  (ref[]){ emit_grad_of(e, n->outputs[0]), emit_saved(e, 0), 0 },
                  (ref[]){ whole, 0 });
  emit_drop(e, emit_grad_of(e, n->outputs[0]));
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_REDUCE_SCATTER, GROUP_TP_EP,
                  all * width * dtype_bytes(type), (ref[]){ whole, 0 },
                  (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

const operator_kind operator_gather_permute = { "gather_permute", gather_permute_forward,
                                                gather_permute_backward };

/* ---- router gating --------------------------------------------------------------------------- */

/* moe_utils.py, RouterGatingLinearFunction: the product is written in the router's type
 * directly. */
static void gating_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == n->dims[GATING_TOKENS] * n->dims[GATING_WIDTH]);
  assert(tensor_elements(g, n->inputs[1]) == n->dims[GATING_EXPERTS] * n->dims[GATING_WIDTH]);
  operand_list reads = operands_of_inputs(e, n);
  emit_gemm(e, type_of(g, n->outputs[0]), n->dims[GATING_TOKENS], n->dims[GATING_EXPERTS],
            n->dims[GATING_WIDTH], 1, GEMM_NT, reads.items, emit_output(e, n->outputs[0]));
}

/* A copy of `from` in the router's type, if the types differ. */
static ref in_router_type(emitter *e, dtype from, dtype to, const char *name, ref r, int64_t d0,
                          int64_t d1)
{
  if (from == to) return r;
  ref copy = emit_temporary(e, name, to, d0, d1, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_COPY, to, d0 * d1, (ref[]){ r, 0 }, (ref[]){ copy, 0 });
  return copy;
}

/* moe_utils.py, RouterGatingLinearFunction.backward: weight and input are converted to the
 * router's type; both gradients have that type and are converted back at the end. */
static void gating_backward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t tokens = n->dims[GATING_TOKENS], width = n->dims[GATING_WIDTH],
          experts = n->dims[GATING_EXPERTS];
  dtype type = type_of(g, n->inputs[0]), router = type_of(g, n->outputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref weight = in_router_type(e, type, router, "weight_copy", emit_saved(e, 1), experts, width);
  bool converts = type != router;
  ref wide = converts
                 ? emit_temporary(e, "input_gradient", router, tokens, width, 0, 0, CLASS_TRANSIENT)
                 : 0;
  ref gx = converts ? 0 : emit_grad_for(e, n->inputs[0]);
  emit_gemm(e, router, tokens, width, experts, 1, GEMM_NN, (ref[]){ gy, weight, 0 },
            converts ? wide : gx);
  if (converts) emit_drop(e, weight);
  ref x = in_router_type(e, type, router, "input_copy", emit_saved(e, 0), tokens, width);
  ref gw = emit_parameter_grad(e, n->inputs[1], false);
  ref wide_gw =
      converts ? emit_temporary(e, "weight_gradient", router, experts, width, 0, 0, CLASS_TRANSIENT)
               : gw;
  emit_gemm(e, router, experts, width, tokens, 1, GEMM_TN, (ref[]){ gy, x, 0 }, wide_gw);
  if (converts) {
    emit_drop(e, x);
    gx = emit_grad_for(e, n->inputs[0]);
    emit_memory_kernel(e, KERNEL_COPY, type, tokens * width, (ref[]){ wide, 0 }, (ref[]){ gx, 0 });
    emit_drop(e, wide);
    emit_memory_kernel(e, KERNEL_COPY, type, experts * width, (ref[]){ wide_gw, 0 },
                       (ref[]){ gw, 0 });
  }
  if (n->inputs[2] != 0)
    emit_row_kernel(e, KERNEL_BIAS_GRAD, router, tokens, experts, (ref[]){ gy, 0 },
                    (ref[]){ emit_parameter_grad(e, n->inputs[2], false), 0 });
}

const operator_kind operator_gating = { "router_gating", gating_forward, gating_backward };

/* ---- choices of the ranks that share a sequence ---------------------------------------------- */

/* moe_utils.py, get_tokens_per_expert_and_token_count. */
static void count_choices_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[COUNT_TOPK] <= n->dims[COUNT_EXPERTS]);
  assert(n->dims[COUNT_TOKENS] % n->dims[COUNT_SEQUENCES] == 0);
  kernel_shape count = {
    .kind = KERNEL_ROUTER_AUX_COUNT,
    .type = type_of(g, n->inputs[0]),
    .dims = { n->dims[COUNT_TOKENS], n->dims[COUNT_EXPERTS], n->dims[COUNT_TOPK] },
    .scalars = { (double)n->dims[COUNT_SEQUENCES] },
  };
  ref scores = emit_input(e, n->inputs[0]);
  ref counts = emit_output(e, n->outputs[0]);
  emit_kernel(e, count, (ref[]){ scores, 0 }, (ref[]){ counts, 0 });
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_REDUCE, GROUP_TP_CP,
                  tensor_bytes(g, n->outputs[0]), (ref[]){ counts, 0 }, (ref[]){ counts, 0 });
}

const operator_kind operator_count_choices = { "count_choices", count_choices_forward,
                                               no_backward };

/* ---- a loss that hangs on a tensor ----------------------------------------------------------- */

static void attach_loss_forward(emitter *e, const graph *g, const graph_node *n)
{
  (void)e, (void)g, (void)n;
}

/* One gradient for every summand of the loss. */
static void start_gradient(emitter *e, const graph *g, const graph_node *n, ref gl)
{
  kernel_shape fill = { .kind = KERNEL_FILL,
                        .type = type_of(g, n->inputs[1]),
                        .dims = { tensor_elements(g, n->inputs[1]) },
                        .scalars = { n->scalars[0] } };
  emit_kernel(e, fill, (ref[]){ 0 }, (ref[]){ gl, 0 });
}

/* The loss is a sum over experts: how often the expert is chosen times the sum of its scores. */
static void start_balancing_gradient(emitter *e, const graph *g, const graph_node *n, ref gl)
{
  kernel_shape balance = {
    .kind = KERNEL_ROUTER_AUX_GRADIENT,
    .type = type_of(g, n->inputs[1]),
    .dims = { n->dims[ATTACH_TOKENS], n->dims[ATTACH_EXPERTS], n->dims[ATTACH_TOPK] },
    .scalars = { n->scalars[0], n->scalars[1] },
    .uncounted = n->saved[0] != 0 ? 2 : 1,
  };
  ref scores = emit_kept(e, (tensor_id)n->dims[ATTACH_SCORES]);
  emit_kernel(e, balance, (ref[]){ scores, n->saved[0] != 0 ? emit_saved(e, 0) : 0, 0 },
              (ref[]){ gl, 0 });
}

/* moe_utils.py, MoEAuxLossAutoScaler and multi_token_prediction.py, MTPLossAutoScaler: the
 * gradient passes through, and the gradient of the loss does not depend on it. */
static void attach_loss_backward(emitter *e, const graph *g, const graph_node *n)
{
  emit_grad_is(e, n->inputs[0], emit_grad_of(e, n->outputs[0]));
  ref gl = emit_grad_for(e, n->inputs[1]);
  if (gl == 0) return;
  if (n->dims[ATTACH_SCORES] != 0)
    start_balancing_gradient(e, g, n, gl);
  else
    start_gradient(e, g, n, gl);
}

const operator_kind operator_attach_loss = { "attach_loss", attach_loss_forward,
                                             attach_loss_backward };
