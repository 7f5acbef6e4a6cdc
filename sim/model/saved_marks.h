/*
 * How Transformer Engine's modules, and those of Megatron-LM that support layer-level offloading,
 * mark the tensors that they save. Sources: mark_activation_offload and start_offload in
 * transformer_engine/pytorch/module and .../attention (TransformerEngine); megatron/core/fusions/
 * fused_bias_swiglu.py and megatron/core/tensor_parallel/layers.py. For eager PyTorch: which
 * tensors it packs before an operator runs (hf/hf.h).
 */
#ifndef OFFSIM_SIM_MODEL_SAVED_MARKS_H
#define OFFSIM_SIM_MODEL_SAVED_MARKS_H

#include "sim/graph/graph.h"

/* Bit k is the operator's k-th saved tensor. */
typedef struct saved_marks {
  uint16_t marked; /* for the first offload engine, which offloads only these */
  uint16_t
      early;     /* complete before the operator begins: the second engine's copy may start there */
  uint16_t base; /* the second engine takes a view's whole storage */
} saved_marks;

saved_marks saved_marks_of(const settings *s, const graph_node *n);

/* fp8: a linear saves its quantised weight too, cached as a tensor subclass without memory of its
 * own (module/base.py, quantize_weight). Elements of one such tensor; 0: none. */
int64_t saved_wrapped_elements(const settings *s, const graph *g, const graph_node *n);

#endif
