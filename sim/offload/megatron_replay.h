/*
 * What graphs captured by Transformer Engine change in Megatron's fine-grained offloading, from the
 * second iteration on.
 *
 * Copies of attention's groups are nodes of their layer's graph, which joins the copy streams at
 * its end (fine_grained_activation_offload.py, forward_record and backward_record): the graph of
 * the next layer begins after them, although nothing else waits.
 *
 * delay_offload_until_cuda_graph: commits of expert_fc1 and moe_act stay behind until the host is
 * back from the replay of the next layer's graph (transformer_layer.py,
 * _te_cuda_graph_replay_impl).
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
  bool has_out, has_back; /* copies that the next layer's graph begins after */
  event_id out, back;
  delayed_commit *delayed; /* in order */
  uint32_t delayed_count;
} graph_replay;

/* Room for so many commits. */
graph_replay graph_replay_new(const settings *s, iteration_kind iteration, uint32_t groups,
                              arena *a);

/* Whether the commit is put off. */
bool graph_replay_delays(graph_replay *r, const saved_group *g, instance_id i, uint32_t group);
/* Whether commits of that name may be. */
bool graph_replay_may_delay(const graph_replay *r, const char *name);
/* The next commit put off by another layer than this one: one that is due. */
bool graph_replay_due(graph_replay *r, instance_id i, int32_t layer, delayed_commit *due);
/* An instance has come back: what is still put off of it is not needed. */
void graph_replay_drop(graph_replay *r, instance_id i);

/* A group of attention has been committed. */
void graph_replay_committed(graph_replay *r, walk *w);
void graph_replay_layer_begin(graph_replay *r, walk *w, layer_pass pass);
void graph_replay_layer_end(graph_replay *r, walk *w, layer_pass pass);

#endif
