#include "sim/graph/parts.h"

#include <assert.h>

#include "sim/graph/node.h"
#include "sim/graph/sizes.h"

bool runs_in_parts(const settings *s)
{
  return s->parallel.overlap_moe_expert_parallel_comm;
}

void part_begin(graph *g, const settings *s, part_kind kind)
{
  if (runs_in_parts(s)) graph_part_begin(g, kind);
}

/* NULL if the graph has no parts. */
static graph_part *newest(graph *g)
{
  return g->parts.count > 1 ? &g->parts.items[g->parts.count - 1] : NULL;
}

void part_output(graph *g, tensor_id t)
{
  if (t != 0 && newest(g) != NULL) list_append(newest(g)->outputs, PART_OUTPUTS, t);
}

void part_detached(graph *g, tensor_id t)
{
  if (t != 0 && newest(g) != NULL) list_append(newest(g)->detached, PART_DETACHED, t);
}

void part_freed(graph *g, tensor_id t)
{
  if (t != 0 && newest(g) != NULL) list_append(newest(g)->freed, PART_FREED, t);
}

void part_leaves_graph(graph *g)
{
  if (newest(g) == NULL) return;
  assert(!newest(g)->leaves_graph && g->layer >= 0);
  newest(g)->leaves_graph = true;
  newest(g)->layer = g->layer;
}

bool parts_last_for_the_step(const settings *s)
{
  return !megatron_is_from(s, 20260106, 2025, 10);
}

/* Whether the experts save a copy of their input: low precision does, and so does a permutation
 * before them. */
static bool experts_copy_input(const settings *s, bool flex)
{
  bool deepep = s->model.moe_flex_dispatcher_backend == FLEX_DEEPEP;
  if (s->training.fp8_format != FP8_FORMAT_NONE) return true;
  if (flex) return deepep;
  return s->model.num_experts > s->parallel.expert_model_parallel_size;
}

bool part_frees_input(const settings *s, part_kind kind)
{
  bool flex = s->model.moe_token_dispatcher_type == DISPATCHER_FLEX;
  switch (kind) {
  case PART_DISPATCH:
    return !flex && !has_choice(&s->training.cuda_graph_modules, CAPTURE_MOE_PREPROCESS);
  case PART_MLP: return experts_copy_input(s, flex);
  case PART_COMBINE: return true;
  case PART_PREPROCESS:
  case PART_PRE_DISPATCH:
  case PART_POST_ATTENTION:
  case PART_MTP_POST:
  case PART_POSTPROCESS: break;
  }
  return false;
}
