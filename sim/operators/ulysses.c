/*
 * All-to-all of Ulysses sequence parallelism: a part of the positions with all heads becomes all
 * positions with a part of the heads, or the reverse. Tensors are [b, heads, positions, width], in
 * memory [b, positions, heads, width].
 *
 * Source: verl/utils/ulysses.py (all_to_all_tensor). What each rank gets is made contiguous;
 * positions of the packed sequences already are. What arrives is concatenated. All of it lives
 * until the function returns.
 */
#include <assert.h>

#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

enum { HEADS = 1 }; /* of a tensor's shape */

/* Received parts of `from`, given as `x`. `by_position`: concatenating them keeps their order in
 * memory. */
static ref exchanged(emitter *e, const graph *g, tensor_id from, bool by_position, ref x)
{
  dtype type = type_of(g, from);
  int64_t elements = tensor_elements(g, from);
  ref sent = x;

  if (by_position) {
    sent = emit_vector(e, "parts_sent", type, elements);
    emit_memory_kernel(e, KERNEL_COPY_STRIDED, type, elements, (ref[]){ x, 0 }, (ref[]){ sent, 0 });
  }
  ref received = emit_vector(e, "parts_received", type, elements);
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_TO_ALL, GROUP_CP, tensor_bytes(g, from),
                  (ref[]){ sent, 0 }, (ref[]){ received, 0 });
  return received;
}

static void concatenate(emitter *e, const graph *g, tensor_id to, bool by_position, ref received,
                        ref y)
{
  emit_memory_kernel(e, by_position ? KERNEL_COPY : KERNEL_COPY_STRIDED, type_of(g, to),
                     tensor_elements(g, to), (ref[]){ received, 0 }, (ref[]){ y, 0 });
}

/* Whether heads are split and positions gathered. */
static bool splits_heads(const graph *g, tensor_id from, tensor_id to)
{
  assert(tensor_elements(g, from) == tensor_elements(g, to));
  return g->tensors.items[from].shape[HEADS] > g->tensors.items[to].shape[HEADS];
}

static void exchange_forward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id from = n->inputs[0], to = n->outputs[0];
  bool by_position = splits_heads(g, from, to);
  ref received = exchanged(e, g, from, by_position, emit_input(e, from));
  concatenate(e, g, to, by_position, received, emit_output(e, to));
}

static void exchange_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id from = n->outputs[0], to = n->inputs[0];
  bool by_position = splits_heads(g, from, to);
  ref received = exchanged(e, g, from, by_position, emit_grad_of(e, from));
  concatenate(e, g, to, by_position, received, emit_grad_for(e, to));
}

const operator_kind operator_ulysses_exchange = { "ulysses_exchange", exchange_forward,
                                                  exchange_backward };
