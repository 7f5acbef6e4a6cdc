/*
 * Attention: splitting the fused projection, rotary embedding, and the core, fused or as its parts.
 *
 * Transformer Engine: attention/dot_product_attention/backends.py, attention/rope.py (d0067d0d);
 * Megatron-LM: core/models/common/embeddings/rope_utils.py,
 * core/transformer/dot_product_attention.py.
 */
#include "sim/model/operators.h"

#include "sim/model/operators_shared.h"

/* ---- split ----------------------------------------------------------------------------------- */

/* Views cost nothing. */
static void split_forward(emitter *e, const graph *g, const graph_node *n)
{
  (void)g;
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    emit_output(e, n->outputs[i]);
}

/* Parts without a gradient are zeros inside the joined one. */
static void split_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref parts[NODE_OUTPUTS + 1] = { 0 };
  uint32_t count = 0;
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++) {
    ref part = emit_grad_of(e, n->outputs[i]);
    if (part != 0) parts[count++] = part;
  }
  if (count == 0) return;
  if (n->flags != 0) {
    emit_grad_is(e, n->inputs[0], parts[0]);
    return;
  }
  ref gx = emit_grad_for(e, n->inputs[0]);
  if (gx != 0)
    emit_memory_kernel(e, KERNEL_COPY, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]),
                       parts, (ref[]){ gx, 0 });
}

const operator_kind operator_split = { "split", split_forward, split_backward };

/* ---- rotary embedding ------------------------------------------------------------------------ */

static void rope_kernel(emitter *e, const graph *g, const graph_node *n, kernel_kind kind, ref x,
                        ref y)
{
  emit_kernel(e,
              (kernel_shape){ .kind = kind,
                              .type = type_of(g, n->inputs[0]),
                              .dims = { n->dims[0], n->dims[1], n->dims[2] } },
              (ref[]){ x, 0 }, (ref[]){ y, 0 });
}

/* Without fusion (rope_utils.py: _apply_rotary_pos_emb_bshd): x cos, the rotated half, the rotated
 * half times sin, their sum, and the concatenation with the part that is not rotated, each a new
 * tensor. */
static ref rope_apart(emitter *e, const graph *g, const graph_node *n, ref x)
{
  tensor_id of = n->inputs[0];
  dtype type = type_of(g, of);
  int64_t elements = n->dims[0] * n->dims[1] * n->dims[2];
  ref scaled = emit_temporary(e, "x_cos", type, elements, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ x, 0 }, (ref[]){ scaled, 0 });
  ref negated = emit_temporary(e, "negated_half", type, elements / 2, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements / 2, (ref[]){ x, 0 },
                     (ref[]){ negated, 0 });
  ref rotated = emit_temporary(e, "rotated_half", type, elements, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_COPY, type, elements, (ref[]){ x, negated, 0 },
                     (ref[]){ rotated, 0 });
  emit_drop(e, negated);
  ref turned = emit_temporary(e, "rotated_sin", type, elements, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ rotated, 0 },
                     (ref[]){ turned, 0 });
  emit_drop(e, rotated);
  ref sum = emit_temporary(e, "rotated", type, elements, 0, 0, 0, CLASS_TRANSIENT);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type, elements, (ref[]){ scaled, turned, 0 },
                     (ref[]){ sum, 0 });
  emit_drop(e, scaled);
  emit_drop(e, turned);
  return sum;
}

static void rope_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  if (n->flags != 0) {
    emit_output(e, n->outputs[1]);
    emit_output(e, n->outputs[2]);
    x = rope_apart(e, g, n, x);
  }
  rope_kernel(e, g, n, KERNEL_ROPE_FORWARD, x, emit_output(e, n->outputs[0]));
}

/* A rotation in place turns the gradient in place too. */
static void rope_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  bool in_place = tensor_storage(g, n->outputs[0]) == tensor_storage(g, n->inputs[0]);
  if (in_place) emit_grad_is(e, n->inputs[0], gy);
  ref gx = in_place ? gy : emit_grad_for(e, n->inputs[0]);
  if (gx != 0) rope_kernel(e, g, n, KERNEL_ROPE_BACKWARD, gy, gx);
}

const operator_kind operator_rope = { "rope", rope_forward, rope_backward };

/* Triton kernels of fusions/fused_mla_yarn_rope_apply.py, or the concatenations without them: both
 * write new keys and values, and one gradient each for the projection and the rotary part. */
static void mla_key_value_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref kv = emit_input(e, n->inputs[0]);
  ref rotary = emit_input(e, n->inputs[1]);
  ref key = emit_output(e, n->outputs[0]);
  ref value = emit_output(e, n->outputs[1]);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_ROPE_FORWARD,
                              .type = type_of(g, n->inputs[0]),
                              .dims = { n->dims[0], n->dims[1], n->dims[2] } },
              (ref[]){ kv, rotary, 0 }, (ref[]){ key, value, 0 });
}

static void mla_key_value_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gkey = emit_grad_of(e, n->outputs[0]);
  ref gvalue = emit_grad_of(e, n->outputs[1]);
  if (gkey == 0) return;
  ref gkv = emit_grad_for(e, n->inputs[0]);
  ref grotary = emit_grad_for(e, n->inputs[1]);
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_ROPE_BACKWARD,
                              .type = type_of(g, n->inputs[0]),
                              .dims = { n->dims[0], n->dims[1], n->dims[2] } },
              (ref[]){ gkey, gvalue, 0 }, (ref[]){ gkv, grotary, 0 });
}

const operator_kind operator_mla_key_value = { "mla_key_value", mla_key_value_forward,
                                               mla_key_value_backward };

/* ---- the core in one kernel ------------------------------------------------------------------ */

enum { BATCH, HEADS, Q_LEN, KV_LEN, QK_DIM, V_DIM, CP, KV_HEADS };

static kernel_shape attention_shape(const graph *g, const graph_node *n, kernel_kind kind)
{
  return (kernel_shape){ .kind = kind,
                         .type = type_of(g, n->inputs[0]),
                         .dims = { n->dims[BATCH], n->dims[HEADS], n->dims[Q_LEN], n->dims[KV_LEN],
                                   n->dims[QK_DIM], n->dims[V_DIM], 1 } };
}

static int64_t kv_elements(const graph_node *n)
{
  return n->dims[BATCH] * n->dims[KV_LEN] * n->dims[KV_HEADS] * (n->dims[QK_DIM] + n->dims[V_DIM]);
}

/* Ring (context_parallel.py: AttnFuncWithCPAndKVP2P): keys and values of the neighbour arrive while
 * those at hand are multiplied, in a new buffer for each step; all buffers stay until the end, as
 * do the outputs of the steps. All-gather (AttnFuncWithCPAndKVAllGather): keys and values of the
 * whole sequence at once. */
static ref exchange_kv(emitter *e, const graph *g, const graph_node *n, ref k, ref v)
{
  if (n->dims[CP] <= 1) return 0;
  dtype type = type_of(g, n->inputs[0]);
  int64_t part = kv_elements(n) / n->dims[CP];
  bool gathers = (n->flags & ATTENTION_CP_GATHER) != 0;
  ref kv = emit_temporary(e, "exchanged_kv", type, n->dims[CP] * part, 0, 0, 0, CLASS_TRANSIENT);
  if (!gathers) emit_join(e, STREAM_COMM, STREAM_COMPUTE);
  emit_collective(e, gathers ? STREAM_COMPUTE : STREAM_COMM,
                  gathers ? COLLECTIVE_ALL_GATHER : COLLECTIVE_ALL_TO_ALL, GROUP_CP,
                  part * dtype_bytes(type) * (gathers ? 1 : n->dims[CP] - 1), (ref[]){ k, v, 0 },
                  (ref[]){ kv, 0 });
  if (!gathers) emit_join(e, STREAM_COMPUTE, STREAM_COMM);
  return kv;
}

static void attention_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref q = emit_input(e, n->inputs[0]);
  ref k = emit_input(e, n->inputs[1]);
  ref v = emit_input(e, n->inputs[2]);
  ref kv = exchange_kv(e, g, n, k, v);
  if (n->dims[CP] > 1 && !(n->flags & ATTENTION_CP_GATHER))
    emit_temporary(e, "outputs_of_steps", type_of(g, n->inputs[0]),
                   n->dims[CP] * tensor_elements(g, n->outputs[0]), 0, 0, 0, CLASS_TRANSIENT);
  ref o = emit_output(e, n->outputs[0]);
  ref lse = emit_output(e, n->outputs[1]);
  ref rng = n->outputs[2] != 0 ? emit_output(e, n->outputs[2]) : 0;
  emit_kernel(e, attention_shape(g, n, KERNEL_ATTENTION_FORWARD), (ref[]){ q, k, v, kv, 0 },
              (ref[]){ o, lse, rng, 0 });
}

/* Lists of operands end with 0: optional ones are left out. */
typedef struct ref_list {
  ref items[12];
  uint32_t count;
} ref_list;

static void list_add(ref_list *list, ref r)
{
  if (r != 0) list->items[list->count++] = r;
}

/* Interleaved layouts get one gradient buffer for query, key and value, of which each is a slice.
 */
static ref_list attention_gradients(emitter *e, const graph *g, const graph_node *n)
{
  ref_list list = { 0 };
  if (!(n->flags & ATTENTION_JOINED_GRADIENT)) {
    for (int i = 0; i < 3; i++)
      list_add(&list, emit_grad_for(e, n->inputs[i]));
    return list;
  }
  int64_t elements = 0;
  for (int i = 0; i < 3; i++)
    elements += tensor_elements(g, n->inputs[i]);
  ref joined = emit_temporary(e, "qkv_gradient", type_of(g, n->inputs[0]), elements, 0, 0, 0,
                              CLASS_TRANSIENT);
  for (int i = 0; i < 3; i++)
    emit_grad_is(e, n->inputs[i], joined);
  list_add(&list, joined);
  return list;
}

static void attention_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  ref_list reads = { .items = { gy }, .count = 1 };
  for (uint32_t i = 0; i < 5; i++)
    list_add(&reads, emit_saved(e, i));
  list_add(&reads, exchange_kv(e, g, n, emit_saved(e, 1), emit_saved(e, 2)));
  ref_list writes = attention_gradients(e, g, n);
  if (n->flags & ATTENTION_FLASH)
    list_add(&writes, emit_temporary(e, "dq_accumulator", DTYPE_FP32,
                                     tensor_elements(g, n->inputs[0]), 0, 0, 0, CLASS_WORKSPACE));
  list_add(&writes, emit_temporary(e, "softmax_d", DTYPE_FP32, n->dims[BATCH], n->dims[HEADS],
                                   n->dims[Q_LEN], 0, CLASS_WORKSPACE));
  emit_kernel(e, attention_shape(g, n, KERNEL_ATTENTION_BACKWARD), reads.items, writes.items);
}

const operator_kind operator_attention = { "attention", attention_forward, attention_backward };

/* Context parallel by all-to-all (context_parallel.py: AttnFuncWithCPAndQKVOA2A): a part of the
 * sequence with all heads against the whole sequence with a part of the heads. */
static void exchange_heads(emitter *e, const graph *g, tensor_id of, ref from, ref to)
{
  emit_collective(e, STREAM_COMPUTE, COLLECTIVE_ALL_TO_ALL, GROUP_CP, tensor_bytes(g, of),
                  (ref[]){ from, 0 }, (ref[]){ to, 0 });
}

static void exchange_heads_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  exchange_heads(e, g, n->outputs[0], x, emit_output(e, n->outputs[0]));
}

static void exchange_heads_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0) exchange_heads(e, g, n->outputs[0], gy, gx);
}

const operator_kind operator_exchange_heads = { "exchange_heads", exchange_heads_forward,
                                                exchange_heads_backward };

/* ---- the core as its parts ------------------------------------------------------------------- */

enum { MM_BATCH, MM_M, MM_N, MM_K };

/* TE's unfused attention makes an empty tensor of the scores' size for baddbmm, whose product is
 * another (backends.py: UnfusedDotProductAttention). Megatron's own takes it from a buffer that
 * stays. */
static void batched_matmul_forward(emitter *e, const graph *g, const graph_node *n)
{
  dtype type = type_of(g, n->inputs[0]);
  ref a = emit_input(e, n->inputs[0]);
  ref b = emit_input(e, n->inputs[1]);
  if (n->flags != 0)
    emit_temporary(e, "baddbmm_input", type, n->dims[MM_BATCH], n->dims[MM_M], n->dims[MM_N], 0,
                   CLASS_TRANSIENT);
  emit_gemm(e, type, n->dims[MM_M], n->dims[MM_N], n->dims[MM_K], n->dims[MM_BATCH],
            (ref[]){ a, b, 0 }, emit_output(e, n->outputs[0]));
}

static void batched_matmul_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  if (gy == 0) return;
  dtype type = type_of(g, n->inputs[0]);
  ref ga = emit_grad_for(e, n->inputs[0]);
  if (ga != 0)
    emit_gemm(e, type, n->dims[MM_M], n->dims[MM_K], n->dims[MM_N], n->dims[MM_BATCH],
              (ref[]){ gy, emit_saved(e, 1), 0 }, ga);
  ref gb = emit_grad_for(e, n->inputs[1]);
  if (gb != 0)
    emit_gemm(e, type, n->dims[MM_K], n->dims[MM_N], n->dims[MM_M], n->dims[MM_BATCH],
              (ref[]){ emit_saved(e, 0), gy, 0 }, gb);
}

const operator_kind operator_batched_matmul = { "batched_matmul", batched_matmul_forward,
                                                batched_matmul_backward };

static void softmax_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_row_kernel(e, KERNEL_SOFTMAX_FORWARD, type_of(g, n->outputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void softmax_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    emit_row_kernel(e, KERNEL_SOFTMAX_BACKWARD, type_of(g, n->inputs[0]), n->dims[0], n->dims[1],
                    (ref[]){ gy, emit_saved(e, 0), 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_softmax = { "softmax", softmax_forward, softmax_backward };

static void repeat_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_COPY, type_of(g, n->outputs[0]), tensor_elements(g, n->outputs[0]),
                     (ref[]){ x, 0 }, (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void repeat_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref gx = gy != 0 ? emit_grad_for(e, n->inputs[0]) : 0;
  if (gx != 0)
    emit_memory_kernel(e, KERNEL_REDUCE, type_of(g, n->inputs[0]),
                       tensor_elements(g, n->outputs[0]), (ref[]){ gy, 0 }, (ref[]){ gx, 0 });
}

const operator_kind operator_repeat = { "repeat", repeat_forward, repeat_backward };
