/* Selective checkpoints: torch.utils.checkpoint's selective contexts with Axolotl's policy. */
#ifndef OFFSIM_SIM_MODEL_HF_SELECTIVE_H
#define OFFSIM_SIM_MODEL_HF_SELECTIVE_H

#include "sim/graph/graph.h"

/* What the operators from node `first` on make is kept by the region that they stand in, where
 * recompute.selective_checkpointing_save names them. */
void hf_keep_expensive(graph *g, const settings *s, region_id region, node_id first);

#endif
