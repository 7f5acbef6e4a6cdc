/*
 * Matrix products. A product packs an operand only for the gradient of the other operand, the
 * second one first. Backward computes the second operand's gradient first (derivatives.yaml: mm,
 * addmm, bmm).
 */
#include <assert.h>

#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

enum { ROWS, INPUTS, OUTPUTS };

static void linear_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == n->dims[ROWS] * n->dims[INPUTS]);
  assert(tensor_elements(g, n->inputs[1]) == n->dims[OUTPUTS] * n->dims[INPUTS]);
  assert(tensor_elements(g, n->outputs[0]) == n->dims[ROWS] * n->dims[OUTPUTS]);
  ref x = emit_input(e, n->inputs[0]);
  ref weight = emit_input(e, n->inputs[1]);
  ref bias = n->inputs[2] != 0 ? emit_parameter(e, n->inputs[2]) : 0;
  emit_gemm(e, type_of(g, n->outputs[0]), n->dims[ROWS], n->dims[OUTPUTS], n->dims[INPUTS], 1,
            GEMM_NN, (ref[]){ x, weight, bias, 0 }, emit_output(e, n->outputs[0]));
}

/* addmm's bias is its argument `self`, whose gradient comes last. */
static void linear_backward(emitter *e, const graph *g, const graph_node *n)
{
  const int64_t *d = n->dims;
  dtype type = type_of(g, n->outputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gw = emit_parameter_grad(e, tensor_storage(g, n->inputs[1]), false);
  if (gw != 0)
    emit_gemm(e, type, d[OUTPUTS], d[INPUTS], d[ROWS], 1, GEMM_TN,
              (ref[]){ gy, hf_saved(e, n, n->inputs[0]), 0 }, gw);
  ref gx = emit_grad_for(e, n->inputs[0]);
  if (gx != 0)
    emit_gemm(e, type, d[ROWS], d[INPUTS], d[OUTPUTS], 1, GEMM_NT,
              (ref[]){ gy, hf_saved(e, n, n->inputs[1]), 0 }, gx);
  ref gb = n->inputs[2] != 0 ? emit_parameter_grad(e, n->inputs[2], false) : 0;
  if (gb != 0) hf_sum_rows(e, type, d[ROWS], d[OUTPUTS], gy, gb);
}

const operator_kind operator_hf_linear = { "linear", linear_forward, linear_backward };

enum { BATCH, M, N, K };

static void matmul_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == n->dims[BATCH] * n->dims[M] * n->dims[K]);
  assert(tensor_elements(g, n->inputs[1]) == n->dims[BATCH] * n->dims[N] * n->dims[K]);
  assert(tensor_elements(g, n->outputs[0]) == n->dims[BATCH] * n->dims[M] * n->dims[N]);
  emit_gemm(e, type_of(g, n->outputs[0]), n->dims[M], n->dims[N], n->dims[K], n->dims[BATCH],
            GEMM_NN, (ref[]){ emit_input(e, n->inputs[0]), emit_input(e, n->inputs[1]), 0 },
            emit_output(e, n->outputs[0]));
}

static void gradients(emitter *e, const graph *g, const graph_node *n, ref gy, ref gb)
{
  const int64_t *d = n->dims;
  dtype type = type_of(g, n->outputs[0]);
  if (gb != 0)
    emit_gemm(e, type, d[K], d[N], d[M], d[BATCH], GEMM_TN,
              (ref[]){ hf_saved(e, n, n->inputs[0]), gy, 0 }, gb);
  ref ga = emit_grad_for(e, n->inputs[0]);
  if (ga != 0)
    emit_gemm(e, type, d[M], d[K], d[N], d[BATCH], GEMM_NT,
              (ref[]){ gy, hf_saved(e, n, n->inputs[1]), 0 }, ga);
}

static void matmul_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  gradients(e, g, n, gy, emit_grad_for(e, n->inputs[1]));
}

const operator_kind operator_hf_matmul = { "matmul", matmul_forward, matmul_backward };

/* The second operand is a parameter, a matrix for each expert. */
static void batched_linear_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  gradients(e, g, n, gy, emit_parameter_grad(e, tensor_storage(g, n->inputs[1]), false));
}

const operator_kind operator_hf_batched_linear = { "batched_linear", matmul_forward,
                                                   batched_linear_backward };
