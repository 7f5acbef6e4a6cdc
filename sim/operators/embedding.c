/*
 * The micro-batch's data, the embedding, and moving between the whole sequence and this rank's
 * part.
 *
 * Megatron-LM: core/tensor_parallel/layers.py (VocabParallelEmbedding),
 * core/models/common/embeddings/language_model_embedding.py, core/tensor_parallel/mappings.py.
 */
#include "sim/operators/operators.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

/* Made by the data loader's copies to the device; nothing flows back. */
const operator_kind operator_data = { "data", emit_outputs, NULL };

/* The mask is the last operand read; the call's bytes do not count it. */
static kernel_shape rows_kernel(const graph_node *n, kernel_kind kind, dtype type)
{
  return (kernel_shape){
    .kind = kind, .type = type, .dims = { n->dims[0], n->dims[1] }, .uncounted = n->flags != 0
  };
}

/* Over TP each rank looks up its own rows of the table and masks the others; an all-reduce adds
 * them. in: indices, table  out: rows [, masked indices, mask] */
static void embedding_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(g->tensors.items[n->inputs[1]].shape[1] == n->dims[1]);
  assert(tensor_elements(g, n->inputs[0]) == n->dims[0]);
  dtype type = type_of(g, n->outputs[0]);
  ref indices = emit_input(e, n->inputs[0]), mask = 0;
  if (n->flags != 0) {
    ref masked = emit_output(e, n->outputs[1]);
    mask = emit_output(e, n->outputs[2]);
    emit_number_kernel(e, KERNEL_VOCABULARY_PART, DTYPE_INT64, n->dims[0],
                       (double)g->tensors.items[n->inputs[1]].shape[0], (ref[]){ indices, 0 },
                       (ref[]){ masked, mask, 0 });
    indices = masked;
  }
  ref rows = emit_output(e, n->outputs[0]);
  emit_kernel(e, rows_kernel(n, KERNEL_EMBEDDING_FORWARD, type),
              (ref[]){ indices, emit_parameter(e, n->inputs[1]), mask, 0 }, (ref[]){ rows, 0 });
}

static void embedding_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gw = gy != 0 ? emit_parameter_grad(e, n->inputs[1], false) : 0;
  if (gw != 0)
    emit_kernel(e, rows_kernel(n, KERNEL_EMBEDDING_BACKWARD, type_of(g, n->outputs[0])),
                (ref[]){ gy, emit_saved(e, 0), n->flags != 0 ? emit_saved(e, 1) : 0, 0 },
                (ref[]){ gw, 0 });
}

const operator_kind operator_embedding = { "embedding", embedding_forward, embedding_backward };

/* mappings.py: _reduce works in place on its argument. in: x  out: x's storage. */
static void all_reduce_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_output(e, n->outputs[0]);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_REDUCE, GROUP_TP,
                  tensor_bytes(g, n->outputs[0]), (ref[]){ x, 0 }, (ref[]){ x, 0 });
}

const operator_kind operator_all_reduce = { "all_reduce", all_reduce_forward, emit_same_gradient };

static void scatter_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->inputs[0]) % tensor_elements(g, n->outputs[0]) == 0);
  ref x = emit_input(e, n->inputs[0]);
  ref y = emit_output(e, n->outputs[0]);
  if (n->flags != 0)
    emit_collective(e, STREAM_COMPUTE, COLLECTIVE_REDUCE_SCATTER, GROUP_TP,
                    tensor_bytes(g, n->inputs[0]), (ref[]){ x, 0 }, (ref[]){ y, 0 });
  else
    emit_number_kernel(e, KERNEL_OWN_PART, type_of(g, n->outputs[0]),
                       tensor_elements(g, n->outputs[0]), GROUP_TP, (ref[]){ x, 0 },
                       (ref[]){ y, 0 });
}

static void gather_into(emitter *e, const graph *g, tensor_id part, ref from, ref to)
{
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_GATHER, GROUP_TP, tensor_bytes(g, part),
                  (ref[]){ from, 0 }, (ref[]){ to, 0 });
}

static void scatter_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0) gather_into(e, g, n->outputs[0], gy, gx);
}

const operator_kind operator_scatter_sequence = { "scatter_sequence", scatter_forward,
                                                  scatter_backward };

static void gather_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(tensor_elements(g, n->outputs[0]) % tensor_elements(g, n->inputs[0]) == 0);
  ref x = emit_input(e, n->inputs[0]);
  gather_into(e, g, n->inputs[0], x, emit_output(e, n->outputs[0]));
}

static void gather_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    emit_collective(e, STREAM_COMPUTE, COLLECTIVE_REDUCE_SCATTER, GROUP_TP,
                    tensor_bytes(g, n->outputs[0]), (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_gather_sequence = { "gather_sequence", gather_forward,
                                                 gather_backward };

/* ---- eager PyTorch --------------------------------------------------------------------------- */

/*
 * nn.Embedding (aten/src/ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu). Backward
 * sorts the ids, sums runs of ten rows in fp32, and adds these sums to the table's gradient. It
 * adds a few ids one by one.
 */
enum { FEW_IDS = 3072, ROWS_OF_RUN = 10 };

static void hf_embedding_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(g->tensors.items[n->inputs[1]].shape[1] == n->dims[1]);
  assert(tensor_elements(g, n->inputs[0]) == n->dims[0]);
  ref ids = emit_input(e, n->inputs[0]);
  emit_row_kernel(e, KERNEL_EMBEDDING_FORWARD, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ ids, emit_parameter(e, n->inputs[1]), 0 },
                  (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void hf_embedding_backward(emitter *e, const graph *g, const graph_node *n)
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

const operator_kind operator_hf_embedding = { "embedding", hf_embedding_forward,
                                              hf_embedding_backward };
