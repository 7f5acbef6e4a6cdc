/*
 * The end of the model: the final norm, lm_head and the loss (transformers modeling_llama.py:
 * LlamaForCausalLM.forward; loss/loss_utils.py: ForCausalLMLoss). Labels are shifted by padding.
 */
#include "sim/model/hf/eager.h"
#include "sim/model/hf/liger.h"
#include "sim/model/hf/log_probs.h"
#include "sim/operators/hf.h"

static tensor_id shifted(graph *g, tensor_id labels)
{
  graph_tensor t = g->tensors.items[labels];
  const int64_t rows = t.shape[0], longer[4] = { rows, t.shape[1] + 1, 0, 0 };
  graph_node *n = graph_add_of(g, &operator_hf_pad, labels);
  tensor_id padded = hf_side_result(g, n, "labels_padded", DTYPE_INT64, longer);
  tensor_id view = hf_view(g, "labels_shifted", padded, rows == 1, rows, t.shape[1], 0, 0);
  g->tensors.items[view].offset_elements = 1;
  if (rows > 1)
    graph_strides(g, view, 1, 2, g->tensors.items[view].shape, (int64_t[]){ longer[1], 1 });
  return rows == 1 ? view : hf_copy(g, "labels_shifted", view);
}

static tensor_id log_softmax(graph *g, tensor_id rows)
{
  graph_tensor t = g->tensors.items[rows];
  graph_node *n = graph_add_of(g, &operator_hf_log_softmax, rows);
  n->dims[0] = t.shape[0];
  n->dims[1] = t.shape[1];
  tensor_id y = hf_result(g, n, "log_probabilities", DTYPE_FP32, t.shape);
  if (hf_needs_gradient(g, y)) node_save(n, y);
  return y;
}

static tensor_id nll_loss(graph *g, tensor_id rows, tensor_id labels)
{
  const int64_t one[4] = { 1, 0, 0, 0 }, *of = g->tensors.items[rows].shape;
  graph_node *n = graph_add(g, &operator_hf_nll_loss);
  n->dims[0] = of[0];
  n->dims[1] = of[1];
  node_input(n, rows);
  node_input(n, labels);
  tensor_id loss = hf_result(g, n, "loss", DTYPE_FP32, one);
  tensor_id weight = hf_side_result(g, n, "total_weight", DTYPE_FP32, one);
  if (!hf_needs_gradient(g, loss)) return loss;
  node_save(n, rows);
  node_save(n, labels);
  node_save(n, weight);
  return loss;
}

/* The loss function's frame refers to the converted logits until it returns; the model's frame
 * refers to the logits. */
static tensor_id loss_of(graph *g, tensor_id logits, tensor_id labels)
{
  graph_site(g, "loss");
  graph_tensor t = g->tensors.items[logits];
  tensor_id wide = hf_cast(g, logits, DTYPE_FP32);
  tensor_id targets = shifted(g, labels);
  int64_t rows = t.shape[0] * t.shape[1];
  tensor_id flat = hf_view(g, "logits_rows", wide, true, rows, t.shape[2], 0, 0);
  tensor_id flat_targets = hf_view(g, "labels_rows", targets, true, rows, 0, 0, 0);
  g->tensors.items[flat_targets].offset_elements = g->tensors.items[targets].offset_elements;
  tensor_id loss = nll_loss(g, log_softmax(g, flat), flat_targets);
  graph_keep(g, wide);
  graph_keep(g, logits);
  return loss;
}

static tensor_id output_layer(graph *g, const settings *s, tensor_id hidden, tensor_id tied)
{
  graph_site(g, "lm_head");
  hf_linear_spec spec = { .module = "lm_head",
                          .inputs = s->model.hidden_size,
                          .outputs = s->model.padded_vocab_size };
  tensor_id logits =
      tied != 0 ? hf_linear_with(g, hidden, tied, 0) : hf_linear(g, s, &spec, hidden);
  logits = hf_multiplied(g, logits, 1 / s->model.logits_scaling);
  return hf_softcap(g, s->model.final_logit_softcapping, logits);
}

/* Liger and verl's fused kernel take hidden states and the output layer's weight; the layer
 * itself is not called. */
static tensor_id chunked_loss(graph *g, const settings *s, tensor_id hidden, tensor_id labels,
                              tensor_id tied)
{
  graph_site(g, "lm_head");
  tensor_id weight =
      tied != 0 ? tied
                : hf_parameter(g, s, "weight", s->model.padded_vocab_size, s->model.hidden_size);
  graph_site(g, "loss");
  if (hf_loss_is_log_probs(s)) return hf_fused_log_probs_loss(g, hidden, weight);
  return hf_liger_linear_loss(g, hidden, weight, shifted(g, labels));
}

static group_id start_group(graph *g, const settings *s, const char *name)
{
  return offload_scope_of(s) == OFFLOAD_STEP ? graph_group_start(g, name) : 0;
}

static void end_group(graph *g, group_id group)
{
  if (group == 0) return;
  graph_group_hooks_end(g, group);
  graph_group_commit(g, group);
}

/* TRL's context manager turns its hooks off inside the output layer. */
static bool excludes_output_layer(const settings *s)
{
  bool trl = s->offload.system == SYSTEM_trl || s->offload.system == SYSTEM_trl_sync;
  return trl && s->offload.exclude_output_layer;
}

/* If the hooks are off inside the output layer, one group precedes it and one follows. */
tensor_id hf_head(graph *g, const settings *s, tensor_id hidden, tensor_id labels, tensor_id tied,
                  const tensor_id *held, uint32_t count)
{
  bool excluded = excludes_output_layer(s);
  group_id group = start_group(g, s, "head");
  tensor_id normed = hf_norm(g, s, "norm", s->model.hidden_size, hidden);
  for (uint32_t i = 0; i < count; i++)
    if (held[i] != 0) graph_keep(g, held[i]);
  if (excluded) end_group(g, group);
  bool chunked = s->model.liger_fused_linear_cross_entropy || s->model.fused_log_probs;
  tensor_id logits = chunked ? 0 : output_layer(g, s, normed, tied);
  if (excluded) group = start_group(g, s, "loss");
  tensor_id loss = chunked                   ? chunked_loss(g, s, normed, labels, tied)
                   : hf_loss_is_log_probs(s) ? hf_log_probs_loss(g, s, logits, labels)
                                             : loss_of(g, logits, labels);
  graph_keep(g, normed);
  end_group(g, group);
  return loss;
}
