#include "sim/model/hf/log_probs.h"

#include "sim/graph/emitter.h"
#include "sim/graph/node.h"
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/shared.h"

enum { TEMPERATURE = 1 }; /* of sampling; it has no key */

/* ---- x /= number: the same storage; the gradient is a new tensor ---- */

static void divide_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  hf_number_kernel(e, KERNEL_DIVIDE, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]),
                   TEMPERATURE, x, x);
}

static void divide_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  hf_number_kernel(e, KERNEL_DIVIDE, type_of(g, n->inputs[0]), tensor_elements(g, n->inputs[0]),
                   TEMPERATURE, gy, emit_grad_for(e, n->inputs[0]));
}

static const operator_kind operator_divide_in_place = { "divide_in_place", divide_forward,
                                                        divide_backward };

/* ---- flash_attn/ops/triton/cross_entropy.py, CrossEntropyLoss, inplace_backward ---- */

enum { KEEPS_LOGITS = 1 }; /* flags: backward does not write over them */

/* dims: rows, vocabulary. */
static kernel_shape rows_kernel(const graph *g, const graph_node *n, kernel_kind kind)
{
  return (kernel_shape){ .kind = kind,
                         .type = type_of(g, n->inputs[0]),
                         .dims = { n->dims[0], n->dims[1] },
                         .scalars = { HF_IGNORED_LABEL } };
}

static void log_probs_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref logits = emit_input(e, n->inputs[0]), labels = emit_input(e, n->inputs[1]);
  ref losses = emit_output(e, n->outputs[0]);
  ref sums = emit_output(e, n->outputs[1]);
  emit_kernel(e, rows_kernel(g, n, KERNEL_LOG_PROBS_FORWARD), (ref[]){ logits, labels, 0 },
              (ref[]){ losses, sums, emit_output(e, n->outputs[2]), 0 });
}

static void log_probs_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]);
  ref logits = emit_saved(e, 0);
  ref gradient = n->flags == KEEPS_LOGITS ? emit_grad_for(e, n->inputs[0]) : logits;
  emit_kernel(e, rows_kernel(g, n, KERNEL_LOG_PROBS_BACKWARD),
              (ref[]){ gy, logits, emit_saved(e, 1), emit_saved(e, 2), 0 }, (ref[]){ gradient, 0 });
  if (gradient == logits) emit_grad_is(e, n->inputs[0], logits);
}

static const operator_kind operator_log_probs = { "log_probs", log_probs_forward,
                                                  log_probs_backward };

/* ---- the entropy of each token's logits (torch_functional.py, entropy_from_logits) ---- */

/* Compiled: one pass over the logits each way, and no tensor of their size but the gradient. */
static void entropy_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref logits = emit_input(e, n->inputs[0]), entropies = emit_output(e, n->outputs[0]);
  emit_row_kernel(e, KERNEL_ROW_SUM_FORWARD, type_of(g, n->inputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ logits, 0 }, (ref[]){ entropies, 0 });
}

static void entropy_backward(emitter *e, const graph *g, const graph_node *n)
{
  ref gy = emit_grad_of(e, n->outputs[0]), logits = emit_saved(e, 0);
  if (gy == 0) return;
  emit_row_kernel(e, KERNEL_WEIGHT_ROWS_FORWARD, type_of(g, n->inputs[0]), n->dims[0], n->dims[1],
                  (ref[]){ logits, gy, 0 }, (ref[]){ emit_grad_for(e, n->inputs[0]), 0 });
}

static const operator_kind operator_entropy = { "entropy", entropy_forward, entropy_backward };

/* ---- the mean over tokens, of which the host reads figures ---- */

static void mean_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  int64_t tokens = tensor_elements(g, n->inputs[0]);
  hf_number_kernel(e, KERNEL_SUM, type_of(g, n->inputs[0]), tokens, 1 / (double)tokens, x,
                   emit_output(e, n->outputs[0]));
  emit_host_read(e);
}

static void mean_backward(emitter *e, const graph *g, const graph_node *n)
{
  tensor_id x = n->inputs[0], mean = n->outputs[0];
  ref gy = hf_expanded(e, g, emit_grad_of(e, mean), mean, x);
  int64_t tokens = tensor_elements(g, x);
  hf_number_kernel(e, KERNEL_DIVIDE, type_of(g, x), tokens, (double)tokens, gy,
                   emit_grad_for(e, x));
}

static const operator_kind operator_token_mean = { "token_mean", mean_forward, mean_backward };

/* ---- the loss ---- */

bool hf_loss_is_log_probs(const settings *s)
{
  return s->training.loss == LOSS_LOG_PROBS;
}

static tensor_id divided(graph *g, tensor_id logits)
{
  graph_tensor t = g->tensors.items[logits];
  graph_node *n = graph_add_of(g, &operator_divide_in_place, logits);
  tensor_id y = hf_result(g, n, "logits", (dtype)t.dtype, t.shape);
  g->tensors.items[y].base = tensor_storage(g, logits);
  return y;
}

static tensor_id log_probs(graph *g, tensor_id logits, tensor_id labels, bool keeps_logits)
{
  graph_tensor t = g->tensors.items[logits];
  const int64_t rows[4] = { t.shape[0] * t.shape[1], 0, 0, 0 };
  graph_node *n = graph_add(g, &operator_log_probs);
  n->dims[0] = rows[0];
  n->dims[1] = t.shape[2];
  n->flags = keeps_logits ? KEEPS_LOGITS : 0;
  node_input(n, logits);
  node_input(n, labels);
  tensor_id losses = hf_result(g, n, "losses", DTYPE_FP32, rows);
  tensor_id sums = hf_side_result(g, n, "logsumexp", DTYPE_FP32, rows);
  hf_side_result(g, n, "z_losses", DTYPE_FP32, rows);
  node_save(n, logits);
  node_save(n, sums);
  node_save(n, labels);
  return losses;
}

/* Nothing flows back from what is only logged. */
static tensor_id entropy(graph *g, tensor_id logits, bool logged)
{
  graph_tensor t = g->tensors.items[logits];
  const int64_t rows[4] = { t.shape[0] * t.shape[1], 0, 0, 0 };
  graph_node *n = graph_add(g, &operator_entropy);
  n->dims[0] = rows[0];
  n->dims[1] = t.shape[2];
  node_input(n, logits);
  if (logged) return hf_side_result(g, n, "entropies", DTYPE_FP32, rows);
  node_save(n, logits);
  return hf_result(g, n, "entropies", DTYPE_FP32, rows);
}

static tensor_id token_mean(graph *g, tensor_id losses)
{
  const int64_t one[4] = { 1, 0, 0, 0 };
  graph_node *n = graph_add_of(g, &operator_token_mean, losses);
  return hf_result(g, n, "loss", DTYPE_FP32, one);
}

tensor_id hf_fused_log_probs_loss(graph *g, tensor_id hidden, tensor_id weight)
{
  graph_tensor w = g->tensors.items[weight];
  const int64_t rows[4] = { tensor_elements(g, hidden) / w.shape[1], 0, 0, 0 };
  tensor_id flat = hf_view(g, "hidden_rows", hidden, true, rows[0], w.shape[1], 0, 0);
  graph_node *n = graph_add(g, &operator_fused_log_probs);
  n->dims[0] = rows[0];
  n->dims[1] = w.shape[1];
  n->dims[2] = w.shape[0];
  node_input(n, flat);
  node_input(n, weight);
  tensor_id log_probs_of = hf_result(g, n, "log_probs", (dtype)w.dtype, rows);
  hf_side_result(g, n, "entropies", (dtype)w.dtype, rows);
  node_save(n, flat);
  node_save(n, weight);
  return token_mean(g, log_probs_of);
}

/* The actor's frame refers to the logits until its function returns. */
tensor_id hf_log_probs_loss(graph *g, const settings *s, tensor_id logits, tensor_id labels)
{
  entropy_choice asked = s->training.entropy;
  graph_site(g, "loss");
  tensor_id scaled = divided(g, logits);
  tensor_id loss = token_mean(g, log_probs(g, scaled, labels, asked != ENTROPY_NONE));
  if (asked != ENTROPY_NONE) {
    tensor_id mean = token_mean(g, entropy(g, scaled, asked == ENTROPY_LOGGED));
    if (asked == ENTROPY_IN_LOSS) loss = hf_add(g, loss, mean);
  }
  graph_keep(g, logits);
  return loss;
}
