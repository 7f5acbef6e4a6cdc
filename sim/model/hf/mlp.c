/* LlamaMLP: down_proj(act(gate_proj(x)) * up_proj(x)); Phi3MLP: one linear for gate and up;
 * Starcoder2MLP: c_proj(act(c_fc(x))). */
#include "sim/model/hf/eager.h"
#include "sim/model/hf/liger.h"
#include "sim/operators/operators.h"

static hf_linear_spec widening(const settings *s, const char *module, int64_t outputs)
{
  return (hf_linear_spec){ .module = module,
                           .inputs = s->model.hidden_size,
                           .outputs = outputs,
                           .bias = s->model.add_bias_linear,
                           .in_layer = true };
}

/* Views of the halves of one projection's output. */
static tensor_id gated_halves(graph *g, const settings *s, tensor_id x)
{
  int64_t width = s->model.ffn_hidden_size;
  hf_linear_spec spec = widening(s, "mlp.gate_up_proj", 2 * width);
  tensor_id both = hf_linear(g, s, &spec, x);
  const int64_t *of = g->tensors.items[both].shape;
  const int64_t shape[4] = { of[0], of[1], width, 0 };
  graph_site(g, "mlp");
  graph_node *n = graph_add_of(g, &operator_split, both);
  tensor_id gate = hf_split_view(g, n, "gate", both, 0, shape);
  tensor_id up = hf_split_view(g, n, "up", both, width, shape);
  tensor_id activated = hf_activation(g, s, gate);
  return s->model.fused_gate_up ? hf_multiply(g, up, activated) : hf_multiply(g, activated, up);
}

static tensor_id gated(graph *g, const settings *s, const char *gate_module, const char *up_module,
                       int64_t width, tensor_id x)
{
  hf_linear_spec gate = widening(s, gate_module, width);
  hf_linear_spec up = widening(s, up_module, width);
  bool liger = s->model.liger_glu_activation;
  tensor_id of_gate = hf_linear(g, s, &gate, x);
  graph_site(g, "mlp");
  tensor_id activated = liger ? 0 : hf_activation(g, s, of_gate);
  tensor_id of_up = hf_linear(g, s, &up, x);
  graph_site(g, "mlp");
  return liger ? hf_liger_glu(g, of_gate, of_up) : hf_multiply(g, activated, of_up);
}

static tensor_id ungated(graph *g, const settings *s, tensor_id x)
{
  hf_linear_spec spec = widening(s, "mlp.c_fc", s->model.ffn_hidden_size);
  tensor_id wide = hf_linear(g, s, &spec, x);
  graph_site(g, "mlp");
  return hf_activation(g, s, wide);
}

tensor_id hf_mlp(graph *g, const settings *s, tensor_id x)
{
  hf_linear_spec down = { .module = s->model.swiglu ? "mlp.down_proj" : "mlp.c_proj",
                          .inputs = s->model.ffn_hidden_size,
                          .outputs = s->model.hidden_size,
                          .bias = s->model.add_bias_linear,
                          .in_layer = true };
  if (hf_fuses_adapters(s, HF_LORA_MLP)) {
    hf_linear_spec specs[HF_LORA_LINEARS] = { widening(s, "mlp.gate_proj", down.inputs),
                                              widening(s, "mlp.up_proj", down.inputs), down };
    return hf_fused_adapters_mlp(g, s, specs, x);
  }
  bool fused = s->model.fused_projections || s->model.fused_gate_up;
  tensor_id inner = !s->model.swiglu ? ungated(g, s, x)
                    : fused
                        ? gated_halves(g, s, x)
                        : gated(g, s, "mlp.gate_proj", "mlp.up_proj", s->model.ffn_hidden_size, x);
  return hf_linear(g, s, &down, inner);
}

tensor_id hf_shared_mlp(graph *g, const settings *s, const char *module, int64_t width, tensor_id x)
{
  const char *gate = arena_printf(g->memory, "%sgate_proj", module);
  const char *up = arena_printf(g->memory, "%sup_proj", module);
  hf_linear_spec down = { .module = arena_printf(g->memory, "%sdown_proj", module),
                          .inputs = width,
                          .outputs = s->model.hidden_size,
                          .in_layer = true };
  return hf_linear(g, s, &down, gated(g, s, gate, up, width, x));
}
