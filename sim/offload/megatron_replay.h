/*
 * The effects of graphs captured by Transformer Engine on Megatron's fine-grained offloading, from
 * the second iteration on.
 *
 * Copies of attention's groups are nodes of their layer's graph, which joins the copy streams at
 * its end (fine_grained_activation_offload.py, forward_record and backward_record): the graph of
 * the next layer begins after them, although nothing else waits.
 *
 * delay_offload_until_cuda_graph: commits of expert_fc1 and moe_act wait until the host is back
 * from the replay of the next layer's graph (transformer_layer.py, _te_cuda_graph_replay_impl).
 */
#ifndef OFFSIM_SIM_OFFLOAD_MEGATRON_REPLAY_H
#define OFFSIM_SIM_OFFLOAD_MEGATRON_REPLAY_H

#include "sim/offload/actions.h"

typedef struct delayed_commit {
  instance_id instance;
  uint32_t group;
  int32_t layer;
} delayed_commit;

typedef struct graph_replay {
  bool joins, delays;
  bool has_out, has_back; /* the next layer's graph begins after these copies */
  event_id out, back;
  delayed_commit *delayed; /* in order */
  uint32_t delayed_count;
} graph_replay;

/* `groups`: the most delayed commits. */
graph_replay graph_replay_new(const settings *s, iteration_kind iteration, uint32_t groups,
                              arena *a);

/* Whether the commit is delayed. */
bool graph_replay_delays(graph_replay *r, const saved_group *g, instance_id i, uint32_t group);
/* Whether commits of that name may be delayed. */
bool graph_replay_may_delay(const graph_replay *r, const char *name);
/* The next due commit: one that a layer other than this one delayed. */
bool graph_replay_due(graph_replay *r, instance_id i, int32_t layer, delayed_commit *due);
/* Drops an instance's delayed commits, which its backward no longer needs. */
void graph_replay_drop(graph_replay *r, instance_id i);

/* offload_policy.turn_visit. */
void graph_replay_visit(graph_replay *r, turn_state *t);

/* Call it after the commit of an attention group. */
void graph_replay_committed(graph_replay *r, walk *w);
void graph_replay_layer_begin(graph_replay *r, walk *w, layer_pass pass);
void graph_replay_layer_end(graph_replay *r, walk *w, layer_pass pass);

#endif
