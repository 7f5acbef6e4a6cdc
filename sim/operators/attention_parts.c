/*
 * The parts of unfused attention: matrix products, softmax, repeated heads.
 *
 * Transformer Engine: attention/dot_product_attention/backends.py (d0067d0d); Megatron-LM:
 * core/transformer/dot_product_attention.py.
 */
#include <assert.h>
#include <math.h>

#include "sim/operators/operators.h"
#include "sim/operators/shared.h"

enum { MM_BATCH, MM_M, MM_N, MM_K };

/* The matrices of an operand, one for each sequence and head. */
static ref matrices(emitter *e, const graph *g, tensor_id t, ref r)
{
  const graph_tensor *of = &g->tensors.items[t];
  if (of->rank < 4) return r;
  return emit_permuted(e, r, 4, of->shape, (const uint8_t[]){ 1, 2, 0, 3 });
}

static ref mask_step(emitter *e, const graph *g, const graph_node *n, const char *name, dtype type)
{
  const int64_t *shape = g->tensors.items[n->outputs[0]].shape;
  return emit_matrix(e, name, type, shape[0], shape[1]);
}

/* Inside the window is what is not before it and not after it: by torch.where, whose results are int64, or by
 * booleans. */
static ref inside_window(emitter *e, const graph *g, const graph_node *n)
{
  bool by_where = (n->flags & ATTENTION_MASK_BY_WHERE) != 0;
  dtype type = by_where ? DTYPE_INT64 : DTYPE_BYTE;
  ref not_before = mask_step(e, g, n, "not_before_window", DTYPE_BYTE);
  if (by_where) {
    ref condition = not_before;
    not_before = mask_step(e, g, n, "not_before_window_or_0", type);
    emit_drop(e, condition);
  }
  ref after = mask_step(e, g, n, "after_window", DTYPE_BYTE);
  ref not_after = mask_step(e, g, n, "not_after_window", type);
  emit_drop(e, after);
  ref inside = mask_step(e, g, n, "inside_window", type);
  emit_drop(e, not_before);
  emit_drop(e, not_after);
  return inside;
}

/* The distance of two positions and from both ends of the window, in int32, then the mask. The softmax
 * kernel masks by itself: no kernel writes or reads the mask. */
static void attention_mask_forward(emitter *e, const graph *g, const graph_node *n)
{
  mask_step(e, g, n, "distance", DTYPE_INT32);
  mask_step(e, g, n, "distance_from_left_end", DTYPE_INT32);
  mask_step(e, g, n, "distance_from_right_end", DTYPE_INT32);
  ref inside = inside_window(e, g, n);
  emit_output(e, n->outputs[0]);
  emit_drop(e, inside);
}

const operator_kind operator_attention_mask = { "attention_mask", attention_mask_forward, NULL };

/* TE's unfused attention allocates an empty tensor of the scores' size as baddbmm's input; the
 * product is another tensor (backends.py: UnfusedDotProductAttention). Megatron's own attention
 * takes that input from a buffer that stays allocated. */
static void batched_matmul_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == n->dims[MM_BATCH] * n->dims[MM_M] * n->dims[MM_K]);
  assert(tensor_elements(g, n->inputs[1]) == n->dims[MM_BATCH] * n->dims[MM_N] * n->dims[MM_K]);
  assert(tensor_elements(g, n->outputs[0]) == n->dims[MM_BATCH] * n->dims[MM_M] * n->dims[MM_N]);
  dtype type = type_of(g, n->inputs[0]);
  ref a = matrices(e, g, n->inputs[0], emit_input(e, n->inputs[0]));
  ref b = matrices(e, g, n->inputs[1], emit_input(e, n->inputs[1]));
  if (n->flags & MATMUL_BADDBMM)
    emit_temporary(e, "baddbmm_input", type, n->dims[MM_BATCH], n->dims[MM_M], n->dims[MM_N], 0,
                   CLASS_TRANSIENT);
  emit_gemm(e, type, n->dims[MM_M], n->dims[MM_N], n->dims[MM_K], n->dims[MM_BATCH],
            n->flags & MATMUL_TRANSPOSED ? GEMM_NT : GEMM_NN, (ref[]){ a, b, 0 },
            emit_output(e, n->outputs[0]));
}

/* The product is k by n. If b is n by k, the product is the transposed gradient. */
static ref second_gradient(emitter *e, const graph *g, const graph_node *n, ref gb)
{
  const graph_tensor *b = &g->tensors.items[n->inputs[1]];
  if (!(n->flags & MATMUL_TRANSPOSED)) return matrices(e, g, n->inputs[1], gb);
  bool by_head = b->rank == 4;
  return emit_permuted(e, gb, b->rank, b->shape,
                       by_head ? (const uint8_t[]){ 1, 2, 3, 0 } : (const uint8_t[]){ 0, 2, 1 });
}

static void batched_matmul_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  dtype type = type_of(g, n->inputs[0]);
  ref ga = emit_grad_for(e, n->inputs[0]);
  if (ga != 0)
    emit_gemm(e, type, n->dims[MM_M], n->dims[MM_K], n->dims[MM_N], n->dims[MM_BATCH],
              n->flags & MATMUL_TRANSPOSED ? GEMM_NN : GEMM_NT,
              (ref[]){ gy, matrices(e, g, n->inputs[1], emit_saved(e, 1)), 0 },
              matrices(e, g, n->inputs[0], ga));
  ref gb = emit_grad_for(e, n->inputs[1]);
  if (gb != 0)
    emit_gemm(e, type, n->dims[MM_K], n->dims[MM_N], n->dims[MM_M], n->dims[MM_BATCH], GEMM_TN,
              (ref[]){ matrices(e, g, n->inputs[0], emit_saved(e, 0)), gy, 0 },
              second_gradient(e, g, n, gb));
}

const operator_kind operator_batched_matmul = { "batched_matmul", batched_matmul_forward,
                                                batched_matmul_backward };

/* The softmax kernel scales and masks the scores, even where the framework does so earlier. */
static kernel_shape softmax_shape(const graph_node *n, kernel_kind kind, dtype type)
{
  return (kernel_shape){ .kind = kind,
                         .type = type,
                         .dims = { n->dims[0], n->dims[1] },
                         .scalars = { 1 / sqrt((double)n->dims[3]), (double)n->dims[2] } };
}

static void softmax_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[0] * n->dims[1] == tensor_elements(g, n->inputs[0]));
  ref x = emit_input(e, n->inputs[0]);
  emit_kernel(e, softmax_shape(n, KERNEL_CAUSAL_SOFTMAX_FORWARD, type_of(g, n->outputs[0])),
              (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void softmax_backward(emitter *e, const graph *g, const graph_node *n)
{
  bool in_place = (n->flags & SOFTMAX_IN_PLACE) != 0;
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy == 0 || in_place ? gy : emit_grad_for(e, n->inputs[0]);
  if (gx != 0 && in_place) emit_grad_is(e, n->inputs[0], gx);
  if (gx != 0)
    emit_kernel(e, softmax_shape(n, KERNEL_CAUSAL_SOFTMAX_BACKWARD, type_of(g, n->inputs[0])),
                (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_softmax = { "softmax", softmax_forward, softmax_backward };

static kernel_shape repeat_shape(const graph *g, const graph_node *n, kernel_kind kind, dtype type)
{
  const int64_t *from = g->tensors.items[n->inputs[0]].shape;
  const int64_t *to = g->tensors.items[n->outputs[0]].shape;
  return (kernel_shape){ .kind = kind,
                         .type = type,
                         .dims = { tensor_elements(g, n->outputs[0]) },
                         .scalars = { (double)(to[2] / from[2]), (double)from[3] } };
}

static void repeat_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_kernel(e, repeat_shape(g, n, KERNEL_REPEAT_FORWARD, type_of(g, n->outputs[0])),
              (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void repeat_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    emit_kernel(e, repeat_shape(g, n, KERNEL_REPEAT_BACKWARD, type_of(g, n->inputs[0])),
                (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_repeat = { "repeat", repeat_forward, repeat_backward };
