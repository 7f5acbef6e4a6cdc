/*
 * TransformerLayer (Megatron-LM core/transformer/transformer_layer.py): _forward_attention,
 * _forward_mlp.
 */
#include "sim/graph/node.h"
#include "sim/graph/parts.h"
#include "sim/model/megatron/modules.h"
#include "sim/operators/operators.h"

tensor_id bias_dropout_add(graph *g, const settings *s, const char *module, module_output x,
                           tensor_id residual)
{
  graph_site(g, module);
  bool drops = s->model.hidden_dropout > 0;
  tensor_id y = graph_tensor_like(g, "hidden_states", type_of(g, residual), residual);
  tensor_id mask = drops ? graph_tensor_like(g, "dropout_mask", DTYPE_BYTE, residual) : 0;
  g->tensors.items[mask].requires_grad = false;
  graph_node *n = graph_add(g, &operator_bias_dropout_add);
  n->flags = (s->model.bias_dropout_fusion ? 0 : BDA_UNFUSED) | (x.bias != 0 ? BDA_BIAS : 0) |
             (drops ? BDA_DROPOUT : 0);
  node_input(n, x.output);
  node_input(n, residual);
  node_input(n, x.bias);
  node_output(n, y);
  node_output(n, mask);
  node_save(n, mask);
  return y;
}

/* A norm module of its own, perhaps offloaded, perhaps discarded and recomputed. */
typedef struct norm_step {
  tensor_id output;
  group_id group;
  region_id discarded; /* 0: stays */
} norm_step;

static norm_step norm_in_layer(graph *g, const settings *s, const char *module,
                               offload_modules_choice group, tensor_id hidden)
{
  norm_step step = { 0 };
  if (marks_group(s, group))
    step.group = graph_group_start(g, choice_word(KEY_offload_offload_modules, group));
  if (recomputes(s, RECOMPUTE_LAYERNORM))
    step.discarded = graph_region_begin(g, REGION_DISCARD, &hidden, 1);
  step.output = norm(g, s, module, hidden);
  if (step.discarded != 0) graph_region_end(g, step.discarded, step.output);
  if (step.group != 0) graph_group_hooks_end(g, step.group);
  return step;
}

/* TE specs fuse the norm into the next linear; MLA's norm is a module (gpt_layer_specs.py). */
static bool attention_norm_is_apart(const settings *s)
{
  return !uses_te(s) || s->model.multi_latent_attention;
}

static void commit_norm(graph *g, norm_step step, tensor_id residual)
{
  if (step.group == 0) return;
  graph_group_release(g, step.group, residual);
  graph_group_commit(g, step.group);
}

/* The frame of _forward_attention or _forward_mlp refers to the norm's and the module's outputs. */
static void keep_frame(graph *g, const norm_step *pre, module_output out)
{
  if (pre->discarded == 0) graph_keep(g, pre->output);
  graph_keep(g, out.output);
}

static tensor_id attention_part(graph *g, const settings *s, tensor_id hidden)
{
  norm_step pre = { .output = hidden };
  if (attention_norm_is_apart(s))
    pre = norm_in_layer(g, s, "input_layernorm", OFFLOAD_ATTN_NORM, hidden);
  module_output out = self_attention(g, s, pre.output);
  if (pre.discarded != 0) graph_discard(g, pre.discarded);
  tensor_id sum = bias_dropout_add(g, s, "self_attn_bda", out, hidden);
  commit_norm(g, pre, hidden);
  keep_frame(g, &pre, out);
  return sum;
}

static module_output recomputed_mlp(graph *g, const settings *s, const mlp_spec *spec, tensor_id x)
{
  if (!recomputes(s, RECOMPUTE_MLP)) return mlp(g, s, spec, x);
  region_id region = graph_region_begin(g, REGION_CHECKPOINT, &x, 1);
  module_output out = mlp(g, s, spec, x);
  graph_region_end(g, region, out.output);
  return out;
}

static tensor_id mlp_part(graph *g, const settings *s, layer_place place, tensor_id hidden)
{
  norm_step pre = { .output = hidden };
  bool apart = !uses_te(s) || place.moe;
  if (place.moe && parts_last_for_the_step(s)) {
    part_output(g, hidden);
    part_begin(g, s, PART_POST_ATTENTION);
  }
  if (apart) pre = norm_in_layer(g, s, "pre_mlp_layernorm", OFFLOAD_MLP_NORM, hidden);
  mlp_spec dense = { .module = "mlp",
                     .ffn_hidden_size = s->model.ffn_hidden_size,
                     .norm_in_fc1 = !apart,
                     .is_dense = true };
  bool in_parts = place.moe && runs_in_parts(s);
  moe_place moe = { place.layer, in_parts ? pre.discarded : 0 };
  if (in_parts) part_detached(g, hidden);
  module_output out =
      place.moe ? moe_layer(g, s, moe, pre.output) : recomputed_mlp(g, s, &dense, pre.output);
  if (pre.discarded != 0 && !in_parts) graph_discard(g, pre.discarded);
  tensor_id sum = bias_dropout_add(g, s, "mlp_bda", out, hidden);
  commit_norm(g, pre, hidden);
  keep_frame(g, &pre, out);
  return sum;
}

/* Layer-level offloading covers the decoder's layers, not those of MTP (transformer_block.py). */
static group_id start_layer(graph *g, const settings *s, layer_place place)
{
  bool offloaded = (offloads_layers(s) || offload_scope_of(s) == OFFLOAD_STEP) &&
                   place.layer < s->model.num_layers;
  graph_layer_begin(g, place.layer);
  return offloaded ? graph_group_start(g, "layer") : 0;
}

static void end_layer(graph *g, group_id group)
{
  if (group != 0) {
    graph_group_hooks_end(g, group);
    graph_group_commit(g, group);
  }
  graph_layer_end(g);
}

tensor_id transformer_layer(graph *g, const settings *s, layer_place place, tensor_id hidden)
{
  if (place.layer < s->model.num_layers) { /* MTP's begins earlier */
    part_output(g, hidden);
    part_begin(g, s, PART_PRE_DISPATCH);
  }
  group_id group = start_layer(g, s, place);
  tensor_id middle = attention_part(g, s, hidden);
  if (!place.moe) {
    part_output(g, middle);
    part_begin(g, s, PART_MLP);
  }
  tensor_id out = mlp_part(g, s, place, middle);
  graph_keep(g, hidden);
  end_layer(g, group);
  return out;
}
