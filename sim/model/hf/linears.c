/* nn.Linear (torch/nn/functional.py: linear), and its replacements. */
#include "sim/graph/sizes.h"
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"

bool hf_model_is_frozen(const settings *s)
{
  return s->lora.adapter != ADAPTER_NONE;
}

tensor_id hf_parameter(graph *g, const settings *s, const char *name, int64_t d0, int64_t d1)
{
  tensor_id made = graph_parameter(g, name, model_dtype(s), d0, d1);
  g->tensors.items[made].requires_grad = !hf_model_is_frozen(s);
  return made;
}

/* Without a bias, or with one if x is contiguous, the batch is flattened into rows, and mm or
 * addmm reads the transposed view of the weight. */
tensor_id hf_linear_with(graph *g, tensor_id x, tensor_id weight, tensor_id bias)
{
  graph_tensor t = g->tensors.items[x], w = g->tensors.items[weight];
  int64_t rows = tensor_elements(g, x) / w.shape[1];
  tensor_id flat = hf_view(g, "input_rows", x, true, rows, w.shape[1], 0, 0);
  tensor_id turned = hf_transposed_weight(g, weight);
  graph_node *n = graph_add_of(g, &operator_hf_linear, flat);
  node_input(n, turned);
  node_input(n, bias);
  n->dims[0] = rows;
  n->dims[1] = w.shape[1];
  n->dims[2] = w.shape[0];
  if (t.requires_grad) node_save(n, turned);
  if (w.requires_grad) node_save(n, flat);
  return hf_output_of_width(g, n, x, w.shape[0]);
}

tensor_id hf_plain_linear(graph *g, const settings *s, const hf_linear_spec *spec, tensor_id x)
{
  tensor_id weight = hf_parameter(g, s, "weight", spec->outputs, spec->inputs);
  tensor_id bias = spec->bias ? hf_parameter(g, s, "bias", spec->outputs, 0) : 0;
  return hf_linear_with(g, x, weight, bias);
}

tensor_id hf_linear(graph *g, const settings *s, const hf_linear_spec *spec, tensor_id x)
{
  graph_site(g, spec->module);
  return hf_is_adapted(s, spec) ? hf_adapted_linear(g, s, spec, x) : hf_plain_linear(g, s, spec, x);
}
