/*
 * Axolotl's fused kernels instead of linears with adapters
 * (src/axolotl/monkeypatch/lora_kernels.py, apply_lora_kernel_patches): query, key and value
 * together, the output projection, and the whole MLP, each only if all its linears have adapters.
 */
#include "sim/model/hf/lora.h"
#include "sim/operators/lora.h"

/* Axolotl leaves modules alone that lack the linears it patches (monkeypatch/lora_kernels.py). */
bool hf_fuses_adapters(const settings *s, hf_lora_kernel kernel)
{
  const struct lora_settings *l = &s->lora;
  if (!hf_model_is_frozen(s) || s->model.fused_projections) return false;
  switch (kernel) {
  case HF_LORA_QKV:
    return l->lora_qkv_kernel && !s->model.fused_qkv_sliced && lora_is_target(s, "q_proj") &&
           lora_is_target(s, "k_proj") && lora_is_target(s, "v_proj");
  case HF_LORA_O: return l->lora_o_kernel && lora_is_target(s, "o_proj");
  case HF_LORA_MLP:
    return l->lora_mlp_kernel && s->model.swiglu && !s->model.fused_gate_up &&
           s->model.moe_class != MOE_LLAMA4 && /* whose MLP has another name */
           lora_is_target(s, "gate_proj") && lora_is_target(s, "up_proj") &&
           lora_is_target(s, "down_proj");
  }
  return false;
}

/* A linear's tensors, which belong to its own site. */
typedef struct operands {
  lora_base base;
  tensor_id a, b;     /* parameters */
  tensor_id a16, b16; /* operands of the products */
} operands;

static operands operands_of(graph *g, const settings *s, const hf_linear_spec *spec)
{
  graph_site(g, spec->module);
  dtype type = lora_adapter_dtype(s);
  operands o = { .base = lora_base_new(g, s, spec) };
  o.a = graph_parameter(g, "lora_A.weight", type, s->lora.lora_r, spec->inputs);
  o.b = graph_parameter(g, "lora_B.weight", type, spec->outputs, s->lora.lora_r);
  o.a16 = lora_cast_weight(g, s, o.a);
  o.b16 = lora_cast_weight(g, s, o.b);
  return o;
}

static void save_adapters(graph_node *n, const operands *all, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    node_save(n, all[i].a16);
    node_save(n, all[i].b16);
  }
}

/* The input of every A. Like the node, it belongs to the first linear's site. */
static tensor_id dropped_input(graph *g, const settings *s, const hf_linear_spec *first,
                               tensor_id x)
{
  graph_site(g, first->module);
  return hf_dropout(g, s->lora.lora_dropout, x);
}

/* A node of `count` linears with its inputs; it saves x and the input of A. */
static graph_node *node_of(graph *g, const settings *s, const operator_kind *kind, tensor_id x,
                           tensor_id dropped, const hf_linear_spec *specs, const operands *all,
                           uint32_t count)
{
  graph_node *n = graph_add(g, kind);
  n->flags = (dropped != x ? LORA_DROPPED : 0) | (lora_is_quantized(s) ? LORA_QUANTIZED : 0) |
             (specs[0].bias ? LORA_BIASED : 0);
  node_input(n, x);
  if (dropped != x) node_input(n, dropped);
  for (uint32_t i = 0; i < count; i++) {
    n->dims[i] = all[i].base.weight;
    n->dims[HF_LORA_LINEARS + i] = all[i].a;
    node_input(n, all[i].a16);
    node_input(n, all[i].b16);
  }
  node_save(n, x);
  node_save(n, dropped);
  return n;
}

void hf_fused_adapters(graph *g, const settings *s, const hf_linear_spec *specs, uint32_t count,
                       tensor_id x, tensor_id *outputs)
{
  operands all[HF_LORA_LINEARS];
  for (uint32_t i = 0; i < count; i++)
    all[i] = operands_of(g, s, &specs[i]);
  tensor_id dropped = dropped_input(g, s, &specs[0], x);
  graph_node *n = node_of(g, s, &operator_lora_projections, x, dropped, specs, all, count);
  for (uint32_t i = 0; i < count; i++)
    outputs[i] = hf_output_of_width(g, n, x, specs[i].outputs);
  save_adapters(n, all, count);
}

tensor_id hf_fused_adapters_mlp(graph *g, const settings *s, const hf_linear_spec *specs,
                                tensor_id x)
{
  operands all[HF_LORA_LINEARS];
  for (uint32_t i = 0; i < HF_LORA_LINEARS; i++)
    all[i] = operands_of(g, s, &specs[i]);
  tensor_id dropped = dropped_input(g, s, &specs[0], x);
  graph_node *n = node_of(g, s, &operator_lora_mlp, x, dropped, specs, all, HF_LORA_LINEARS);
  tensor_id y = hf_output_of_width(g, n, x, specs[2].outputs);
  node_save(n, hf_output_of_width(g, n, x, specs[0].outputs));
  node_save(n, hf_output_of_width(g, n, x, specs[1].outputs));
  save_adapters(n, all, HF_LORA_LINEARS);
  return y;
}
