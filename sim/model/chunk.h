/* The graph of one virtual stage for one micro-batch, for Megatron-LM and for Hugging Face
 * models. */
#ifndef OFFSIM_SIM_MODEL_CHUNK_H
#define OFFSIM_SIM_MODEL_CHUNK_H

#include "sim/graph/graph.h"

/* The chunk of virtual stage `chunk` on pipeline rank `pp_rank`, in the arena. */
graph *graph_of_chunk(const settings *s, uint32_t pp_rank, uint32_t chunk, arena *a);

#endif
