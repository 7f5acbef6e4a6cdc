/*
 * Attention: splitting the fused projection, and the core in one kernel.
 *
 * Transformer Engine: attention/dot_product_attention/backends.py, context_parallel.py (d0067d0d).
 */
#include "sim/operators/operators.h"

#include <assert.h>
#include <math.h>

#include "sim/operators/shared.h"

/* ---- split ----------------------------------------------------------------------------------- */

enum { JOIN_ROWS, JOIN_WIDTHS };

static int64_t split_rows(const graph *g, const graph_node *n)
{
  const int64_t *shape = g->tensors.items[n->inputs[0]].shape;
  return n->dims[0] != 0 ? n->dims[0] : shape[0] * shape[1];
}

/* A part without a gradient is zeros in the joined gradient. */
static void split_backward(emitter *e, const graph *g, const graph_node *n)
{
  kernel_shape join = { .kind = KERNEL_JOIN, .type = type_of(g, n->inputs[0]) };
  ref parts[NODE_OUTPUTS + 1] = { 0 };
  uint32_t count = 0, missing = 0;
  join.dims[JOIN_ROWS] = split_rows(g, n);
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++) {
    ref part = emit_grad_of(e, n->outputs[i]);
    assert(tensor_elements(g, n->outputs[i]) % join.dims[JOIN_ROWS] == 0);
    join.dims[JOIN_WIDTHS + i] = tensor_elements(g, n->outputs[i]) / join.dims[JOIN_ROWS];
    if (part != 0)
      parts[count++] = part;
    else
      missing |= 1U << i;
  }
  ref gx = count != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  join.scalars[0] = missing;
  if (gx != 0) emit_kernel(e, join, parts, (ref[]){ gx, 0 });
}

const operator_kind operator_split = { "split", emit_outputs, split_backward };

/* ---- the core in one kernel ------------------------------------------------------------------ */

enum { BATCH, HEADS, Q_LEN, KV_LEN, QK_DIM, V_DIM, CP, KV_HEADS, WINDOW };

static kernel_shape attention_shape(emitter *e, const graph *g, const graph_node *n,
                                    kernel_kind kind)
{
  assert(n->dims[HEADS] % n->dims[KV_HEADS] == 0 && n->dims[KV_LEN] % n->dims[CP] == 0);
  assert(tensor_elements(g, n->inputs[0]) ==
         n->dims[BATCH] * n->dims[HEADS] * n->dims[Q_LEN] * n->dims[QK_DIM]);
  return (kernel_shape){
    .kind = kind,
    .type = type_of(g, n->inputs[0]),
    .dims = { n->dims[BATCH], n->dims[HEADS], n->dims[Q_LEN], n->dims[KV_LEN], n->dims[QK_DIM],
              n->dims[V_DIM], 1, n->dims[WINDOW] },
    .scalars = { (double)n->dims[KV_HEADS], 1 / sqrt((double)n->dims[QK_DIM]),
                 emit_settings(e)->model.attention_dropout,
                 n->flags & ATTENTION_FLASH ? ATTENTION_BSHD : ATTENTION_SBHD },
  };
}

/* Lists of operands end with 0, so optional operands are left out. */
typedef struct ref_list {
  ref items[12];
  uint32_t count;
} ref_list;

static void list_add(ref_list *list, ref r)
{
  assert(list->count + 1 < sizeof list->items / sizeof *list->items);
  if (r != 0) list->items[list->count++] = r;
}

static int64_t list_bytes(const emitter *e, const ref_list *list)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < list->count; i++)
    bytes += emit_bytes(e, list->items[i]);
  return bytes;
}

/* Elements of one rank's keys and values. */
static int64_t kv_part(const graph_node *n)
{
  return n->dims[BATCH] * n->dims[KV_LEN] / n->dims[CP] * n->dims[KV_HEADS] *
         (n->dims[QK_DIM] + n->dims[V_DIM]);
}

static ref of_all_ranks(emitter *e, const graph *g, const graph_node *n, const char *name)
{
  return emit_vector(e, name, type_of(g, n->inputs[0]), n->dims[CP] * kv_part(n));
}

/* `to` gets the keys and values of each rank in turn. Ring: while a step multiplies its keys and values,
 * those of the neighbour arrive. All-gather (AttnFuncWithCPAndKVAllGather): those of the whole sequence
 * arrive at once. */
static void exchange_kv(emitter *e, const graph *g, const graph_node *n, ref k, ref v,
                        const ref *to)
{
  int64_t part_bytes = kv_part(n) * dtype_bytes(type_of(g, n->inputs[0]));
  bool gathers = (n->flags & ATTENTION_CP_GATHER) != 0;
  if (!gathers) emit_join(e, STREAM_COMM, STREAM_COMPUTE);
  emit_collective(e, gathers ? STREAM_COMPUTE : STREAM_COMM,
                  gathers ? COLLECTIVE_ALL_GATHER : COLLECTIVE_ALL_TO_ALL, GROUP_CP,
                  part_bytes * (gathers ? 1 : n->dims[CP] - 1), (ref[]){ k, v, 0 }, to);
  if (!gathers) emit_join(e, STREAM_COMPUTE, STREAM_COMM);
}

static ref exchanged_kv(emitter *e, const graph *g, const graph_node *n, ref k, ref v)
{
  if (n->dims[CP] <= 1) return 0;
  ref kv = of_all_ranks(e, g, n, "exchanged_kv");
  exchange_kv(e, g, n, k, v, (ref[]){ kv, 0 });
  return kv;
}

/* Each rank computes a part of the gradients of all keys and values. The ring or a reduce-scatter
 * sums them and gives each rank its own. */
static void reduce_kv_gradients(emitter *e, const graph *g, const graph_node *n, ref all,
                                const ref *own)
{
  int64_t bytes = n->dims[CP] * kv_part(n) * dtype_bytes(type_of(g, n->inputs[0]));
  bool gathers = (n->flags & ATTENTION_CP_GATHER) != 0;
  if (!gathers) emit_join(e, STREAM_COMM, STREAM_COMPUTE);
  emit_collective(e, gathers ? STREAM_COMPUTE : STREAM_COMM, COLLECTIVE_REDUCE_SCATTER, GROUP_CP,
                  bytes, (ref[]){ all, 0 }, own);
  if (!gathers) emit_join(e, STREAM_COMPUTE, STREAM_COMM);
}

enum { OUTPUT, LOG_SUMS, GENERATOR, KEY_VALUE };

static bool keeps_joined_kv(const graph_node *n)
{
  return n->outputs[KEY_VALUE] != 0;
}

/*
 * Ring (context_parallel.py: AttnFuncWithCPAndKVP2P): keys and values are joined in one tensor, and those
 * of each other rank arrive in a tensor of the same size. All of them and the results of all steps live
 * until the end; the last that arrived is saved. Upstream saves the neighbour's and begins backward's ring
 * with them; here each rank saves its own in that place.
 */
static void ring_forward(emitter *e, const graph *g, const graph_node *n, ref q, ref k, ref v)
{
  dtype type = type_of(g, n->inputs[0]);
  int64_t ranks = n->dims[CP];
  ref others = emit_vector(e, "exchanged_kv", type, (ranks - 1) * kv_part(n));
  ref last = emit_output(e, n->outputs[KEY_VALUE]);
  exchange_kv(e, g, n, k, v, (ref[]){ others, last, 0 });
  for (int64_t i = 0; i < ranks; i++) {
    emit_vector(e, "output_of_step", type, tensor_elements(g, n->outputs[OUTPUT]));
    emit_vector(e, "log_sums_of_step", DTYPE_FP32, tensor_elements(g, n->outputs[LOG_SUMS]));
  }
  ref o = emit_output(e, n->outputs[OUTPUT]);
  ref lse = emit_output(e, n->outputs[LOG_SUMS]);
  ref rng = emit_output(e, n->outputs[GENERATOR]);
  emit_kernel(e, attention_shape(e, g, n, KERNEL_ATTENTION_FORWARD),
              (ref[]){ q, k, v, others, last, 0 }, (ref[]){ o, lse, rng, 0 });
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_JOIN,
                              .type = type,
                              .dims = { 1, tensor_elements(g, n->inputs[1]),
                                        tensor_elements(g, n->inputs[2]) } },
              (ref[]){ k, v, 0 }, (ref[]){ last, 0 });
}

static void attention_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref q = emit_input(e, n->inputs[0]);
  ref k = emit_input(e, n->inputs[1]);
  ref v = emit_input(e, n->inputs[2]);
  if (keeps_joined_kv(n)) {
    ring_forward(e, g, n, q, k, v);
    return;
  }
  ref kv = exchanged_kv(e, g, n, k, v);
  ref o = emit_output(e, n->outputs[0]);
  ref lse = emit_output(e, n->outputs[1]);
  ref rng = n->outputs[2] != 0 ? emit_output(e, n->outputs[2]) : 0;
  emit_kernel(e, attention_shape(e, g, n, KERNEL_ATTENTION_FORWARD), (ref[]){ q, k, v, kv, 0 },
              (ref[]){ o, lse, rng, 0 });
}

/* The gradients of query, key and value. With an interleaved layout they are slices of one
 * buffer, as the tensors are slices of the projection. Returns the buffers' bytes. */
static int64_t new_gradients(emitter *e, const graph *g, const graph_node *n, ref gradients[3])
{
  int64_t elements = 0, bytes = 0;
  if (!(n->flags & ATTENTION_JOINED_GRADIENT)) {
    for (int i = 0; i < 3; i++) {
      gradients[i] = emit_grad_for(e, n->inputs[i]);
      bytes += emit_bytes(e, gradients[i]);
    }
    return bytes;
  }
  for (int i = 0; i < 3; i++)
    elements += tensor_elements(g, n->inputs[i]);
  ref joined = emit_vector(e, "qkv_gradient", type_of(g, n->inputs[0]), elements);
  for (int i = 0; i < 3; i++) {
    const plan_view *v = &g->tensors.items[n->inputs[i]].view;
    gradients[i] =
        emit_strided(e, joined, (dtype)v->dtype, v->offset, v->rank, v->shape, v->strides);
    emit_grad_is(e, n->inputs[i], gradients[i]);
  }
  return emit_bytes(e, joined);
}

/*
 * cuDNN's fused backward: the sums of gradient x output (softmax_d); the query's gradient in fp32, or, if
 * the sum has to have one order, the gradient of the scores, whose product with the keys is a kernel of its
 * own; keys' and values' gradients by query head. Transformer Engine 2.13 with cuDNN 9.19 asked for these
 * bytes and 256 on an H200 (32 heads of 8 groups, 8192 tokens) and, deterministic, on an H100 (the same, and
 * 8 heads, 1024 tokens). Other GPUs are assumed to need the sums alone.
 */
static int64_t cudnn_workspace_bytes(const settings *s, const graph *g, const graph_node *n)
{
  enum { HOPPER = 90, ALIGNMENT = 256 };
  int64_t rows = n->dims[BATCH] * n->dims[HEADS] * n->dims[Q_LEN];
  int64_t keys = n->flags & ATTENTION_CP_GATHER ? n->dims[KV_LEN] : n->dims[KV_LEN] / n->dims[CP];
  int64_t bytes = rows * dtype_bytes(DTYPE_FP32), element = dtype_bytes(type_of(g, n->inputs[0]));
  if (s->derived.compute_capability != HOPPER) return bytes;
  bytes += s->software.nvte_allow_nondeterministic_algo
               ? tensor_elements(g, n->inputs[0]) * dtype_bytes(DTYPE_FP32)
               : rows * keys * element;
  if (n->dims[KV_HEADS] != n->dims[HEADS])
    bytes += n->dims[BATCH] * n->dims[HEADS] * keys * (n->dims[QK_DIM] + n->dims[V_DIM]) * element;
  return bytes + ALIGNMENT;
}

enum { ATTENTION_SAVED = 5, ATTENTION_RNG = 5 };

static void add_workspaces(emitter *e, const graph *g, const graph_node *n, ref_list *to)
{
  if (!(n->flags & ATTENTION_FLASH)) {
    list_add(to, emit_temporary(e, "cudnn_workspace", DTYPE_BYTE,
                                cudnn_workspace_bytes(emit_settings(e), g, n), 0, 0, 0,
                                CLASS_WORKSPACE));
    return;
  }
  list_add(to, emit_temporary(e, "dq_accumulator", DTYPE_FP32, tensor_elements(g, n->inputs[0]), 0,
                              0, 0, CLASS_WORKSPACE));
  list_add(to, emit_temporary(e, "softmax_d", DTYPE_FP32, n->dims[BATCH], n->dims[HEADS],
                              n->dims[Q_LEN], 0, CLASS_WORKSPACE));
}

/* Keys, and after them the values, as elements `first` and on of a buffer. */
typedef struct key_value_views {
  ref key, value;
} key_value_views;

static key_value_views views_of(emitter *e, const graph *g, const graph_node *n, ref of,
                                int64_t first)
{
  dtype type = type_of(g, n->inputs[0]);
  const int64_t *key = g->tensors.items[n->inputs[1]].shape,
                *value = g->tensors.items[n->inputs[2]].shape;
  return (key_value_views){
    emit_strided(e, of, type, first, 4, key, NULL),
    emit_strided(e, of, type, first + tensor_elements(g, n->inputs[1]), 4, value, NULL),
  };
}

enum { RING_QUERY, RING_KEY_VALUE, RING_OUTPUT, RING_LOG_SUMS, RING_GENERATOR };

/* Two buffers take turns, each with keys and values and with gradients of them; what the last step receives
 * is a part of the first. A step's own gradients are tensors of their own. */
static void ring_backward(emitter *e, const graph *g, const graph_node *n, ref gy)
{
  dtype type = type_of(g, n->inputs[0]);
  ref gq = emit_grad_for(e, n->inputs[0]);
  ref all = of_all_ranks(e, g, n, "exchanged_kv");
  ref gradients = of_all_ranks(e, g, n, "exchanged_kv_gradient");
  key_value_views saved = views_of(e, g, n, emit_saved(e, RING_KEY_VALUE), 0);
  key_value_views own = views_of(e, g, n, all, kv_part(n));
  emit_grad_is(e, n->inputs[1], own.key);
  emit_grad_is(e, n->inputs[2], own.value);
  exchange_kv(e, g, n, saved.key, saved.value, (ref[]){ all, 0 });
  emit_vector(e, "query_gradient_of_step", type, tensor_elements(g, n->inputs[0]));
  emit_vector(e, "kv_gradient_of_step", type, kv_part(n));
  ref_list reads = { .items = { gy, emit_saved(e, RING_QUERY), saved.key, saved.value,
                                emit_saved(e, RING_OUTPUT), emit_saved(e, RING_LOG_SUMS), all },
                     .count = 7 };
  ref_list writes = { .items = { gq, gradients }, .count = 2 };
  add_workspaces(e, g, n, &writes);
  kernel_shape shape = attention_shape(e, g, n, KERNEL_ATTENTION_BACKWARD);
  shape.bytes = list_bytes(e, &reads) + list_bytes(e, &writes);
  list_add(&reads, emit_saved(e, RING_GENERATOR));
  emit_kernel(e, shape, reads.items, writes.items);
  reduce_kv_gradients(e, g, n, gradients, (ref[]){ own.key, own.value, 0 });
}

/* Backward makes the dropout mask again from the generator's state, which counts no bytes. */
static void attention_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  if (keeps_joined_kv(n)) {
    ring_backward(e, g, n, gy);
    return;
  }
  ref_list reads = { .items = { gy }, .count = 1 };
  for (uint32_t i = 0; i < ATTENTION_SAVED; i++)
    list_add(&reads, emit_saved(e, i));
  ref kv = exchanged_kv(e, g, n, emit_saved(e, 1), emit_saved(e, 2));
  list_add(&reads, kv);
  ref gradients[3];
  kernel_shape shape = attention_shape(e, g, n, KERNEL_ATTENTION_BACKWARD);
  shape.bytes = list_bytes(e, &reads) + new_gradients(e, g, n, gradients);
  if (n->saved[ATTENTION_RNG] != 0) list_add(&reads, emit_saved(e, ATTENTION_RNG));
  ref_list writes = { .items = { gradients[0] }, .count = 1 };
  ref all = kv != 0 ? of_all_ranks(e, g, n, "exchanged_kv_gradient") : 0;
  if (all != 0) {
    list_add(&writes, all);
  } else {
    list_add(&writes, gradients[1]);
    list_add(&writes, gradients[2]);
  }
  ref_list workspaces = { .count = 0 };
  add_workspaces(e, g, n, &workspaces);
  shape.bytes += list_bytes(e, &workspaces);
  for (uint32_t i = 0; i < workspaces.count; i++)
    list_add(&writes, workspaces.items[i]);
  emit_kernel(e, shape, reads.items, writes.items);
  if (all != 0) reduce_kv_gradients(e, g, n, all, (ref[]){ gradients[1], gradients[2], 0 });
}

const operator_kind operator_attention = { "attention", attention_forward, attention_backward };

/* Context parallel by all-to-all (context_parallel.py: AttnFuncWithCPAndQKVOA2A): exchanges a
 * part of the sequence with all heads for the whole sequence with a part of the heads. */
static void exchange_heads(emitter *e, const graph *g, tensor_id of, ref from, ref to)
{
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_TO_ALL, GROUP_CP, tensor_bytes(g, of),
                  (ref[]){ from, 0 }, (ref[]){ to, 0 });
}

/* Orders a part of the sequence with all heads by the rank that receives the heads. The whole
 * sequence is already in the order of ranks. */
static ref heads_by_rank(emitter *e, const graph *g, tensor_id t, ref r)
{
  const int64_t *d = g->tensors.items[t].shape;
  int64_t cp = emit_settings(e)->parallel.context_parallel_size;
  assert(d[2] % cp == 0);
  return emit_permuted(e, r, 5, (const int64_t[]){ d[0], d[1], cp, d[2] / cp, d[3] },
                       (const uint8_t[]){ 2, 0, 1, 3, 4 });
}

static bool has_whole_sequence(const graph *g, const graph_node *n, tensor_id t)
{
  tensor_id other = t == n->inputs[0] ? n->outputs[0] : n->inputs[0];
  return g->tensors.items[t].shape[0] > g->tensors.items[other].shape[0];
}

static ref exchange_side(emitter *e, const graph *g, const graph_node *n, tensor_id t, ref r)
{
  return has_whole_sequence(g, n, t) ? r : heads_by_rank(e, g, t, r);
}

static void exchange_heads_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = exchange_side(e, g, n, n->inputs[0], emit_input(e, n->inputs[0]));
  ref y = exchange_side(e, g, n, n->outputs[0], emit_output(e, n->outputs[0]));
  exchange_heads(e, g, n->outputs[0], x, y);
}

static void exchange_heads_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    exchange_heads(e, g, n->outputs[0], exchange_side(e, g, n, n->outputs[0], gy),
                   exchange_side(e, g, n, n->inputs[0], gx));
}

const operator_kind operator_exchange_heads = { "exchange_heads", exchange_heads_forward,
                                                exchange_heads_backward };
