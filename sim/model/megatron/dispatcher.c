#include "sim/model/megatron/dispatcher.h"

#include "sim/model/megatron/expert_activation.h"
#include "sim/operators/moe.h"

static const char site[] = "mlp.token_dispatcher";

/* ---- what they share ------------------------------------------------------------------------- */

static void flag_last(graph *g, int32_t flag)
{
  g->nodes.items[g->nodes.count - 1].flags |= flag;
}

void moe_host_waits(graph *g)
{
  flag_last(g, MOE_STEP_WAITS);
}

void moe_host_polls(graph *g)
{
  flag_last(g, MOE_STEP_POLLS);
}

void moe_lists_parts(graph *g)
{
  flag_last(g, MOE_STEP_LISTED);
}

bool moe_exchanges(const moe_sizes *m)
{
  return m->ep > 1 || m->etp > 1;
}

/* token_dispatcher.py, combine_preprocess and token_combine: the sum runs in the type of the
 * probabilities, and `hidden_states` names `y` until the sum has its type again. */
tensor_id moe_scatter(graph *g, const moe_sizes *m, comm_group group, bool listed, int64_t rows,
                      tensor_id y)
{
  moe_frame frame = { 0 };
  moe_hold(&frame, y);
  tensor_id wide = moe_cast(g, "combined_cast", y, m->router);
  tensor_id part = moe_exchange(g, "combined_part", wide, COLLECTIVE_REDUCE_SCATTER, group, rows);
  if (listed) moe_lists_parts(g);
  tensor_id sum = moe_cast(g, "combined_tokens", part, m->type);
  moe_release(g, &frame);
  return sum;
}

tensor_id moe_weighted_rows(graph *g, const permutation *p, const moe_dispatch *d, tensor_id y)
{
  if (d->weights.probs == 0) return y;
  return expert_weighted(g, y, moe_selected_probs(g, p, d->weights.probs, d->weights.map));
}

/* ---- choice ---------------------------------------------------------------------------------- */

static const moe_dispatcher *dispatcher_of(const settings *s)
{
  switch (s->model.moe_token_dispatcher_type) {
  case DISPATCHER_ALLGATHER: break;
  case DISPATCHER_ALLTOALL:
  case DISPATCHER_ALLTOALL_SEQ: return &moe_alltoall_dispatcher;
  case DISPATCHER_FLEX: return &moe_flex_dispatcher;
  }
  return &moe_allgather_dispatcher;
}

moe_dispatch moe_dispatch_tokens(graph *g, const settings *s, const moe_sizes *m, moe_frame *f,
                                 tensor_id x, moe_routing routing)
{
  graph_site(g, site);
  tensor_id rows = graph_view(g, "tokens", x, true, m->tokens, m->hidden, 0, 0);
  return dispatcher_of(s)->dispatch(g, s, m, f, rows, routing);
}

tensor_id moe_combine_tokens(graph *g, const settings *s, const moe_sizes *m, const moe_dispatch *d,
                             tensor_id expert_output)
{
  graph_site(g, site);
  return dispatcher_of(s)->combine(g, s, m, d, expert_output);
}
