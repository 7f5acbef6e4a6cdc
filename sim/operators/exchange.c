/*
 * Operators that exchange the rows of experts between ranks.
 *
 * Megatron-LM core/transformer/moe/token_dispatcher.py, core/tensor_parallel/mappings.py
 * (d98e8a64).
 */
#include "sim/operators/moe.h"

#include <assert.h>

#include "sim/operators/shared.h"

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

/* PyTorch, ProcessGroupNCCL.cpp (allgather, reduce_scatter): NCCL takes one tensor, so a list of all
 * ranks' parts is copied to or from a tensor that joins them. `whole` is that of all ranks. */
static void emit_listed(emitter *e, const graph *g, collective_kind kind, comm_group group,
                        int64_t bytes, tensor_id whole, ref from, ref to)
{
  bool gathers = kind == COLLECTIVE_ALL_GATHER;
  assert(gathers || kind == COLLECTIVE_REDUCE_SCATTER);
  dtype type = type_of(g, whole);
  int64_t elements = tensor_elements(g, whole);
  ref joined = emit_vector(e, "joined_parts", type, elements);
  if (!gathers) emit_copy(e, type, elements, from, joined);
  emit_collective(e, STREAM_COMPUTE, kind, group, bytes, (ref[]){ gathers ? from : joined, 0 },
                  (ref[]){ gathers ? joined : to, 0 });
  if (gathers) emit_copy(e, type, elements, joined, to);
}

static void emit_rows(emitter *e, const graph *g, const graph_node *n, collective_kind kind,
                      tensor_id sent, tensor_id received, const ref *reads, const ref *writes)
{
  comm_group group = (comm_group)n->dims[EXCHANGE_GROUP];
  int64_t bytes = tensor_bytes(g, sent), copies = n->dims[EXCHANGE_COPIES];
  if (n->flags & MOE_STEP_LISTED) {
    tensor_id whole = kind == COLLECTIVE_ALL_GATHER ? received : sent;
    emit_listed(e, g, kind, group, bytes, whole, reads[0], writes[0]);
    return;
  }
  if (copies == 0) {
    emit_collective(e, STREAM_COMPUTE, kind, group, bytes, reads, writes);
    return;
  }
  int64_t width = bytes / g->tensors.items[sent].shape[0];
  assert(kind == COLLECTIVE_ALL_TO_ALL);
  emit_token_exchange(e, group, copies * width, n->dims[EXCHANGE_TOKENS] * width, reads, writes);
}

static void exchange_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->dims[EXCHANGE_FORWARD] < COLLECTIVE_KINDS && n->dims[EXCHANGE_GROUP] < COMM_GROUPS);
  if (n->flags & MOE_STEP_WAITS) emit_host_read(e);
  if (n->flags & MOE_STEP_POLLS) emit_host_wait(e);
  ref x = emit_input(e, n->inputs[0]);
  tensor_id restore = (tensor_id)n->dims[EXCHANGE_RESTORE];
  ref index = seen_index(e, g, n, restore != 0 ? emit_input(e, restore) : 0);
  bool back = n->dims[EXCHANGE_BACK];
  emit_rows(e, g, n, (collective_kind)n->dims[EXCHANGE_FORWARD], n->inputs[0], n->outputs[0],
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
  emit_rows(e, g, n, (collective_kind)n->dims[EXCHANGE_BACKWARD], n->outputs[0], n->inputs[0],
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

const operator_kind operator_exchange_table = { "exchange_table", exchange_table_forward,
                                                emit_nothing };

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
  if (n->flags & MOE_STEP_WAITS) emit_host_read(e);
  emit_row_kernel(e, KERNEL_PERMUTE, type, g->tensors.items[n->outputs[0]].shape[0],
                  n->dims[GATHER_WIDTH], (ref[]){ whole, emit_input(e, n->inputs[1]), 0 },
                  (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void gather_permute_backward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->outputs[0]);
  int64_t all = n->dims[GATHER_ALL_TOKENS];
  int64_t width = n->dims[GATHER_WIDTH];
  ref whole = emit_matrix(e, "gathered_gradient", type, all, width);
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
