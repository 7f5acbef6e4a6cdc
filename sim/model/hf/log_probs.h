/*
 * The loss of a policy: log-probabilities of the sampled tokens, as verl computes them
 * (verl/workers/actor/dp_actor.py, _forward_micro_batch; verl/utils/torch_functional.py,
 * logprobs_from_logits with flash-attn's cross entropy). The logits stay in the model's type and
 * are divided by the temperature in place; backward writes the gradient over them.
 *
 * What follows for each token (clipping, KL divergence) is of the size of the tokens and left out.
 */
#ifndef OFFSIM_SIM_MODEL_HF_LOG_PROBS_H
#define OFFSIM_SIM_MODEL_HF_LOG_PROBS_H

#include "sim/graph/graph.h"

/* training.loss asks for it. The host reads figures of it twice (`.item()`): before backward and
 * after. */
bool hf_loss_is_log_probs(const settings *s);

/* A scalar. */
tensor_id hf_log_probs_loss(graph *g, tensor_id logits, tensor_id labels);

#endif
