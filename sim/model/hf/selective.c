/*
 * Which operators selective checkpoints do not run again
 * (axolotl/monkeypatch/selective_checkpointing.py, build_sac_policy). Operators have the names
 * that PyTorch's dispatcher sees below autograd; "attention" names the fused ones of
 * scaled_dot_product_attention and of the flash-attn package. A checkpoint keeps all results of
 * an operator, including softmax statistics.
 *
 * Such a policy sees the module too, if it wants: with selective_checkpointing_mlp_layers a layer keeps
 * all products of its MLP but the last, whose result no recomputation reads, or none; with
 * selective_checkpointing_activation_layers also what a dense MLP makes between its products, or not. With
 * recompute_mlp_layers each half of a layer leaves what is its own result.
 */
#include "sim/model/hf/selective.h"

#include <assert.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/operators/hf.h"

/* addmm reads the bias after the two factors; dims of a linear. */
enum { LINEAR_BIAS = 2, LINEAR_OUTPUTS = 2 };

static bool is_kept(const settings *s, const graph_node *n)
{
  const choice_list *save = &s->recompute.selective_checkpointing_save;

  if (n->kind == &operator_hf_sdpa || n->kind == &operator_hf_flash_attention)
    return has_choice(save, SAVE_ATTENTION);
  if (n->kind == &operator_hf_linear)
    return has_choice(save, n->inputs[LINEAR_BIAS] != 0 ? SAVE_ADDMM : SAVE_MM);
  return n->kind == &operator_hf_matmul && has_choice(save, SAVE_BMM);
}

static bool is_left(const settings *s, const graph *g, int32_t layer, const graph_node *n,
                    tensor_id out)
{
  if (s->derived.layer_recomputes_mlp != NULL && tensor_storage(g, n->outputs[0]) == out)
    return false;
  const bool *keeps = s->derived.layer_keeps_mlp;
  bool of_mlp = begins_with(g->sites.items[n->site].module, "mlp.");
  bool is_last = n->kind == &operator_hf_linear && n->dims[LINEAR_OUTPUTS] == s->model.hidden_size;

  return keeps == NULL || !of_mlp || (keeps[layer] && !is_last);
}

static bool is_activation(const graph *g, const graph_node *n)
{
  return (n->kind == &operator_hf_silu || n->kind == &operator_hf_gelu ||
          n->kind == &operator_hf_multiply) &&
         strcmp(g->sites.items[n->site].module, "mlp") == 0;
}

static bool keeps_activation(const settings *s, int32_t layer)
{
  const bool *keeps = s->derived.layer_keeps_activation;
  return keeps != NULL && keeps[layer] && !s->derived.layer_is_moe[layer];
}

void hf_keep_expensive(graph *g, const settings *s, region_id region, int32_t layer, node_id first,
                       tensor_id out)
{
  if (!s->recompute.selective_checkpointing) return;
  assert(layer >= 0 && layer < s->model.num_layers);
  for (node_id n = first; n < g->nodes.count; n++) {
    const graph_node *node = &g->nodes.items[n];
    bool expensive = is_kept(s, node) && is_left(s, g, layer, node, tensor_storage(g, out));
    if (!expensive && !(keeps_activation(s, layer) && is_activation(g, node))) continue;
    for (int i = 0; i < NODE_OUTPUTS && node->outputs[i] != 0; i++)
      graph_region_cache(g, region, node->outputs[i]);
  }
}
