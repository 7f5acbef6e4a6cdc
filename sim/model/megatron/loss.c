/*
 * The output layer, the cross entropy, and the training script's loss (Megatron-LM
 * core/models/gpt/gpt_model.py: _postprocess;
 * core/models/common/language_module/language_module.py: compute_language_model_loss;
 * pretrain_gpt.py: loss_func).
 */
#include "sim/graph/node.h"
#include "sim/model/megatron/modules.h"
#include "sim/operators/operators.h"

/* [batch, sequence] <-> [sequence, batch]: a view, and a copy unless the layout is the same. */
static tensor_id turned(graph *g, const char *name, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  bool same = t.shape[0] == 1 || t.shape[1] == 1;
  tensor_id y = graph_view(g, name, x, same, t.shape[1], t.shape[0], 0, 0);
  if (!same)
    graph_strides(g, y, t.offset_elements, 2, (int64_t[]){ t.shape[1], t.shape[0] },
                  (int64_t[]){ 1, t.shape[1] });
  return y;
}

static tensor_id transposed(graph *g, const char *name, tensor_id x)
{
  tensor_id view = turned(g, name, x);
  if (g->tensors.items[view].contiguous) return view;
  graph_tensor t = g->tensors.items[x];
  tensor_id y = graph_tensor_new(g, name, (dtype)t.dtype, t.shape[1], t.shape[0], 0, 0);
  g->tensors.items[y].requires_grad = t.requires_grad;
  graph_node *n = graph_add_of(g, &operator_copy, view);
  node_output(n, y);
  return y;
}

static int64_t vocabulary_part(const settings *s)
{
  return s->model.padded_vocab_size / size_tp(s);
}

/* ColumnParallelLinear in both implementations, with its own weight or that of the shared
 * embedding. */
static tensor_id output_layer(graph *g, const settings *s, tensor_id hidden)
{
  graph_site(g, "output_layer");
  bool parallel = s->parallel.sequence_parallel && size_tp(s) > 1;
  graph_tensor x = g->tensors.items[hidden];
  int64_t h = s->model.hidden_size;
  int64_t rows = tensor_elements(g, hidden) / h;
  int64_t tp = parallel ? size_tp(s) : 1;
  tensor_id weight = graph_parameter(g, "weight", model_dtype(s), vocabulary_part(s), h);
  tensor_id logits = graph_tensor_new(g, "logits", model_dtype(s), x.shape[0] * tp, x.shape[1],
                                      vocabulary_part(s), 0);
  graph_node *n = graph_add(g, &operator_linear);
  n->structured = true;
  n->flags = parallel         ? LINEAR_GATHERS_INPUT | LINEAR_GATHER_BUFFER
             : size_tp(s) > 1 ? LINEAR_REDUCES_DGRAD
                              : 0;
  if (s->training.defer_embedding_wgrad_compute) n->flags |= LINEAR_DEFERS_WGRAD;
  n->dims[LINEAR_ROWS] = rows;
  n->dims[LINEAR_INPUTS] = h;
  n->dims[LINEAR_OUTPUTS] = vocabulary_part(s);
  n->dims[LINEAR_GEMM_ROWS] = rows * tp;
  node_input(n, hidden);
  node_input(n, weight);
  node_output(n, logits);
  node_save(n, hidden);
  return logits;
}

typedef struct token_shape {
  int64_t sequence, batch, tokens;
} token_shape;

static tensor_id eager_cross_entropy(graph *g, const settings *s, tensor_id logits,
                                     tensor_id labels, token_shape t, int32_t flags)
{
  int64_t v = vocabulary_part(s);
  tensor_id loss = graph_tensor_new(g, "token_losses", DTYPE_FP32, t.sequence, t.batch, 0, 0);
  tensor_id softmax = graph_tensor_new(g, "softmax", DTYPE_FP32, t.sequence, t.batch, v, 0);
  if (g->tensors.items[logits].dtype == DTYPE_FP32)
    g->tensors.items[softmax].base = tensor_storage(g, logits);
  tensor_id mask = graph_constant(g, "target_mask", DTYPE_BYTE, t.sequence, t.batch);
  tensor_id target = graph_constant(g, "masked_target", DTYPE_INT64, t.tokens, 0);
  graph_node *n = graph_add(g, &operator_cross_entropy);
  n->flags = flags;
  n->dims[0] = t.tokens;
  n->dims[1] = v;
  n->dims[2] = size_tp(s);
  node_input(n, logits);
  node_input(n, labels);
  node_output(n, loss);
  node_output(n, softmax);
  node_output(n, mask);
  node_output(n, target);
  node_save(n, softmax);
  node_save(n, mask);
  node_save(n, target);
  return loss;
}

static tensor_id te_cross_entropy(graph *g, const settings *s, tensor_id logits, tensor_id labels,
                                  token_shape t)
{
  tensor_id loss = graph_tensor_new(g, "token_losses", DTYPE_FP32, t.sequence, t.batch, 0, 0);
  bool apart = s->derived.software.transformer_engine >= SOFTWARE_VERSION(2, 18); /* 01bbe3ee */
  tensor_id gradient = apart ? graph_tensor_new(g, "logits_gradient", DTYPE_FP32, t.sequence,
                                                t.batch, vocabulary_part(s), 0)
                             : 0;
  graph_node *n = graph_add(g, &operator_te_cross_entropy);
  n->dims[0] = t.tokens;
  n->dims[1] = vocabulary_part(s);
  n->dims[2] = size_tp(s);
  node_input(n, logits);
  node_input(n, labels);
  node_output(n, loss);
  node_output(n, gradient);
  node_save(n, apart ? gradient : logits);
  return loss;
}

static bool fuses(const settings *s, cross_entropy_fusion_impl_choice whose)
{
  return s->model.cross_entropy_loss_fusion && s->model.cross_entropy_fusion_impl == whose;
}

/* fused_linear_cross_entropy.py: the logits never exist as a whole. */
static tensor_id linear_cross_entropy(graph *g, const settings *s, tensor_id hidden,
                                      tensor_id labels, token_shape t)
{
  graph_site(g, "output_layer");
  int64_t h = s->model.hidden_size;
  tensor_id weight = graph_parameter(g, "weight", model_dtype(s), vocabulary_part(s), h);
  tensor_id loss = graph_tensor_new(g, "token_losses", DTYPE_FP32, t.sequence, t.batch, 0, 0);
  tensor_id maxima = graph_constant(g, "logits_max", DTYPE_FP32, t.tokens, 0);
  tensor_id sums = graph_constant(g, "sum_exp_logits", DTYPE_FP32, t.tokens, 0);
  graph_node *n = graph_add(g, &operator_linear_cross_entropy);
  n->dims[0] = t.tokens;
  n->dims[1] = vocabulary_part(s);
  n->dims[2] = size_tp(s);
  n->dims[3] = h;
  node_input(n, hidden);
  node_input(n, weight);
  node_input(n, labels);
  node_output(n, loss);
  node_output(n, maxima);
  node_output(n, sums);
  node_save(n, hidden);
  node_save(n, maxima);
  node_save(n, sums);
  node_save(n, labels);
  return loss;
}

/* Megatron's native fusion, whose temporaries depend on the image's compiler: measured peaks need
 * one more fp32 tensor of the logits' size with the image of June 2025 than with that of April
 * 2026. When this changed is unknown; September 2025 is assumed, which decides about images in between. */
static int32_t native_flags(const settings *s)
{
  if (!s->model.cross_entropy_loss_fusion) return 0;
  return image_is_from(s, 2025, 9) ? CROSS_ENTROPY_COMPILED
                                   : CROSS_ENTROPY_COMPILED | CROSS_ENTROPY_DIFFERENCE_APART;
}

/* The caller's frame refers to the logits until the losses exist. */
tensor_id loss_of_tokens(graph *g, const settings *s, const micro_batch *data, tensor_id hidden)
{
  graph_tensor label_shape = g->tensors.items[data->labels];
  token_shape t = { label_shape.shape[1], label_shape.shape[0],
                    label_shape.shape[0] * label_shape.shape[1] };
  if (fuses(s, CROSS_ENTROPY_LINEAR))
    return transposed(g, "losses",
                      linear_cross_entropy(g, s, hidden, turned(g, "labels_sb", data->labels), t));
  tensor_id logits = output_layer(g, s, hidden);
  graph_site(g, "loss");
  tensor_id labels = transposed(g, "labels_sb", data->labels);
  tensor_id loss = fuses(s, CROSS_ENTROPY_TE)
                       ? te_cross_entropy(g, s, logits, labels, t)
                       : eager_cross_entropy(g, s, logits, labels, t, native_flags(s));
  tensor_id losses = transposed(g, "losses", loss);
  graph_keep(g, logits);
  graph_keep(g, labels);
  return losses;
}

/* schedules.py, forward_step_calc_loss: the sum over the micro-batch's tokens becomes their mean,
 * and the mean over all micro-batches. The loss mask is one everywhere, so
 * calculate_per_token_loss, which divides the gradients at the end (finalize_model_grads.py),
 * divides them by the same number. */
static double loss_weight(const settings *s, int64_t tokens)
{
  return 1.0 / ((double)tokens * (double)s->derived.num_microbatches);
}

tensor_id loss_head(graph *g, const settings *s, const micro_batch *data, tensor_id token_losses)
{
  graph_site(g, "loss");
  tensor_id total = graph_tensor_new(g, "loss", DTYPE_FP32, 1, 0, 0, 0);
  graph_node *n = graph_add_of(g, &operator_masked_sum, token_losses);
  node_input(n, data->loss_mask);
  node_output(n, total);
  node_save(n, data->loss_mask);
  tensor_id scaled = graph_tensor_new(g, "scaled_loss", DTYPE_FP32, 1, 0, 0, 0);
  n = graph_add(g, &operator_scale);
  node_set_number(n, loss_weight(s, tensor_elements(g, token_losses)));
  node_input(n, total);
  node_output(n, scaled);
  return scaled;
}
