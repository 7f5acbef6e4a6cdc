/* Liger's kernels instead of eager operators (model.liger_*). */
#ifndef OFFSIM_SIM_MODEL_HF_LIGER_H
#define OFFSIM_SIM_MODEL_HF_LIGER_H

#include "sim/model/hf/eager.h"

/* silu(gate) * up, which saves only its two operands. */
tensor_id hf_liger_glu(graph *g, tensor_id gate, tensor_id up);
/* The loss of hidden states [b, s, h] by the output layer's weight [V, h], without logits in
 * memory. */
tensor_id hf_liger_linear_loss(graph *g, tensor_id hidden, tensor_id weight, tensor_id labels);

#endif
