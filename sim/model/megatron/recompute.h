/* Full recomputation of a stage's layers. */
#ifndef OFFSIM_SIM_MODEL_MEGATRON_RECOMPUTE_H
#define OFFSIM_SIM_MODEL_MEGATRON_RECOMPUTE_H

#include "sim/model/megatron/modules.h"

/* The decoder layers of a stage, inside checkpoints where recompute_granularity is full. */
tensor_id decoder_layers(graph *g, const settings *s, const struct stage_content *stage,
                         tensor_id hidden);

#endif
