/*
 * Experts whose weights are on the host.
 *
 * Megatron-LM pull request #6494 (917bf593): core/transformer/moe/experts_offloading.py,
 * OffloadingExpertsGroupedMLP; experts_offloading_util.py, StreamManager. Each product of weights goes by
 * chunks: the copy of the next chunk is issued, compute waits for the copy of this one, multiplies, and the
 * stream of that copy waits for compute before it copies again. There are two such streams; chunk c is
 * copied on stream c modulo the number of buffers. Products have a stream of their own, which waits for the
 * current one and the reverse; here both are compute.
 *
 * Upstream's weights are [inputs, outputs]. Here they are [outputs, inputs] as in other modules: the
 * products are the same, of as many bytes.
 */
#include <assert.h>

#include "sim/base/units.h"
#include "sim/graph/host_experts.h"
#include "sim/graph/operand_list.h"
#include "sim/operators/moe.h"
#include "sim/operators/shared.h"

/* A product of rows with the weights of the first or the second linear, or with their transposes. */
typedef struct chunked {
  tensor_id weight;
  bool second, transposed;
  ref from, to;
} chunked;

/* Columns of the result, and of the rows that are multiplied. */
typedef struct widths {
  int64_t outputs, inputs;
} widths;

static widths widths_of(const graph_node *n, const chunked *p)
{
  int64_t hidden = n->dims[HOST_EXPERTS_HIDDEN];
  widths w = { n->dims[HOST_EXPERTS_WIDE], hidden };
  if (p->second) w = (widths){ hidden, n->dims[HOST_EXPERTS_NARROW] };
  assert(w.outputs > 0 && w.inputs > 0);
  return p->transposed ? (widths){ w.inputs, w.outputs } : w;
}

static ref owners_of(emitter *e, const graph_node *n, bool backward)
{
  tensor_id owners = (tensor_id)n->dims[HOST_EXPERTS_OWNERS];
  assert(n->kind == &operator_host_experts);
  if (owners == 0) return 0;
  return backward ? emit_kept(e, owners) : emit_input(e, owners);
}

static int64_t experts_of_chunk(const graph_node *n)
{
  assert(n->dims[HOST_EXPERTS_COUNT] % n->dims[HOST_EXPERTS_CHUNKS] == 0);
  return n->dims[HOST_EXPERTS_COUNT] / n->dims[HOST_EXPERTS_CHUNKS];
}

static plan_stream stream_of(const graph_node *n, int64_t chunk)
{
  assert(chunk < n->dims[HOST_EXPERTS_CHUNKS]);
  return chunk % n->dims[HOST_EXPERTS_BUFFERS] == 0 ? STREAM_WEIGHTS : STREAM_WEIGHTS_ODD;
}

/* The buffer for the chunk: weights of its experts, one after the other. */
static ref buffer_of(emitter *e, const graph *g, const graph_node *n, const chunked *p,
                     int64_t chunk)
{
  int64_t rows = g->tensors.items[p->weight].shape[0] / n->dims[HOST_EXPERTS_CHUNKS],
          columns = g->tensors.items[p->weight].shape[1];
  dtype type = type_of(g, p->weight);
  int64_t all = n->dims[HOST_EXPERTS_BUFFERS] * rows,
          number = chunk % n->dims[HOST_EXPERTS_BUFFERS];
  const char *name =
      host_experts_buffer((int32_t)n->dims[HOST_EXPERTS_LAYER], p->second, g->memory);
  ref buffers = emit_shared_buffer(e, name, type, all, columns, rows * columns * dtype_bytes(type));
  return emit_strided(e, buffers, type, number * rows * columns, 2, (int64_t[]){ rows, columns },
                      NULL);
}

static void fetch(emitter *e, const graph *g, const graph_node *n, const chunked *p, int64_t chunk)
{
  int64_t count = experts_of_chunk(n);
  if (chunk == n->dims[HOST_EXPERTS_CHUNKS]) return;
  emit_weights_in(e, stream_of(n, chunk), p->weight, chunk * count, count,
                  buffer_of(e, g, n, p, chunk));
}

/* Of a balanced load the chunk has its part of the rows; the kernel's operands are all rows. */
static void multiply_chunk(emitter *e, const graph *g, const graph_node *n, const chunked *p,
                           int64_t chunk, ref owners)
{
  widths w = widths_of(n, p);
  int64_t count = experts_of_chunk(n), all = n->dims[HOST_EXPERTS_COUNT];
  int64_t rows = max_i64(1, n->dims[HOST_EXPERTS_ROWS] * count / all);
  dtype type = type_of(g, n->outputs[0]);
  kernel_shape product = { .kind = KERNEL_GROUPED_GEMM,
                           .type = type,
                           .dims = { rows, w.outputs, w.inputs, 1, count, chunk * count, all },
                           .scalars = { [GEMM_LAYOUT] = p->transposed ? GEMM_NN : GEMM_NT } };
  product.bytes =
      (rows * (w.outputs + w.inputs) + count * w.outputs * w.inputs) * dtype_bytes(type);
  emit_kernel(e, product, (ref[]){ p->from, buffer_of(e, g, n, p, chunk), owners, 0 },
              (ref[]){ p->to, 0 });
}

/* The first chunk is on its way. */
static void multiply_fetched(emitter *e, const graph *g, const graph_node *n, const chunked *p,
                             ref owners)
{
  for (int64_t chunk = 0; chunk < n->dims[HOST_EXPERTS_CHUNKS]; chunk++) {
    fetch(e, g, n, p, chunk + 1);
    emit_join(e, STREAM_COMPUTE, stream_of(n, chunk));
    multiply_chunk(e, g, n, p, chunk, owners);
    emit_join(e, stream_of(n, chunk), STREAM_COMPUTE);
  }
  assert(p->from != 0 && p->to != 0);
}

static void multiply(emitter *e, const graph *g, const graph_node *n, const chunked *p, ref owners)
{
  assert(p->weight != 0);
  fetch(e, g, n, p, 0);
  multiply_fetched(e, g, n, p, owners);
}

static kernel_shape activation(const graph *g, const graph_node *n, kernel_kind kind)
{
  assert(kind == KERNEL_WEIGHTED_ACTIVATION_FORWARD || kind == KERNEL_WEIGHTED_ACTIVATION_BACKWARD);
  return (kernel_shape){ .kind = kind,
                         .type = type_of(g, n->outputs[0]),
                         .dims = { n->dims[HOST_EXPERTS_ROWS], n->dims[HOST_EXPERTS_NARROW] },
                         .scalars = { ACTIVATION_SILU } };
}

static ref activated(emitter *e, const graph *g, const graph_node *n, ref wide, ref probs)
{
  ref y = emit_matrix(e, "activated", type_of(g, n->outputs[0]), n->dims[HOST_EXPERTS_ROWS],
                      n->dims[HOST_EXPERTS_NARROW]);
  emit_kernel(e, activation(g, n, KERNEL_WEIGHTED_ACTIVATION_FORWARD), (ref[]){ wide, probs, 0 },
              (ref[]){ y, 0 });
  return y;
}

static ref temporary_rows(emitter *e, const graph *g, const graph_node *n, const char *name,
                          int64_t columns)
{
  return emit_matrix(e, name, type_of(g, n->outputs[0]), n->dims[HOST_EXPERTS_ROWS], columns);
}

static bool recomputes_wide(const graph_node *n)
{
  return (n->flags & HOST_EXPERTS_RECOMPUTES) != 0;
}

/* call_forward_a, call_forward_y. */
static void host_experts_forward(emitter *e, const graph *g, const graph_node *n)
{
  assert(n->inputs[3] != 0 && n->dims[HOST_EXPERTS_BUFFERS] >= 1);
  ref owners = owners_of(e, n, false), x = emit_input(e, n->inputs[0]);
  ref wide = recomputes_wide(n) ? temporary_rows(e, g, n, "output", n->dims[HOST_EXPERTS_WIDE])
                                : emit_output(e, n->outputs[1]);
  multiply(e, g, n, &(chunked){ .weight = n->inputs[2], .from = x, .to = wide }, owners);
  chunked second = { .weight = n->inputs[3], .second = true };
  fetch(e, g, n, &second, 0);
  second.from = activated(e, g, n, wide, emit_input(e, n->inputs[1]));
  second.to = emit_output(e, n->outputs[0]);
  multiply_fetched(e, g, n, &second, owners);
}

/* The gradients of a linear's weights, of all experts at once, added to those of earlier micro-batches. */
static void weight_gradient(emitter *e, const graph *g, const graph_node *n, const chunked *p,
                            ref owners)
{
  widths w = widths_of(n, p);
  kernel_shape wgrad = { .kind = KERNEL_GROUPED_GEMM,
                         .type = type_of(g, n->outputs[0]),
                         .dims = { w.outputs, w.inputs, n->dims[HOST_EXPERTS_ROWS], 1,
                                   n->dims[HOST_EXPERTS_COUNT] },
                         .scalars = { [GEMM_LAYOUT] = GEMM_TN },
                         .uncounted = owners != 0 };
  assert(!p->transposed);
  emit_weight_gradient(e, wgrad, (ref[]){ p->to, p->from, owners, 0 }, p->weight);
}

/* call_backward_grad_a, call_backward_grad_x, call_backward_grad_w2 (which activates again), and ..._w1. */
static void host_experts_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref owners = owners_of(e, n, true), gy = emit_grad_of(e, n->outputs[0]), x = emit_saved(e, 0),
      probs = emit_saved(e, recomputes_wide(n) ? 1 : 2);
  ref wide = recomputes_wide(n) ? temporary_rows(e, g, n, "output", n->dims[HOST_EXPERTS_WIDE])
                                : emit_saved(e, 1);
  chunked first = { .weight = n->inputs[2], .from = x, .to = wide },
          second = { .weight = n->inputs[3], .second = true, .transposed = true, .from = gy };
  if (recomputes_wide(n)) multiply(e, g, n, &first, owners);
  second.to = temporary_rows(e, g, n, "activated_gradient", n->dims[HOST_EXPERTS_NARROW]);
  multiply(e, g, n, &second, owners);
  ref ga = temporary_rows(e, g, n, "output_gradient", n->dims[HOST_EXPERTS_WIDE]);
  emit_kernel(e, activation(g, n, KERNEL_WEIGHTED_ACTIVATION_BACKWARD),
              (ref[]){ second.to, wide, probs, 0 },
              (ref[]){ ga, emit_grad_for(e, n->inputs[1]), 0 });
  emit_drop(e, second.to);
  ref gx = emit_grad_for(e, n->inputs[0]);
  chunked back = { .weight = n->inputs[2], .transposed = true, .from = ga, .to = gx };
  if (gx != 0) multiply(e, g, n, &back, owners);
  ref s = activated(e, g, n, wide, probs);
  weight_gradient(
      e, g, n, &(chunked){ .weight = n->inputs[3], .second = true, .from = s, .to = gy }, owners);
  emit_drop(e, s);
  weight_gradient(e, g, n, &(chunked){ .weight = n->inputs[2], .from = x, .to = ga }, owners);
}

const operator_kind operator_host_experts = { "host_experts", host_experts_forward,
                                              host_experts_backward };
