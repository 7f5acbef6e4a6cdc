/*
 * Which operators selective checkpoints do not run again
 * (axolotl/monkeypatch/selective_checkpointing.py, build_sac_policy). Operators have the names
 * that PyTorch's dispatcher sees below autograd; "attention" names the fused ones of
 * scaled_dot_product_attention and of the flash-attn package. A checkpoint keeps all results of
 * an operator, including softmax statistics.
 */
#include "sim/model/hf/selective.h"

#include <stddef.h>

#include "sim/operators/hf.h"

/* addmm reads the bias after the two factors. */
enum { LINEAR_BIAS = 2 };

static bool is_kept(const settings *s, const graph_node *n)
{
  const choice_list *save = &s->recompute.selective_checkpointing_save;

  if (n->kind == &operator_hf_sdpa || n->kind == &operator_hf_flash_attention)
    return has_choice(save, SAVE_ATTENTION);
  if (n->kind == &operator_hf_linear)
    return has_choice(save, n->inputs[LINEAR_BIAS] != 0 ? SAVE_ADDMM : SAVE_MM);
  return n->kind == &operator_hf_matmul && has_choice(save, SAVE_BMM);
}

void hf_keep_expensive(graph *g, const settings *s, region_id region, node_id first)
{
  if (!s->recompute.selective_checkpointing) return;
  for (node_id n = first; n < g->nodes.count; n++) {
    const graph_node *node = &g->nodes.items[n];
    if (!is_kept(s, node)) continue;
    for (int i = 0; i < NODE_OUTPUTS && node->outputs[i] != 0; i++)
      graph_region_cache(g, region, node->outputs[i]);
  }
}
