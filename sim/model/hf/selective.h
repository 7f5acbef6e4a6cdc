/* Selective checkpoints: torch.utils.checkpoint's selective contexts with Axolotl's policy. */
#ifndef OFFSIM_SIM_MODEL_HF_SELECTIVE_H
#define OFFSIM_SIM_MODEL_HF_SELECTIVE_H

#include "sim/graph/graph.h"

/* The region keeps the results of its operators from node `first` on that
 * recompute.selective_checkpointing_save names. */
void hf_keep_expensive(graph *g, const settings *s, region_id region, node_id first);

#endif
