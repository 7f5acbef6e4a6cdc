/*
 * torch.nn.functional.cross_entropy: log_softmax and nll_loss
 * (aten/src/ATen/native/cuda/SoftMax.cu, Loss.cu).
 */
#include <assert.h>

#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

/* The kernels' bytes are passes over the rows. A block goes over its row once for the sums and
 * once for the result: forward reads the row twice and writes it. Backward reads two tensors
 * twice; caches serve about one of these reads. */
enum { FORWARD_PASSES = 3, BACKWARD_PASSES = 4 };

static kernel_shape rows_kernel(const graph *g, const graph_node *n, kernel_kind kind,
                                int64_t passes)
{
  assert(n->dims[0] * n->dims[1] == tensor_elements(g, n->inputs[0]));
  return (kernel_shape){ .kind = kind,
                         .type = type_of(g, n->inputs[0]),
                         .dims = { n->dims[0], n->dims[1] },
                         .bytes = passes * tensor_bytes(g, n->inputs[0]) };
}

static void log_softmax_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_kernel(e, rows_kernel(g, n, KERNEL_LOG_SOFTMAX_FORWARD, FORWARD_PASSES), (ref[]){ x, 0 },
              (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void log_softmax_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_kernel(e, rows_kernel(g, n, KERNEL_LOG_SOFTMAX_BACKWARD, BACKWARD_PASSES),
              (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_log_softmax = { "log_softmax", log_softmax_forward,
                                                log_softmax_backward };

/* Reads one number of each row. */
static void nll_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[1]) == n->dims[0]);
  ref x = emit_input(e, n->inputs[0]), labels = emit_input(e, n->inputs[1]);
  ref loss = emit_output(e, n->outputs[0]);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_NLL_FORWARD,
                              .type = type_of(g, n->inputs[0]),
                              .dims = { n->dims[0], n->dims[1] },
                              .scalars = { HF_IGNORED_LABEL },
                              .bytes = 2 * tensor_bytes(g, n->inputs[1]) },
              (ref[]){ x, labels, 0 }, (ref[]){ loss, emit_output(e, n->outputs[1]), 0 });
}

/* Zeros, and one number in each row. */
static void nll_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[0]);
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = emit_grad_for(e, n->inputs[0]);
  emit_fill(e, type, tensor_elements(g, n->inputs[0]), gx);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_NLL_BACKWARD,
                              .type = type,
                              .dims = { n->dims[0], n->dims[1] },
                              .scalars = { HF_IGNORED_LABEL },
                              .bytes = 2 * tensor_bytes(g, n->inputs[1]) },
              (ref[]){ gy, hf_saved(e, n, n->inputs[1]), emit_saved(e, 2), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_hf_nll_loss = { "nll_loss", nll_forward, nll_backward };

static void pad_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  const graph_tensor *padded = &g->tensors.items[n->outputs[0]];
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_PAD,
                              .type = (dtype)padded->dtype,
                              .dims = { tensor_elements(g, n->outputs[0]) },
                              .scalars = { HF_IGNORED_LABEL, (double)padded->shape[1] } },
              (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

const operator_kind operator_hf_pad = { "pad", pad_forward, NULL };
