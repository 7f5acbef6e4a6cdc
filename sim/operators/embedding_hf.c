/*
 * nn.Embedding (aten/src/ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu). Backward
 * sorts the ids, sums runs of ten rows in fp32, and adds these sums to the table's gradient. It
 * adds a few ids one by one.
 */
#include <assert.h>

#include "sim/base/units.h"
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

enum { FEW_IDS = 3072, ROWS_OF_RUN = 10 };

static void embedding_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(g->tensors.items[n->inputs[1]].shape[1] == n->dims[1]);
  assert(tensor_elements(g, n->inputs[0]) == n->dims[0]);
  ref ids = emit_input(e, n->inputs[0]);
  emit_row_kernel(e, KERNEL_EMBEDDING_FORWARD, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ ids, emit_parameter(e, n->inputs[1]), 0 },
                  (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void embedding_backward(emitter *e, const graph *g, const graph_node *n)
{
  int64_t ids = n->dims[0], width = n->dims[1];
  int64_t rows = g->tensors.items[n->inputs[1]].shape[0];
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gw = emit_parameter_grad(e, n->inputs[1], false);
  if (gw == 0) return;
  if (ids > FEW_IDS)
    emit_temporary(e, "sums_of_runs", DTYPE_FP32, ids / ROWS_OF_RUN + min_i64(ids, rows), width, 0,
                   0, CLASS_WORKSPACE);
  emit_row_kernel(e, KERNEL_EMBEDDING_BACKWARD, type_of(g, n->outputs[0]), ids, width,
                  (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gw, 0 });
}

const operator_kind operator_hf_embedding = { "embedding", embedding_forward, embedding_backward };
