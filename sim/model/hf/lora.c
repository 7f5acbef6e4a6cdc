/*
 * Low-rank adapters (PEFT) on the linears of a decoder layer, over 16-bit weights or 4-bit ones
 * (bitsandbytes), in a forward under torch.autocast, as transformers' Trainer runs it.
 *
 * LoRA      result = base(x); x = x.to(type of A); result = result + B(A(dropout(x))) * scaling
 * QLoRA     the base's result is cloned first, and autocast alone casts
 * 8 bits    as QLoRA without the clone
 *
 * With fp32 adapters over a 16-bit model, LoRA therefore makes an fp32 copy of every input, and
 * of that a 16-bit copy, which A saves. QLoRA saves the input itself.
 *
 * Sources: huggingface/peft 0.19, tuners/lora/layer.py (Linear.forward), tuners/lora/bnb.py
 * (Linear4bit.forward, Linear8bitLt.forward), tuners/tuners_utils.py (cast_adapter_dtype);
 * bitsandbytes 0.49.1, functional.py (quantize_4bit with compress_statistics). transformers
 * quantises all linears but the output layer.
 */
#include <string.h>

#include "sim/base/units.h"
#include "sim/graph/sizes.h"
#include "sim/model/hf/lora.h"
#include "sim/operators/hf.h"
#include "sim/operators/lora.h"

enum { LEVELS = 16 }; /* values of a 4-bit number */

bool lora_is_quantized(const settings *s)
{
  return s->lora.adapter == ADAPTER_QLORA;
}

static bool is_in_8bit(const settings *s)
{
  return s->lora.load_in_8bit;
}

/* A name takes the linears whose path ends with it: "q_proj" takes "self_attn.q_proj". An empty list
 * names all. */
bool lora_is_target(const settings *s, const char *module)
{
  const choice_list *targets = &s->lora.lora_target_modules;
  if (targets->count == 0) return true;
  for (const char *end = module; end != NULL; end = strchr(end, '.')) {
    uint32_t choice;
    end += end != module; /* the dot */
    if (choice_find(KEY_lora_lora_target_modules, end, &choice) && has_choice(targets, choice))
      return true;
  }
  return false;
}

bool hf_is_adapted(const settings *s, const hf_linear_spec *spec)
{
  return hf_model_is_frozen(s) && spec->in_layer &&
         (lora_is_quantized(s) || is_in_8bit(s) || lora_is_target(s, spec->module));
}

/* ---- the base ---- */

static tensor_id frozen(graph *g, const char *name, dtype type, int64_t elements)
{
  tensor_id t = graph_parameter(g, name, type, elements, 0);
  g->tensors.items[t].requires_grad = false;
  return t;
}

static int64_t rows_of(const graph *g, tensor_id x, int64_t width)
{
  return tensor_elements(g, x) / width;
}

static void set_matmul_dims(graph_node *n, int64_t m, int64_t columns, int64_t inner)
{
  n->dims[0] = 1;
  n->dims[1] = m;
  n->dims[2] = columns;
  n->dims[3] = inner;
}

/* A part of the weight's quant_state. */
static tensor_id companion(graph *g, const char *name, dtype type, int64_t elements)
{
  tensor_id made = frozen(g, name, type, elements);
  g->tensors.items[made].companion = true;
  return made;
}

/* nf4 with double quantisation; the mean of the scales and the table of values are separate
 * tensors. */
static lora_base packed_base(graph *g, int64_t elements)
{
  int64_t blocks = ceil_div(elements, LORA_BLOCK_ELEMENTS);
  lora_base b = { .weight = frozen(g, "weight", DTYPE_BYTE, ceil_div(elements, 2)),
                  .absmax = companion(g, "weight.absmax", DTYPE_BYTE, blocks) };
  b.nested_absmax =
      companion(g, "weight.nested_absmax", DTYPE_FP32, ceil_div(blocks, LORA_BLOCK_SCALES));
  b.nested_offset = companion(g, "weight.nested_offset", DTYPE_FP32, 1);
  companion(g, "weight.quant_map", DTYPE_FP32, LEVELS);
  return b;
}

lora_base lora_base_new(graph *g, const settings *s, const hf_linear_spec *spec)
{
  lora_base b = { 0 };
  if (lora_is_quantized(s))
    b = packed_base(g, spec->inputs * spec->outputs);
  else
    b.weight = hf_parameter(g, s, "weight", spec->outputs, spec->inputs);
  b.bias = spec->bias ? hf_parameter(g, s, "bias", spec->outputs, 0) : 0;
  return b;
}

static tensor_id quantized_linear(graph *g, const settings *s, const hf_linear_spec *spec,
                                  tensor_id x)
{
  lora_base base = lora_base_new(g, s, spec);
  graph_node *n = graph_add(g, &operator_linear_4bit);
  if (hf_needs_gradient(g, x)) n->held = base.weight; /* MatMul4Bit: ctx.tensors */
  n->dims[LINEAR_4BIT_ROWS] = rows_of(g, x, spec->inputs);
  n->dims[LINEAR_4BIT_INPUTS] = spec->inputs;
  n->dims[LINEAR_4BIT_OUTPUTS] = spec->outputs;
  n->dims[LINEAR_4BIT_OFFSET] = base.nested_offset;
  node_input(n, x);
  node_input(n, base.weight);
  node_input(n, base.absmax);
  node_input(n, base.nested_absmax);
  node_input(n, base.bias);
  return hf_output_of_width(g, n, x, spec->outputs);
}

/* Int8Params keeps the scale of each row beside the weight; MatMul8bitLt: ctx.tensors. */
static tensor_id linear_in_8bit(graph *g, const settings *s, const hf_linear_spec *spec,
                                tensor_id x)
{
  tensor_id weight = frozen(g, "weight", DTYPE_BYTE, spec->inputs * spec->outputs);
  tensor_id scales = companion(g, "weight.SCB", DTYPE_FP32, spec->outputs);
  tensor_id bias = spec->bias ? hf_parameter(g, s, "bias", spec->outputs, 0) : 0;
  graph_node *n = graph_add(g, &operator_linear_8bit);
  if (hf_needs_gradient(g, x)) n->held = x;
  n->dims[LINEAR_8BIT_ROWS] = rows_of(g, x, spec->inputs);
  n->dims[LINEAR_8BIT_INPUTS] = spec->inputs;
  n->dims[LINEAR_8BIT_OUTPUTS] = spec->outputs;
  node_input(n, x);
  node_input(n, weight);
  node_input(n, scales);
  node_input(n, bias);
  return hf_output_of_width(g, n, x, spec->outputs);
}

/* ---- the adapter ---- */

/* PEFT casts the adapters of a 16-bit model to fp32. */
dtype lora_adapter_dtype(const settings *s)
{
  return s->lora.autocast_adapter_dtype ? DTYPE_FP32 : model_dtype(s);
}

tensor_id lora_cast_weight(graph *g, const settings *s, tensor_id weight)
{
  graph_tensor t = g->tensors.items[weight];
  if ((dtype)t.dtype == model_dtype(s)) return weight;
  graph_node *n = graph_add_of(g, &operator_autocast_weight, weight);
  return hf_result(g, n, "weight_16", model_dtype(s), t.shape);
}

/* A product whose second operand is a 16-bit copy of a parameter. */
static tensor_id autocast_linear(graph *g, const settings *s, tensor_id x, tensor_id weight,
                                 int64_t inputs, int64_t outputs)
{
  tensor_id half = hf_cast(g, x, model_dtype(s));
  int64_t rows = rows_of(g, half, inputs);
  tensor_id copy = lora_cast_weight(g, s, weight);
  tensor_id flat = hf_view(g, "input_rows", half, true, rows, inputs, 0, 0);
  tensor_id turned = hf_transposed_weight(g, copy);
  graph_node *n = graph_add_of(g, &operator_hf_matmul, flat);
  node_input(n, turned);
  set_matmul_dims(n, rows, outputs, inputs);
  if (hf_needs_gradient(g, half)) node_save(n, turned);
  node_save(n, flat);
  return hf_output_of_width(g, n, half, outputs);
}

static tensor_id adapter_linear(graph *g, const settings *s, const char *name, tensor_id x,
                                int64_t inputs, int64_t outputs)
{
  tensor_id weight = graph_parameter(g, name, lora_adapter_dtype(s), outputs, inputs);
  if (lora_adapter_dtype(s) == model_dtype(s)) return hf_linear_with(g, x, weight, 0);
  return autocast_linear(g, s, x, weight, inputs, outputs);
}

/* B(A(dropout(x))) * scaling. A caller refers to its argument until the call returns. */
static tensor_id low_rank(graph *g, const settings *s, const hf_linear_spec *spec, tensor_id x)
{
  int64_t rank = s->lora.lora_r;
  tensor_id dropped = hf_dropout(g, s->lora.lora_dropout, x);
  tensor_id inner = adapter_linear(g, s, "lora_A.weight", dropped, spec->inputs, rank);
  graph_keep(g, dropped);
  tensor_id delta = adapter_linear(g, s, "lora_B.weight", inner, rank, spec->outputs);
  graph_keep(g, inner);
  return hf_scale(g, delta, lora_scale(s));
}

static tensor_id fused_linear(graph *g, const settings *s, const hf_linear_spec *spec, tensor_id x)
{
  tensor_id y;
  hf_fused_adapters(g, s, spec, 1, x, &y);
  return y;
}

tensor_id hf_adapted_linear(graph *g, const settings *s, const hf_linear_spec *spec, tensor_id x)
{
  bool quantized = lora_is_quantized(s);
  if (strcmp(spec->module, "self_attn.o_proj") == 0 && hf_fuses_adapters(s, HF_LORA_O))
    return fused_linear(g, s, spec, x);
  tensor_id result = quantized       ? quantized_linear(g, s, spec, x)
                     : is_in_8bit(s) ? linear_in_8bit(g, s, spec, x)
                                     : hf_plain_linear(g, s, spec, x);
  if (!lora_is_target(s, spec->module)) return result;
  if (quantized) result = hf_copy(g, "clone", result);
  tensor_id cast = quantized || is_in_8bit(s) ? x : hf_cast(g, x, lora_adapter_dtype(s));
  tensor_id sum = hf_add(g, result, low_rank(g, s, spec, cast));
  graph_keep(g, cast); /* forward's local */
  graph_keep(g, x);    /* the module call's argument */
  return sum;
}
