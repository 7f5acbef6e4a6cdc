/*
 * The modules of a transformer. Each function appends a module to the graph as Megatron-LM runs
 * it.
 *
 * A module function appends its operators in the order in which they run and returns the result
 * of the Python module. Shapes are this rank's: sequence first, [tokens / cp / (tp if sequence
 * parallel), micro-batch, width], as Megatron keeps them. The module that has a group marker, a
 * recomputation region or a Python frame in Megatron has it here.
 *
 * Module names (graph_site) follow Megatron's attribute paths below the layer:
 * "self_attention.linear_qkv", "mlp.linear_fc1", "mlp.experts.linear_fc1", "input_layernorm";
 * outside the layers "embedding", "final_layernorm", "output_layer", "loss". Parameters are named
 * after their attribute: "weight".
 */
#ifndef OFFSIM_SIM_MODEL_MEGATRON_MODULES_H
#define OFFSIM_SIM_MODEL_MEGATRON_MODULES_H

#include "sim/graph/graph.h"
#include "sim/graph/sizes.h"
#include "sim/graph/user_buffers.h"

/* Megatron's modules return (output, bias): with skip_bias_add the bias is left to a later
 * kernel. */
typedef struct module_output {
  tensor_id output;
  tensor_id bias; /* a parameter, 0 when there is none or it has been added */
} module_output;

/* Which layer of the model. MTP layers follow the decoder's. */
typedef struct layer_place {
  int32_t layer; /* 0-based over the model */
  bool moe;
} layer_place;

/* The tensors that the data loader puts on the device for a micro-batch; 0 on stages that do not
 * need them. Each is [micro-batch, sequence / cp], the mask [micro-batch, 1, sequence / cp,
 * sequence]. */
typedef struct micro_batch {
  tensor_id tokens, positions, labels, loss_mask, attention_mask;
} micro_batch;

/* ---- sequence.c ------------------------------------------------------------------------------ */

/* The sequence of all tensor parallel ranks; backward reduce-scatters. */
tensor_id gathered_sequence(graph *g, const settings *s, const char *name, tensor_id x);
/* This rank's part of the sequence: of the sum over the ranks, or a slice. */
tensor_id sequence_part(graph *g, const settings *s, const char *name, tensor_id x, bool reduces);

/* ---- norm.c ---------------------------------------------------------------------------------- */

/* The model's norm (LayerNorm or RMSNorm) of the last dimension of `x`, as a separate module. */
tensor_id norm(graph *g, const settings *s, const char *module, tensor_id x);
/* The same for `width` columns: norms of a low-rank or per-head vector. `x` is [.., width]. */
tensor_id norm_of_width(graph *g, const settings *s, const char *module, tensor_id x,
                        int64_t width);
/* An RMSNorm of the last dimension without a gain (L2Norm). */
tensor_id unscaled_norm(graph *g, const settings *s, const char *module, tensor_id x);

/* ---- linear.c -------------------------------------------------------------------------------- */

typedef enum linear_split {
  LINEAR_WHOLE,  /* every rank of the group has the whole weight */
  LINEAR_COLUMN, /* split over outputs: input gathered, input gradient reduced */
  LINEAR_ROW     /* split over inputs: output reduced */
} linear_split;

typedef struct linear_spec {
  const char *module;
  linear_split split;
  int64_t inputs, outputs; /* of this rank's weight */
  bool bias;               /* there is a bias */
  bool skip_bias_add;      /* ... which is returned, not added */
  bool norm;               /* TE LayerNormLinear: the norm runs inside */
  bool sequence_parallel;  /* column: all-gather the input; row: reduce-scatter the output */
  bool explicit_comm;      /* another module communicates (experts): only the GEMM here */
  bool keeps_original;     /* fp8: another operator keeps x too, so x is saved instead of a copy */
  user_linear user;        /* whose user buffers it has with tp_comm_overlap */
} linear_spec;

module_output linear(graph *g, const settings *s, const linear_spec *spec, tensor_id x);

/* ---- attention.c, attention_mla.c, attention_core.c ------------------------------------------ */

/* SelfAttention or MLASelfAttention: output projection included. */
module_output self_attention(graph *g, const settings *s, tensor_id hidden);
module_output mla_self_attention(graph *g, const settings *s, tensor_id hidden);

/* ---- mlp.c ----------------------------------------------------------------------------------- */

typedef struct mlp_spec {
  const char *module;      /* "mlp", "mlp.shared_experts" */
  int64_t ffn_hidden_size; /* over all ranks, not doubled for gated activations */
  bool norm_in_fc1;        /* TE: the layer's pre-MLP norm is inside linear_fc1 */
  bool explicit_comm;      /* overlapped shared experts: the caller gathers and scatters */
  bool keeps_original;     /* of linear_fc1 */
  bool is_dense;           /* of a layer without experts: mlp_act is its activation */
} mlp_spec;

module_output mlp(graph *g, const settings *s, const mlp_spec *spec, tensor_id x);
/* x + bias, a new tensor; nothing is saved. Without a bias x itself. */
tensor_id add_bias(graph *g, const char *name, tensor_id x, tensor_id bias);
/* Only the activation (fused with the bias as the settings say): fc1 output -> fc2 input. */
tensor_id activation(graph *g, const settings *s, const char *module, tensor_id x, tensor_id bias);

/* ---- moe.c ----------------------------------------------------------------------------------- */

/* MoELayer: router, dispatcher, experts, shared experts, combine. `x` is the pre-MLP norm's output.
 * Also places the groups expert_fc1 and moe_act, and the regions moe, moe_act and
 * shared_experts. */
typedef struct moe_place {
  int32_t layer;
  region_id discarded_norm; /* the norm that computed x, if the layer runs in parts: its output is
                               discarded after the experts, not with the layer's output */
} moe_place;

module_output moe_layer(graph *g, const settings *s, moe_place place, tensor_id x);

/* ---- mtp.c ----------------------------------------------------------------------------------- */

/* The multi-token-prediction block of a stage: `depths` layers after the decoder's final norm,
 * each with its embedding, projection and transformer layer. Returns the hidden states of the
 * decoder and of all depths, concatenated along the sequence. */
tensor_id mtp_block(graph *g, const settings *s, const micro_batch *data, tensor_id hidden,
                    uint32_t depths);
/* The losses of the depths, on the stage of the main loss. Returns the hidden states for the main
 * loss. */
tensor_id mtp_losses(graph *g, const settings *s, const micro_batch *data, tensor_id all);

/* ---- layer.c --------------------------------------------------------------------------------- */

/* TransformerLayer: norm, attention, residual, norm, MLP or MoE, residual; ITEM_LAYER_*
 * included. */
tensor_id transformer_layer(graph *g, const settings *s, layer_place place, tensor_id hidden);
/* x + dropout(output + bias); nothing saved but the mask. */
tensor_id bias_dropout_add(graph *g, const settings *s, const char *module, module_output x,
                           tensor_id residual);

/* ---- embedding.c ----------------------------------------------------------------------------- */

/* Dropout as a separate kernel, of up to three dimensions; x itself if the rate is 0. */
tensor_id dropout(graph *g, const char *name, double probability, tensor_id x);
/* LanguageModelEmbedding of the micro-batch's tokens, with its dropout. */
tensor_id embedding(graph *g, const settings *s, const micro_batch *data);

/* ---- loss.c ---------------------------------------------------------------------------------- */

/* Output layer and cross entropy of `hidden`; the loss per token, fp32 [micro-batch, sequence]. */
tensor_id loss_of_tokens(graph *g, const settings *s, const micro_batch *data, tensor_id hidden);
/* The training script's loss: a scalar. */
tensor_id loss_head(graph *g, const settings *s, const micro_batch *data, tensor_id token_losses);

#endif
