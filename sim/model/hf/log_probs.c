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
  emit_kernel(e, rows_kernel(g, n, KERNEL_LOG_PROBS_BACKWARD),
              (ref[]){ gy, logits, emit_saved(e, 1), emit_saved(e, 2), 0 }, (ref[]){ logits, 0 });
  emit_grad_is(e, n->inputs[0], logits);
}

static const operator_kind operator_log_probs = { "log_probs", log_probs_forward,
                                                  log_probs_backward };

/* ---- the mean over tokens, of which the host reads figures ---- */

static void mean_forward(emitter *e, const graph *g, const graph_node *n)
{
  ref x = emit_input(e, n->inputs[0]);
  int64_t tokens = tensor_elements(g, n->inputs[0]);
  hf_number_kernel(e, KERNEL_SUM, type_of(g, n->inputs[0]), tokens, 1 / (double)tokens, x,
                   emit_output(e, n->outputs[0]));
  emit_host_sync(e);
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
  graph_node *n = graph_add(g, &operator_divide_in_place);
  node_input(n, logits);
  tensor_id y = hf_result(g, n, "logits", (dtype)t.dtype, t.shape);
  g->tensors.items[y].base = tensor_storage(g, logits);
  return y;
}

static tensor_id log_probs(graph *g, tensor_id logits, tensor_id labels)
{
  graph_tensor t = g->tensors.items[logits];
  const int64_t rows[4] = { t.shape[0] * t.shape[1], 0, 0, 0 };
  graph_node *n = graph_add(g, &operator_log_probs);
  n->dims[0] = rows[0];
  n->dims[1] = t.shape[2];
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

/* The actor's frame refers to the logits until its function returns. */
tensor_id hf_log_probs_loss(graph *g, tensor_id logits, tensor_id labels)
{
  const int64_t one[4] = { 1, 0, 0, 0 };
  graph_site(g, "loss");
  tensor_id losses = log_probs(g, divided(g, logits), labels);
  graph_node *n = graph_add(g, &operator_token_mean);
  node_input(n, losses);
  tensor_id loss = hf_result(g, n, "loss", DTYPE_FP32, one);
  graph_keep(g, logits);
  return loss;
}
