#include "sim/offload/megatron_replay.h"

#include <string.h>

/* transformer_layer.py, offload_module_in_cuda_graph. */
static bool captures_copies(const settings *s)
{
  assert(s->training.cuda_graph_impl == GRAPHS_TE);
  const choice_list *modules = &s->offload.offload_modules;

  return has_choice(&s->training.cuda_graph_modules, CAPTURE_ATTN) &&
         (has_choice(modules, OFFLOAD_CORE_ATTN) || has_choice(modules, OFFLOAD_ATTN_PROJ) ||
          has_choice(modules, OFFLOAD_QKV_LINEAR));
}

graph_replay graph_replay_new(const settings *s, iteration_kind iteration, uint32_t groups,
                              arena *a)
{
  bool replays = iteration == ITERATION_STEADY && s->training.cuda_graph_impl == GRAPHS_TE;
  bool delays = replays && s->offload.delay_offload_until_cuda_graph;

  return (graph_replay){ .joins = replays && captures_copies(s),
                         .delays = delays,
                         .delayed = delays ? ARENA_ARRAY(a, delayed_commit, groups) : NULL };
}

/* ---- commits put off ---- */

bool graph_replay_may_delay(const graph_replay *r, const char *name)
{
  assert(name != NULL && name[0] != '\0');
  return r->delays && (strcmp(name, "expert_fc1") == 0 || strcmp(name, "moe_act") == 0);
}

bool graph_replay_delays(graph_replay *r, const saved_group *g, instance_id i, uint32_t group)
{
  if (!graph_replay_may_delay(r, g->name)) return false;
  assert(g->layer >= 0 && group > 0);
  r->delayed[r->delayed_count++] = (delayed_commit){ i, group, g->layer };
  return true;
}

bool graph_replay_due(graph_replay *r, instance_id i, int32_t layer, delayed_commit *due)
{
  if (r->delayed_count == 0) return false;
  *due = r->delayed[0];
  assert(r->delays && due->group > 0);
  if (due->instance == i && due->layer == layer) return false;
  memmove(r->delayed, r->delayed + 1, --r->delayed_count * sizeof *r->delayed);
  return true;
}

void graph_replay_drop(graph_replay *r, instance_id i)
{
  assert(r->delays || r->delayed_count == 0);
  uint32_t left = 0;

  for (uint32_t k = 0; k < r->delayed_count; k++)
    if (r->delayed[k].instance != i) r->delayed[left++] = r->delayed[k];
  r->delayed_count = left;
}

void graph_replay_visit(graph_replay *r, turn_state *t)
{
  turn_plain(t, &r->has_out, sizeof r->has_out);
  turn_plain(t, &r->has_back, sizeof r->has_back);
  if (r->has_out) turn_events(t, &r->out, 1);
  if (r->has_back) turn_events(t, &r->back, 1);
  turn_plain(t, &r->delayed_count, sizeof r->delayed_count);
  assert(r->delays || r->delayed_count == 0);
  for (uint32_t k = 0; k < r->delayed_count; k++) {
    turn_shifted(t, &r->delayed[k].instance);
    turn_plain(t, &r->delayed[k].group, sizeof r->delayed[k].group);
    turn_plain(t, &r->delayed[k].layer, sizeof r->delayed[k].layer);
  }
}

/* ---- copies in graphs ---- */

void graph_replay_committed(graph_replay *r, walk *w)
{
  if (!r->joins) return;
  r->out = act_record(w, STREAM_D2H);
  r->has_out = true;
}

void graph_replay_layer_begin(graph_replay *r, walk *w, layer_pass pass)
{
  assert(r->joins || (!r->has_out && !r->has_back));
  if (pass == PASS_FORWARD && r->has_out) {
    act_wait(w, STREAM_COMPUTE, r->out);
    r->has_out = false;
  }
  if (pass == PASS_BACKWARD && r->has_back) {
    act_wait(w, STREAM_COMPUTE, r->back);
    r->has_back = false;
  }
}

void graph_replay_layer_end(graph_replay *r, walk *w, layer_pass pass)
{
  assert(r->joins || !r->has_back);
  if (!r->joins || pass != PASS_BACKWARD) return;
  r->back = act_record(w, STREAM_H2D);
  r->has_back = true;
}
