/*
 * Full recomputation (Megatron-LM core/transformer/transformer_block.py: checkpointed_forward).
 *
 *   uniform   every `recompute_num_layers` layers of the stage are one checkpoint
 *   block     the first `recompute_num_layers` layers of the stage are a checkpoint each
 */
#include "sim/model/megatron/recompute.h"

static tensor_id layer_of_stage(graph *g, const settings *s, const struct stage_content *stage,
                                uint32_t i, tensor_id hidden)
{
  uint32_t layer = stage->layers[i];
  layer_place place = { .layer = (int32_t)layer, .moe = s->derived.layer_is_moe[layer] };
  return transformer_layer(g, s, place, hidden);
}

static tensor_id layers_between(graph *g, const settings *s, const struct stage_content *stage,
                                uint32_t from, uint32_t to, tensor_id hidden)
{
  for (uint32_t i = from; i < to; i++)
    hidden = layer_of_stage(g, s, stage, i, hidden);
  return hidden;
}

/* distribute_saved_activations: every TP rank keeps its slice of the input, and backward gathers
 * them. */
static tensor_id distributed_input(graph *g, const settings *s, tensor_id hidden)
{
  if (!s->recompute.distribute_saved_activations || size_tp(s) == 1) return hidden;
  graph_site(g, "checkpoint");
  return sequence_part(g, s, "input_slice", hidden, false);
}

static tensor_id gathered_input(graph *g, const settings *s, tensor_id part)
{
  graph_site(g, "checkpoint");
  return gathered_sequence(g, s, "input_gathered", part);
}

/* Pull request #5218: a checkpoint's input is a group of offload_modules layer_input. Systems that look
 * at the whole step see it too. */
static group_id begin_input(graph *g, const settings *s, uint32_t layer)
{
  if (!marks_group(s, OFFLOAD_LAYER_INPUT) && offload_scope_of(s) != OFFLOAD_STEP) return 0;
  group_id group = graph_group_start(g, "layer_input");
  g->groups.items[group].layer = (int32_t)layer;
  assert(g->layer < 0 && "the group is around layers");
  return group;
}

static tensor_id checkpointed(graph *g, const settings *s, const struct stage_content *stage,
                              uint32_t from, uint32_t to, tensor_id hidden)
{
  group_id group = begin_input(g, s, stage->layers[from]);
  tensor_id input = distributed_input(g, s, hidden);
  region_id region = graph_region_begin(g, REGION_CHECKPOINT, &input, 1);
  tensor_id whole = input == hidden ? hidden : gathered_input(g, s, input);
  tensor_id out = layers_between(g, s, stage, from, to, whole);
  graph_region_end(g, region, out);
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_commit(g, group);
  }
  return out;
}

tensor_id decoder_layers(graph *g, const settings *s, const struct stage_content *stage,
                         tensor_id hidden)
{
  uint32_t count = stage->layer_count;
  if (s->recompute.recompute_granularity != GRANULARITY_FULL)
    return layers_between(g, s, stage, 0, count, hidden);
  uint32_t layers = (uint32_t)s->recompute.recompute_num_layers;
  if (s->recompute.recompute_method == METHOD_UNIFORM) {
    for (uint32_t i = 0; i < count; i += layers)
      hidden = checkpointed(g, s, stage, i, i + layers < count ? i + layers : count, hidden);
    return hidden;
  }
  uint32_t inside = layers < count ? layers : count;
  for (uint32_t i = 0; i < inside; i++)
    hidden = checkpointed(g, s, stage, i, i + 1, hidden);
  return layers_between(g, s, stage, inside, count, hidden);
}
