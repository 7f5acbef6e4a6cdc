/* Selective checkpoints: torch.utils.checkpoint's selective contexts, with Axolotl's policy or one that
 * looks at the layer too. */
#ifndef OFFSIM_SIM_MODEL_HF_SELECTIVE_H
#define OFFSIM_SIM_MODEL_HF_SELECTIVE_H

#include "sim/graph/graph.h"

/* The region, of a layer or of half of it, keeps the results of its operators from node `first` on that
 * recompute.selective_checkpointing_save names and selective_checkpointing_mlp_layers leaves, and those that
 * selective_checkpointing_activation_layers adds. `out` is the region's. */
void hf_keep_expensive(graph *g, const settings *s, region_id region, int32_t layer, node_id first,
                       tensor_id out);

#endif
