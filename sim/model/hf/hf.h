/*
 * The autograd graph of a decoder of Hugging Face transformers (Llama and its relatives) in
 * eager PyTorch: model.implementation hf. Tensors are batch first, [micro-batch, sequence, width].
 *
 * Every kernel of the eager model is an operator. As in autograd, an operator saves a tensor only
 * if some gradient needs it: a product saves an operand only for the gradient of the other.
 * Tensors therefore carry requires_grad, and frozen parameters (adapters) change what is saved
 * without special cases.
 *
 * Sites are attribute paths: "self_attn.q_proj", "mlp.down_proj", "input_layernorm" in a layer;
 * "embed_tokens", "norm", "lm_head", "loss" outside.
 *
 * Sources: huggingface/transformers, models/llama/modeling_llama.py,
 * models/qwen3/modeling_qwen3.py, modeling_layers.py, loss/loss_utils.py,
 * integrations/sdpa_attention.py; PyTorch 2.11, tools/autograd/derivatives.yaml and
 * torch/csrc/autograd/FunctionsManual.cpp.
 */
#ifndef OFFSIM_SIM_MODEL_HF_HF_H
#define OFFSIM_SIM_MODEL_HF_HF_H

#include "sim/graph/graph.h"
#include "sim/graph/node.h"

/* The whole model: one stage, embedding to loss. */
graph *hf_chunk(const settings *s, arena *a);

/* ---- linears: linears.c, lora.c -------------------------------------------------------------- */

/* One nn.Linear of the model, or its replacement. */
typedef struct hf_linear_spec {
  const char *module; /* "self_attn.q_proj", "lm_head" */
  int64_t inputs, outputs;
  bool bias;
  bool in_layer; /* a projection of a decoder layer, which may get an adapter */
} hf_linear_spec;

/* x [b, s, inputs] -> [b, s, outputs]. Every linear of the model comes from here. */
tensor_id hf_linear(graph *g, const settings *s, const hf_linear_spec *spec, tensor_id x);

/* The same with only the module's own weight: F.linear(x, weight). The weight is frozen when the
 * model is (hf_model_is_frozen). The caller sets the site. */
tensor_id hf_plain_linear(graph *g, const settings *s, const hf_linear_spec *spec, tensor_id x);

/* F.linear(x, weight [outputs, inputs], bias or 0) for any parameter, frozen or not. */
tensor_id hf_linear_with(graph *g, tensor_id x, tensor_id weight, tensor_id bias);

/* lora.c: whether PEFT puts an adapter on this linear, or bitsandbytes quantises it; and the
 * linear that results. */
bool hf_is_adapted(const settings *s, const hf_linear_spec *spec);
tensor_id hf_adapted_linear(graph *g, const settings *s, const hf_linear_spec *spec, tensor_id x);

/* lora_kernels.c: whether one of Axolotl's fused kernels runs, and the results of its linears. */
typedef enum hf_lora_kernel { HF_LORA_QKV, HF_LORA_O, HF_LORA_MLP } hf_lora_kernel;
enum { HF_LORA_LINEARS = 3 }; /* query, key, value; gate, up, down */
bool hf_fuses_adapters(const settings *s, hf_lora_kernel kernel);
/* Up to HF_LORA_LINEARS linears of one input. */
void hf_fused_adapters(graph *g, const settings *s, const hf_linear_spec *specs, uint32_t count,
                       tensor_id x, tensor_id *outputs);
/* down(silu(gate(x)) * up(x)) */
tensor_id hf_fused_adapters_mlp(graph *g, const settings *s, const hf_linear_spec *specs,
                                tensor_id x);

/* An adapter trains; the model's own parameters do not. */
bool hf_model_is_frozen(const settings *s);

/* A parameter of the model itself: bf16 (fp16, fp32), and frozen if the model is. d1 is 0 for
 * vectors. */
tensor_id hf_parameter(graph *g, const settings *s, const char *name, int64_t d0, int64_t d1);

/* ---- eager operators: eager.c ---------------------------------------------------------------- */

/* Each appends one operator at the current site. Outputs need a gradient when an input does. */

tensor_id hf_cast(graph *g, tensor_id x,
                  dtype type); /* x.to(type); x itself when it has that type */
/* b may be broadcast if it needs no gradient. */
tensor_id hf_add(graph *g, tensor_id a, tensor_id b);
/* a * b; the smaller one is broadcast. The result has the shape and the layout of the larger. */
tensor_id hf_multiply(graph *g, tensor_id a, tensor_id b);
/* a - b of one shape */
tensor_id hf_subtract(graph *g, tensor_id a, tensor_id b);
/* a += b of one shape: a view of a. Nothing is saved. */
tensor_id hf_add_in_place(graph *g, tensor_id a, tensor_id b);
tensor_id hf_scale(graph *g, tensor_id x, double factor); /* nothing is saved */
tensor_id hf_plus(graph *g, tensor_id x, double number);  /* nothing is saved */
/* The nearest number to x from -limit (if `both`) to limit. */
tensor_id hf_clamp(graph *g, double limit, bool both, tensor_id x);
tensor_id hf_sigmoid(graph *g, tensor_id x);
tensor_id hf_multiplied(graph *g, tensor_id x, double factor); /* x itself when it is 1 */
tensor_id hf_dropout(graph *g, double probability,
                     tensor_id x); /* x itself when nothing is dropped */
/* hidden_act */
tensor_id hf_activation(graph *g, const settings *s, tensor_id x);
/* cap tanh(x / cap); x itself when cap is 0 */
tensor_id hf_softcap(graph *g, double cap, tensor_id x);

/* A view of the same elements in another shape. `contiguous`: whether the result is contiguous in
 * torch. */
tensor_id hf_view(graph *g, const char *name, tensor_id x, bool contiguous, int64_t d0, int64_t d1,
                  int64_t d2, int64_t d3);
/* A view with the dimensions `first` and the next exchanged. */
tensor_id hf_transposed_view(graph *g, const char *name, tensor_id x, uint8_t first);
/* weight.t(), which a linear reads */
tensor_id hf_transposed_weight(graph *g, tensor_id weight);

/* Bit k: autograd packs the operator's k-th saved tensor before it runs (saved_marks.h). It packs
 * operands before the operator runs, and afterwards results and everything that a custom autograd
 * function saves. */
uint16_t hf_packed_early(const graph_node *n);

/* ---- modules --------------------------------------------------------------------------------- */

/* Tensors that the model computes once and a layer reads; 0: absent. They have no gradient. */
typedef struct hf_shared {
  tensor_id cosine, sine; /* rotary tables, [1 or b, s, rotated width]; or one [.., 1, s, width], of
                             complex numbers */
  tensor_id mask;         /* of eager attention, or bytes for sdpa: [b, 1, s, s] */
  bool rotates;           /* the layer uses the tables */
} hf_shared;

/* norm.c: RMSNorm or LayerNorm over the last dimension, `width` columns. */
tensor_id hf_norm(graph *g, const settings *s, const char *module, int64_t width, tensor_id x);
/* attention.c, output projection included. */
tensor_id hf_attention(graph *g, const settings *s, hf_shared shared, tensor_id x);
/* norm.c: rows over their root mean square, without a gain (Llama4TextL2Norm). */
tensor_id hf_l2_norm(graph *g, const char *module, tensor_id x);
/* norm.c: rows normed by RMSNorm, times silu of a gate like them. */
tensor_id hf_gated_norm(graph *g, const settings *s, const char *module, int64_t width, tensor_id x,
                        tensor_id gate);
/* linear_attention.c: the same as hf_attention by the gated delta rule. */
tensor_id hf_linear_attention(graph *g, const settings *s, tensor_id x);
/* latent.c: the same with multi_latent_attention. */
tensor_id hf_latent_attention(graph *g, const settings *s, hf_shared shared, tensor_id x);
/* rotary.c: rotates query and key [b, heads, s, width], in place of which new tensors come. */
void hf_rotate(graph *g, const settings *s, hf_shared shared, tensor_id *query, tensor_id *key);
/* rotary.c: Llama 4's form of it, [b, s, heads, width] as complex numbers. */
void hf_rotate_by_position(graph *g, hf_shared shared, tensor_id *query, tensor_id *key);
/* attention_core.c: q [b, heads, s, width], k [b, kv heads, s, width], v [b, kv heads, s, width of
 * a value] -> [b, s, heads x width of a value]. `sinks`: a parameter with a score for each head, or
 * 0. `probabilities` gets eager attention's probabilities, which its caller keeps, else 0. */
tensor_id hf_attention_core(graph *g, const settings *s, tensor_id q, tensor_id k, tensor_id v,
                            tensor_id mask, tensor_id sinks, tensor_id *probabilities);
/* mlp.c */
tensor_id hf_mlp(graph *g, const settings *s, tensor_id x);
/* mlp.c: the MLP beside the experts: the module's name in the layer, with a dot, and its width. */
tensor_id hf_shared_mlp(graph *g, const settings *s, const char *module, int64_t width,
                        tensor_id x);
/* moe.c: the experts of a MoE layer in place of its MLP */
tensor_id hf_moe(graph *g, const settings *s, tensor_id x);
/* moe_llama4.c: the same of moe_class llama4; `rows` [tokens, hidden] */
tensor_id hf_llama4_moe(graph *g, const settings *s, tensor_id rows);
/* layer.c: a decoder layer, its group of the offload system and its checkpoint included. */
tensor_id hf_layer(graph *g, const settings *s, hf_shared shared, int32_t layer, tensor_id hidden);
/* head.c: final norm, lm_head and loss, a scalar. `tied`: the embedding's weight, or 0. `held`:
 * tensors, or 0, that the model's frame drops when it returns, between norm and lm_head. */
tensor_id hf_head(graph *g, const settings *s, tensor_id hidden, tensor_id labels, tensor_id tied,
                  const tensor_id *held, uint32_t count);

#endif
