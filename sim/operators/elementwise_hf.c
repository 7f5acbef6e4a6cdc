/*
 * Elementwise operators of one shape: sums, conversions, copies, SiLU, scaling.
 *
 * PyTorch's elementwise kernels read and write several elements at once where all operands have
 * the same layout. Otherwise, or if they widen a type, a thread computes the address of each
 * element, which bounds the kernel (aten/src/ATen/native/cuda/CUDALoops.cuh): the rows *_STRIDED
 * of kernels.h.
 */
#include <assert.h>
#include <string.h>

#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

bool hf_is_strided(const graph *g, const tensor_id *operands, uint32_t count)
{
  const graph_tensor *result = &g->tensors.items[operands[0]];
  for (uint32_t i = 0; i < count; i++) {
    const graph_tensor *t = &g->tensors.items[operands[i]];
    bool alike =
        t->contiguous && tensor_elements(g, operands[i]) == tensor_elements(g, operands[0]);
    bool widened = dtype_bytes((dtype)t->dtype) < dtype_bytes((dtype)result->dtype);
    if (!alike || widened) return true;
  }
  return false;
}

static int64_t elements_of(const graph *g, const graph_node *n)
{
  return tensor_elements(g, n->outputs[0]);
}

static void add_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) == elements_of(g, n));
  tensor_id y = n->outputs[0], x = n->inputs[1];
  ref a = emit_input(e, n->inputs[0]), b = hf_expanded(e, g, emit_input(e, x), x, y);
  const tensor_id operands[] = { y, n->inputs[0], x };
  kernel_kind kind = hf_is_strided(g, operands, 3) ? KERNEL_ADD_STRIDED : KERNEL_ADD;
  emit_memory_kernel(e, kind, type_of(g, y), elements_of(g, n), (ref[]){ a, b, 0 },
                     (ref[]){ emit_output(e, y), 0 });
}

static void add_backward(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_grad_is(e, n->inputs[0], gy);
  emit_grad_is(e, n->inputs[1], gy);
}

const operator_kind operator_hf_add = { "add", add_forward, add_backward };

/* x in the type of y. */
static void convert(emitter *e, const graph *g, tensor_id x, tensor_id y, ref from, ref to)
{
  assert(tensor_elements(g, x) == tensor_elements(g, y));
  const tensor_id operands[] = { y, x };
  kernel_kind kind = hf_is_strided(g, operands, 2) ? KERNEL_COPY_STRIDED : KERNEL_COPY;
  emit_memory_kernel(e, kind, type_of(g, y), tensor_elements(g, y), (ref[]){ from, 0 },
                     (ref[]){ to, 0 });
}

static void copy_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]), y = emit_output(e, n->outputs[0]);
  if (n->flags == HF_COPY_OF_ROWS)
    emit_memory_kernel(e, KERNEL_COPY, type_of(g, n->outputs[0]), elements_of(g, n),
                       (ref[]){ x, 0 }, (ref[]){ y, 0 });
  else
    convert(e, g, n->inputs[0], n->outputs[0], x, y);
}

static void copy_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (type_of(g, n->inputs[0]) == type_of(g, n->outputs[0])) {
    emit_grad_is(e, n->inputs[0], gy);
    return;
  }
  ref gx = emit_grad_for(e, n->inputs[0]);
  if (gx != 0) convert(e, g, n->outputs[0], n->inputs[0], gy, gx);
}

const operator_kind operator_hf_copy = { "copy", copy_forward, copy_backward };

static bool silu_is_strided(const graph *g, const graph_node *n)
{
  return hf_is_strided(g, (tensor_id[]){ n->outputs[0], n->inputs[0] }, 2);
}

static void silu_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, silu_is_strided(g, n) ? KERNEL_SILU_FORWARD_STRIDED : KERNEL_SILU_FORWARD,
                     type_of(g, n->outputs[0]), elements_of(g, n), (ref[]){ x, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void silu_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_memory_kernel(e, silu_is_strided(g, n) ? KERNEL_SILU_BACKWARD_STRIDED : KERNEL_SILU_BACKWARD,
                     type_of(g, n->outputs[0]), elements_of(g, n),
                     (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_silu = { "silu", silu_forward, silu_backward };

static double factor_of(const graph_node *n)
{
  double factor;
  static_assert(sizeof factor == sizeof n->dims[0], "the bits of one are those of the other");
  memcpy(&factor, &n->dims[0], sizeof factor);
  return factor;
}

static void scale_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  hf_number_kernel(e, KERNEL_SCALE, type_of(g, n->outputs[0]), elements_of(g, n), factor_of(n), x,
                   emit_output(e, n->outputs[0]));
}

static void scale_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  hf_number_kernel(e, KERNEL_SCALE, type_of(g, n->inputs[0]), elements_of(g, n), factor_of(n), gy,
                   gx);
}

const operator_kind operator_hf_scale = { "scale", scale_forward, scale_backward };
