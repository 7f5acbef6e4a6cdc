/*
 * The loss of a policy: log-probabilities of the sampled tokens, as verl computes them
 * (verl/workers/actor/dp_actor.py, _forward_micro_batch; verl/utils/torch_functional.py,
 * logprobs_from_logits with flash-attn's cross entropy). The logits stay in the model's type and
 * are divided by the temperature in place; backward writes the gradient over them.
 *
 * The later steps for each token (clipping, KL divergence) have one number per token and are left
 * out.
 */
#ifndef OFFSIM_SIM_MODEL_HF_LOG_PROBS_H
#define OFFSIM_SIM_MODEL_HF_LOG_PROBS_H

#include "sim/graph/graph.h"

/* Whether training.loss selects it. The host reads metrics of it twice (`.item()`): before
 * backward and after. */
bool hf_loss_is_log_probs(const settings *s);

/* The same of hidden states and the output layer's weight, a chunk of tokens at a time
 * (model.fused_log_probs). */
tensor_id hf_fused_log_probs_loss(graph *g, tensor_id hidden, tensor_id weight);

/* A scalar. */
tensor_id hf_log_probs_loss(graph *g, const settings *s, tensor_id logits, tensor_id labels);

#endif
