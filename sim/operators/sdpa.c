/*
 * Attention kernels of eager PyTorch.
 *
 * scaled_dot_product_attention with a causal mask takes cuDNN's kernels on Hopper and later
 * (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: check_prefer_cudnn_attention), else
 * those of flash attention (flash_attn/flash_api.cpp: mha_bwd). Both accept fewer key heads than
 * query heads and sum the gradients of a group afterwards.
 */
#include <assert.h>

#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

enum { BATCH, HEADS, Q_LEN, KV_LEN, WIDTH, KV_HEADS, VALUE_WIDTH, WINDOW };

/* The fourth input: a bias of the scores, which hides keys, of which the kernel computes all; or
 * flash attention's sinks, a parameter. */
enum { BIAS = 3, SINKS = 3 };

static kernel_shape kernel_of(emitter *e, const graph *g, const graph_node *n, kernel_kind kind)
{
  double dropout = emit_settings(e)->model.attention_dropout;
  const int64_t *d = n->dims;
  assert(d[HEADS] % d[KV_HEADS] == 0);
  assert(tensor_elements(g, n->inputs[0]) == d[BATCH] * d[HEADS] * d[Q_LEN] * d[WIDTH]);
  return (kernel_shape){
    .kind = kind,
    .type = type_of(g, n->outputs[0]),
    .dims = { d[BATCH], d[HEADS], d[Q_LEN], d[KV_LEN], d[WIDTH], d[VALUE_WIDTH],
              n->kind == &operator_hf_flash_attention || n->inputs[BIAS] == 0, d[WINDOW] },
    .scalars = { (double)d[KV_HEADS], hf_score_factor(emit_settings(e), d[WIDTH]), dropout,
                 ATTENTION_BHSD }
  };
}

static void sdpa_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref q = emit_input(e, n->inputs[0]), k = emit_input(e, n->inputs[1]);
  ref v = emit_input(e, n->inputs[2]);
  ref bias = n->inputs[BIAS] != 0 ? emit_input(e, n->inputs[BIAS]) : 0;
  ref writes[NODE_OUTPUTS + 1] = { 0 };
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    writes[i] = emit_output(e, n->outputs[i]);
  emit_kernel(e, kernel_of(e, g, n, KERNEL_ATTENTION_FORWARD), (ref[]){ q, k, v, bias, 0 }, writes);
}

/* If several query heads share keys and values: gradients of keys and values for every query
 * head. */
static int64_t expanded_elements(const graph_node *n)
{
  const int64_t *d = n->dims;
  bool grouped = d[KV_HEADS] < d[HEADS];
  return grouped ? 2 * d[BATCH] * d[HEADS] * d[KV_LEN] * d[WIDTH] : 0;
}

/* fp32: the sum of dq over blocks of keys, and a number for each row. */
static int64_t accumulator_elements(const graph_node *n)
{
  const int64_t *d = n->dims;
  return d[BATCH] * d[HEADS] * d[Q_LEN] * (d[WIDTH] + 1);
}

/* cuDNN keeps its temporaries and some counters in one workspace. */
enum { COUNTER_BYTES = 256 };

static void cudnn_workspace(emitter *e, const graph *g, const graph_node *n)
{
  int64_t expanded = expanded_elements(n) * dtype_bytes(type_of(g, n->outputs[0]));
  int64_t bytes = accumulator_elements(n) * dtype_bytes(DTYPE_FP32) + expanded + COUNTER_BYTES;
  emit_temporary(e, "workspace", DTYPE_BYTE, bytes, 0, 0, 0, CLASS_WORKSPACE);
}

static void flash_temporaries(emitter *e, const graph *g, const graph_node *n)
{
  int64_t expanded = expanded_elements(n);
  emit_temporary(e, "dq_accumulator", DTYPE_FP32, accumulator_elements(n), 0, 0, 0,
                 CLASS_WORKSPACE);
  if (expanded > 0)
    emit_temporary(e, "dk_dv_expanded", type_of(g, n->outputs[0]), expanded, 0, 0, 0,
                   CLASS_WORKSPACE);
}

/* A view with heads before positions of a tensor with positions before heads. */
static ref heads_first(emitter *e, const graph_node *n, ref r, int64_t length, int64_t heads)
{
  static const uint8_t order[] = { 0, 2, 1, 3 };
  const int64_t shape[] = { n->dims[BATCH], length, heads, n->dims[WIDTH] };
  return emit_permuted(e, r, 4, shape, order);
}

/* The next operator reads the output as rows of positions, so the gradient has positions before
 * heads; unless it copies the output into that order. */
static ref output_gradient(emitter *e, const graph *g, const graph_node *n)
{
  if (g->tensors.items[n->outputs[0]].contiguous) return emit_grad_of(e, n->outputs[0]);
  return heads_first(e, n, emit_grad_of(e, n->outputs[0]), n->dims[Q_LEN], n->dims[HEADS]);
}

typedef void add_saved(emitter *e, const graph_node *n, ref *reads);

/* After the gradient: inputs, then results, in this order even if they are saved in another. */
static void add_sdpa_saved(emitter *e, const graph_node *n, ref *reads)
{
  uint32_t count = 1;
  for (uint32_t i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++)
    reads[count++] = hf_saved(e, n, n->inputs[i]);
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    reads[count++] = hf_saved(e, n, n->outputs[i]);
}

/* The saved tensors are in that order; query, key, value and output have positions before heads. */
static void add_flash_saved(emitter *e, const graph_node *n, ref *reads)
{
  const int64_t *d = n->dims;
  const int64_t length[] = { d[Q_LEN], d[KV_LEN], d[KV_LEN], d[Q_LEN] };
  const int64_t heads[] = { d[HEADS], d[KV_HEADS], d[KV_HEADS], d[HEADS] };
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++) {
    ref r = emit_saved(e, i);
    reads[1 + i] = i < 4 ? heads_first(e, n, r, length[i], heads[i]) : r;
  }
}

static void attention_backward(emitter *e, const graph *g, const graph_node *n, bool cudnn,
                               add_saved *add)
{
  ref reads[NODE_INPUTS + NODE_OUTPUTS + 2] = { output_gradient(e, g, n) };
  add(e, n, reads);
  ref writes[5] = { 0 };
  uint32_t count = 0;
  for (int i = 0; i < 3; i++) {
    ref gradient = emit_grad_for(e, n->inputs[i]);
    if (gradient != 0) writes[count++] = gradient;
  }
  bool has_sinks = n->kind == &operator_hf_flash_attention && n->inputs[SINKS] != 0;
  ref of_sinks = has_sinks ? emit_parameter_grad(e, n->inputs[SINKS], false) : 0;
  if (of_sinks != 0) writes[count++] = of_sinks;
  if (cudnn) {
    cudnn_workspace(e, g, n);
  } else {
    flash_temporaries(e, g, n);
  }
  emit_kernel(e, kernel_of(e, g, n, KERNEL_ATTENTION_BACKWARD), reads, writes);
}

static void sdpa_backward(emitter *e, const graph *g, const graph_node *n)
{
  attention_backward(e, g, n, n->flags != 0, add_sdpa_saved);
}

const operator_kind operator_hf_sdpa = { "sdpa", sdpa_forward, sdpa_backward };

static void flash_backward(emitter *e, const graph *g, const graph_node *n)
{
  attention_backward(e, g, n, false, add_flash_saved);
}

const operator_kind operator_hf_flash_attention = { "flash_attention", sdpa_forward,
                                                    flash_backward };

static void widen_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->outputs[0]),
                     tensor_elements(g, n->outputs[0]), (ref[]){ x, 0 },
                     (ref[]){ emit_output(e, n->outputs[0]), 0 });
}

static void widen_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  emit_memory_kernel(e, KERNEL_ELEMENTWISE, type_of(g, n->inputs[0]),
                     tensor_elements(g, n->inputs[0]), (ref[]){ gy, 0 },
                     (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

const operator_kind operator_hf_widen = { "widen", widen_forward, widen_backward };
