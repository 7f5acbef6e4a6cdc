/*
 * Attention kernels of eager PyTorch.
 *
 * scaled_dot_product_attention with a causal mask takes cuDNN's kernels on Hopper and later
 * (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: check_prefer_cudnn_attention), else those
 * of flash attention (flash_attn/flash_api.cpp: mha_bwd). Both take fewer key heads than query
 * heads as they are and sum the gradients of a group afterwards.
 */
#include "sim/model/hf/operators_hf.h"
#include "sim/model/operators_shared.h"

enum { BATCH, HEADS, Q_LEN, KV_LEN, WIDTH, KV_HEADS };

static kernel_shape kernel_of(const graph *g, const graph_node *n, kernel_kind kind)
{
  const int64_t *d = n->dims;
  return (
      kernel_shape){ .kind = kind,
                     .type = type_of(g, n->outputs[0]),
                     .dims = { d[BATCH], d[HEADS], d[Q_LEN], d[KV_LEN], d[WIDTH], d[WIDTH], 1 } };
}

static void sdpa_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref q = emit_input(e, n->inputs[0]), k = emit_input(e, n->inputs[1]);
  ref v = emit_input(e, n->inputs[2]);
  ref writes[NODE_OUTPUTS + 1] = { 0 };
  for (uint32_t i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    writes[i] = emit_output(e, n->outputs[i]);
  emit_kernel(e, kernel_of(g, n, KERNEL_ATTENTION_FORWARD), (ref[]){ q, k, v, 0 }, writes);
}

/* Gradients of keys and values for every query head, where a group shares them. */
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

/* cuDNN has its temporaries in one workspace, with some counters. */
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

static void attention_backward(emitter *e, const graph *g, const graph_node *n, bool cudnn)
{
  ref reads[NODE_SAVED + 2] = { emit_grad_of(e, n->outputs[0]) };
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++)
    reads[i + 1] = emit_saved(e, i);
  ref writes[4] = { 0 };
  uint32_t count = 0;
  for (int i = 0; i < 3; i++) {
    ref gradient = emit_grad_for(e, n->inputs[i]);
    if (gradient != 0) writes[count++] = gradient;
  }
  if (cudnn) {
    cudnn_workspace(e, g, n);
  } else {
    flash_temporaries(e, g, n);
  }
  emit_kernel(e, kernel_of(g, n, KERNEL_ATTENTION_BACKWARD), reads, writes);
}

static void sdpa_backward(emitter *e, const graph *g, const graph_node *n)
{
  attention_backward(e, g, n, n->flags != 0);
}

const operator_kind operator_hf_sdpa = { "sdpa", sdpa_forward, sdpa_backward };

static void flash_backward(emitter *e, const graph *g, const graph_node *n)
{
  attention_backward(e, g, n, false);
}

const operator_kind operator_hf_flash_attention = { "flash_attention", sdpa_forward,
                                                    flash_backward };
