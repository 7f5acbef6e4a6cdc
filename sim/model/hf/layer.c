/*
 * A decoder layer (LlamaDecoderLayer, Gemma2DecoderLayer, Olmo2DecoderLayer) and its checkpoint
 * (transformers modeling_layers.py: GradientCheckpointingLayer; torch/utils/checkpoint.py). The layer's
 * hidden states are the checkpoint's argument. Everything else comes by keyword and stays in a closure,
 * which hooks do not see. With recompute.recompute_mlp_layers a layer has two checkpoints in place of
 * one, x + checkpoint(attention(norm(x))) and x + checkpoint(mlp(norm(x))): their sums are not computed
 * again, and no recomputation reads the product before each.
 */
#include "sim/model/hf/eager.h"
#include "sim/model/hf/selective.h"

/* residual + multiplier x */
static tensor_id added(graph *g, const settings *s, const char *site, tensor_id residual,
                       tensor_id x)
{
  graph_site(g, site);
  return hf_add(g, residual, hf_multiplied(g, x, s->model.residual_multiplier));
}

/* The norm that follows attention or MLP, if there is one. */
static tensor_id normed_after(graph *g, const settings *s, const char *module, tensor_id x)
{
  return s->model.layer_norms == LAYER_NORMS_PRE ? x
                                                 : hf_norm(g, s, module, s->model.hidden_size, x);
}

static tensor_id normed_before(graph *g, const settings *s, const char *module, tensor_id x)
{
  return s->model.layer_norms == LAYER_NORMS_POST ? x
                                                  : hf_norm(g, s, module, s->model.hidden_size, x);
}

/* What a checkpoint computes again. */
typedef tensor_id layer_part(graph *g, const settings *s, hf_shared shared, int32_t layer,
                             tensor_id hidden);

static tensor_id normed_attention(graph *g, const settings *s, hf_shared shared, int32_t layer,
                                  tensor_id hidden)
{
  tensor_id normed = normed_before(g, s, "input_layernorm", hidden);
  tensor_id out = s->derived.layer_is_linear[layer] ? hf_linear_attention(g, s, normed)
                                                    : hf_attention(g, s, shared, normed);
  graph_keep(g, normed);
  out = hf_dropout(g, s->model.hidden_dropout, out);
  return normed_after(g, s, "post_attention_layernorm", out);
}

/* Where a norm follows attention, the one before the MLP has another name. */
static tensor_id normed_mlp(graph *g, const settings *s, hf_shared shared, int32_t layer,
                            tensor_id hidden)
{
  (void)shared;
  bool sandwich = s->model.layer_norms == LAYER_NORMS_SANDWICH;
  tensor_id normed = normed_before(
      g, s, sandwich ? "pre_feedforward_layernorm" : "post_attention_layernorm", hidden);
  tensor_id out = s->derived.layer_is_moe[layer] ? hf_moe(g, s, normed) : hf_mlp(g, s, normed);
  graph_keep(g, normed);
  out = hf_dropout(g, s->model.hidden_dropout, out);
  return normed_after(g, s, "post_feedforward_layernorm", out);
}

/* An empty tensor on the host is an additional argument, so that one of them needs a gradient
 * (_NoopSaveInputs). Hooks see it. */
static tensor_id nothing(graph *g)
{
  return graph_tensor_new(g, "checkpoint_dummy", DTYPE_FP32, 0, 0, 0, 0);
}

/* How many of a layer's keyword arguments, the first ones, hooks do not see. verl's own
 * checkpoint passes them by position (ActivationHandler._pack_kwargs). A reentrant checkpoint
 * saves those that are tensors: the mask (and the positions, 8 bytes a token, left out here). The
 * tables are one pair, which it keeps unsaved (torch/utils/checkpoint.py,
 * CheckpointFunction.forward). */
static uint32_t held_by_reference(const settings *s, hf_shared shared, uint32_t count)
{
  bool by_position = s->offload.system == SYSTEM_verl;
  return by_position && shared.mask != 0 ? count - 1 : count;
}

static tensor_id checkpointed(graph *g, const settings *s, layer_part *part, hf_shared shared,
                              int32_t layer, tensor_id hidden)
{
  tensor_id inputs[5];
  uint32_t count = 0;
  if (shared.cosine != 0) inputs[count++] = shared.cosine;
  if (shared.sine != 0) inputs[count++] = shared.sine;
  if (shared.mask != 0) inputs[count++] = shared.mask;
  uint32_t closed_over = held_by_reference(s, shared, count);
  if (!s->recompute.use_reentrant) inputs[count++] = nothing(g);
  inputs[count++] = hidden;
  region_id region = graph_region_begin(g, REGION_CHECKPOINT, inputs, count);
  g->regions.items[region].closed_over = closed_over;
  g->regions.items[region].stops_early = !s->recompute.use_reentrant;
  node_id first = g->nodes.count;
  tensor_id out = part(g, s, shared, layer, hidden);
  hf_keep_expensive(g, s, region, layer, first, out);
  graph_region_end(g, region, out);
  return out;
}

static bool is_checkpoint(const settings *s, const bool *layers, int32_t layer)
{
  return s->recompute.recompute_granularity == GRANULARITY_FULL && layers[layer] &&
         layer % s->recompute.every_n_layers == 0;
}

/* Half of a layer: a checkpoint of its own if halves are checkpoints and this layer's is one. */
static tensor_id half(graph *g, const settings *s, layer_part *part, hf_shared shared,
                      const bool *layers, int32_t layer, tensor_id hidden)
{
  bool alone = s->derived.layer_recomputes_mlp != NULL && is_checkpoint(s, layers, layer);
  return alone ? checkpointed(g, s, part, shared, layer, hidden)
               : part(g, s, shared, layer, hidden);
}

static tensor_id body(graph *g, const settings *s, hf_shared shared, int32_t layer,
                      tensor_id hidden)
{
  graph_layer_begin(g, layer);
  tensor_id out = half(g, s, normed_attention, shared, s->derived.layer_recomputes, layer, hidden);
  bool linear = s->derived.layer_is_linear[layer];
  hidden = added(g, s, linear ? "linear_attn.residual" : "self_attn.residual", hidden, out);
  out = half(g, s, normed_mlp, (hf_shared){ 0 }, s->derived.layer_recomputes_mlp, layer, hidden);
  out = added(g, s, "mlp.residual", hidden, out);
  graph_layer_end(g);
  return out;
}

static group_id start_group(graph *g, const settings *s, int32_t layer)
{
  offload_scope scope = offload_scope_of(s);
  if (scope != OFFLOAD_STEP && scope != OFFLOAD_LAYERS) return 0;
  group_id group = graph_group_start(g, "layer");
  g->groups.items[group].layer = layer;
  return group;
}

tensor_id hf_layer(graph *g, const settings *s, hf_shared shared, int32_t layer, tensor_id hidden)
{
  group_id group = start_group(g, s, layer);
  bool whole = s->derived.layer_recomputes_mlp == NULL &&
               is_checkpoint(s, s->derived.layer_recomputes, layer);
  tensor_id out =
      whole ? checkpointed(g, s, body, shared, layer, hidden) : body(g, s, shared, layer, hidden);
  graph_keep(g, hidden); /* the model's frame */
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_commit(g, group);
  }
  return out;
}
