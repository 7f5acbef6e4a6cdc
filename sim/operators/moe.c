/*
 * Operators of mixture-of-experts layers: single kernels, the router's product, and losses that
 * are attached to a tensor. exchange.c moves rows between ranks, experts.c has the local experts.
 *
 * Megatron-LM core/transformer/moe (d98e8a64): moe_utils.py; Transformer Engine (d0067d0d):
 * pytorch/permutation.py.
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
  shape.bytes =
      n->dims[which == MOE_STEP_FORWARD ? MOE_STEP_FORWARD_MOVED : MOE_STEP_BACKWARD_MOVED];
  return shape;
}

/* The gradient of an input or of a parameter, 0 when it wants none. */
static ref input_gradient(emitter *e, const graph *g, tensor_id t)
{
  return g->tensors.items[t].parameter ? emit_parameter_grad(e, t, false) : emit_grad_for(e, t);
}

static void step_forward(emitter *e, const graph *g, const graph_node *n)
{
  if (n->flags & MOE_STEP_WAITS) emit_host_read(e);
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
  ref copy = emit_matrix(e, name, to, d0, d1);
  emit_copy(e, to, d0 * d1, r, copy);
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
  ref wide = converts ? emit_matrix(e, "input_gradient", router, tokens, width) : 0;
  ref gx = converts ? 0 : emit_grad_for(e, n->inputs[0]);
  emit_gemm(e, router, tokens, width, experts, 1, GEMM_NN, (ref[]){ gy, weight, 0 },
            converts ? wide : gx);
  if (converts) emit_drop(e, weight);
  ref x = in_router_type(e, type, router, "input_copy", emit_saved(e, 0), tokens, width);
  ref gw = emit_parameter_grad(e, n->inputs[1], false);
  ref wide_gw = converts ? emit_matrix(e, "weight_gradient", router, experts, width) : gw;
  emit_gemm(e, router, experts, width, tokens, 1, GEMM_TN, (ref[]){ gy, x, 0 }, wide_gw);
  if (converts) {
    emit_drop(e, x);
    gx = emit_grad_for(e, n->inputs[0]);
    emit_copy(e, type, tokens * width, wide, gx);
    emit_drop(e, wide);
    emit_copy(e, type, experts * width, wide_gw, gw);
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
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_REDUCE, (comm_group)n->dims[COUNT_GROUP],
                  tensor_bytes(g, n->outputs[0]), (ref[]){ counts, 0 }, (ref[]){ counts, 0 });
}

const operator_kind operator_count_choices = { "count_choices", count_choices_forward,
                                               emit_nothing };

/* ---- a loss that is attached to a tensor ----------------------------------------------------- */

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

const operator_kind operator_attach_loss = { "attach_loss", emit_nothing, attach_loss_backward };

/* ---- attributes ------------------------------------------------------------------------------ */

static void attribute_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->inputs[0] != 0 && (uint32_t)n->dims[ATTRIBUTE_NUMBER] < g->attributes);
  emit_attribute(e, emit_input(e, n->inputs[0]), (uint32_t)n->dims[ATTRIBUTE_NUMBER]);
}

const operator_kind operator_attribute = { "attribute", attribute_forward, emit_nothing };
