/*
 * Where the parts of a chunk begin, and which tensors they hand over: for schedules that
 * alternate two micro-batches (overlap_moe_expert_parallel_comm). Without it a graph has no
 * parts, and these functions do nothing.
 */
#ifndef OFFSIM_SIM_GRAPH_PARTS_H
#define OFFSIM_SIM_GRAPH_PARTS_H

#include "sim/graph/graph.h"

bool runs_in_parts(const settings *s);

void part_begin(graph *g, const settings *s, part_kind kind);

/* Each adds a tensor to the newest part; 0 is ignored. See graph_part. */
void part_output(graph *g, tensor_id t);
void part_detached(graph *g, tensor_id t);
void part_freed(graph *g, tensor_id t);

/* The newest part leaves its graph; g->layer is its layer. See graph_part. */
void part_leaves_graph(graph *g);

/* Before Megatron-LM a56a0b001d (6 January 2026, #2236) attention was a part of its own, and parts kept their
 * inputs, outputs and gradients until the whole step was over. */
bool parts_last_for_the_step(const settings *s);

/* models/common/utils.py, should_free_input: which parts of a MoE layer empty their input. */
bool part_frees_input(const settings *s, part_kind kind);

#endif
