/* The parameters that Megatron's modules register. */
#include "sim/residents/parameters.h"

#include <assert.h>
#include <string.h>

#include "sim/graph/sizes.h"

enum { TE_GROUPED_LINEAR = SOFTWARE_VERSION(1, 9) };

typedef struct parameter_array {
  parameter *items;
  uint32_t count, capacity;
} parameter_array;

/* The state that is constant while the parameters of one chunk are listed. */
typedef struct builder {
  const settings *s;
  parameter_array *out;
  arena *names;
  uint32_t chunk;
  int32_t layer;
  bool is_expert; /* the modules being written are routed experts */
  uint32_t expert;
  int64_t tp; /* ranks that split these modules */
  uint8_t type;
} builder;

int64_t parameter_elements(const parameter *p)
{
  return p->rank == 2 ? p->shape[0] * p->shape[1] : p->shape[0];
}

/* Routed experts share no process groups with other parameters where they are split otherwise: by expert
 * parallelism, and since 2026-07-25 (Megatron-LM #5916) by another tensor parallel size. Experts on the host
 * are buffered apart. */
static bool experts_have_groups(const settings *s)
{
  const struct parallel_settings *p = &s->parallel;
  bool counts_split = s->derived.megatron_day > 0 ? s->derived.megatron_day >= 20260725
                                                  : s->software.megatron >= MEGATRON_MAIN_2026_08;
  return p->expert_model_parallel_size > 1 || keeps_experts_on_host(s) ||
         (counts_split && p->expert_tensor_parallel_size != p->tensor_model_parallel_size);
}

static parameter *add(builder *b, const char *module, const char *name, parameter_role role)
{
  parameter *p = ARRAY_PUSH(b->out);
  *p = (parameter){
    .name = *module ? arena_printf(b->names, "%s.%s", module, name) : name,
    .layer = b->layer,
    .chunk = b->chunk,
    .expert = b->expert,
    .role = (uint8_t)role,
    .type = b->type,
    .split_dimension = -1,
    .split_parts = 1,
    .is_expert = b->is_expert,
    .is_expert_parallel = b->is_expert && experts_have_groups(b->s),
  };
  return p;
}

static void add_vector(builder *b, const char *module, const char *name, int64_t length, bool split)
{
  parameter *p = add(b, module, name, PARAMETER_VECTOR);
  p->rank = 1;
  assert(length > 0 && (!split || length % b->tp == 0));
  p->global_shape[0] = length;
  p->shape[0] = split ? length / b->tp : length;
  p->split_dimension = split ? 0 : -1;
  p->sequence_parallel = b->s->parallel.sequence_parallel && !split;
}

/* [rows, columns]; `split` is the dimension that the ranks share, -1 for none. */
static parameter *add_matrix(builder *b, const char *module, parameter_role role, int64_t rows,
                             int64_t columns, int split)
{
  parameter *p = add(b, module, "weight", role);
  p->rank = 2;
  p->global_shape[0] = rows;
  p->global_shape[1] = columns;
  assert(split < 2 && (split < 0 || p->global_shape[split] % b->tp == 0));
  p->shape[0] = split == 0 ? rows / b->tp : rows;
  p->shape[1] = split == 1 ? columns / b->tp : columns;
  p->split_dimension = (int8_t)split;
  p->sequence_parallel = b->s->parallel.sequence_parallel && split < 0;
  p->is_linear = role == PARAMETER_WEIGHT;
  return p;
}

static void add_norm(builder *b, const char *module, const char *prefix, int64_t width)
{
  bool has_offset = is_layernorm(b->s);
  add_vector(b, module, *prefix ? "layer_norm_weight" : "weight", width, false);
  if (has_offset) add_vector(b, module, *prefix ? "layer_norm_bias" : "bias", width, false);
}

/* A norm of each head: a rank's gain sees only the rank's own heads. */
static void add_head_norm(builder *b, const char *module)
{
  uint32_t first = b->out->count;
  add_norm(b, module, "", b->s->model.kv_channels);
  for (uint32_t i = first; i < b->out->count; i++)
    b->out->items[i].sequence_parallel = true;
}

/* A projection to `outputs` columns, which tensor parallel ranks split. */
static void add_column_linear(builder *b, const char *module, int64_t inputs, int64_t outputs,
                              int parts, bool bias)
{
  parameter *p = add_matrix(b, module, PARAMETER_WEIGHT, outputs, inputs, 0);
  p->split_parts = (uint8_t)parts;
  if (bias) {
    add_vector(b, module, "bias", outputs, true);
    b->out->items[b->out->count - 1].split_parts = (uint8_t)parts;
  }
}

static void add_row_linear(builder *b, const char *module, int64_t inputs, int64_t outputs,
                           bool bias)
{
  add_matrix(b, module, PARAMETER_WEIGHT, outputs, inputs, 1);
  if (bias) add_vector(b, module, "bias", outputs, false);
}

static void add_attention(builder *b)
{
  const settings *s = b->s;
  const struct model_settings *m = &s->model;
  int64_t query = m->num_attention_heads * m->kv_channels;
  int64_t key = m->num_query_groups * m->kv_channels;
  add_row_linear(b, "self_attention.linear_proj", query, m->hidden_size, m->add_bias_linear);
  if (uses_te(s)) add_norm(b, "self_attention.linear_qkv", "layer_norm", m->hidden_size);
  add_column_linear(b, "self_attention.linear_qkv", m->hidden_size, query + 2 * key, 1,
                    m->add_bias_linear || m->add_qkv_bias);
  if (m->qk_layernorm && !m->qk_l2_norm) {
    add_head_norm(b, "self_attention.q_layernorm");
    add_head_norm(b, "self_attention.k_layernorm");
  }
}

/* Every rank has the whole compressions; the expansions are split over heads. */
static void add_latent_attention(builder *b)
{
  const struct model_settings *m = &b->s->model;
  int64_t heads = m->num_attention_heads;
  int64_t query = heads * (m->qk_head_dim + m->qk_pos_emb_head_dim);
  add_row_linear(b, "self_attention.linear_proj", heads * m->v_head_dim, m->hidden_size,
                 m->add_bias_linear);
  if (m->q_lora_rank > 0) {
    add_matrix(b, "self_attention.linear_q_down_proj", PARAMETER_WEIGHT, m->q_lora_rank,
               m->hidden_size, -1);
    add_column_linear(b, "self_attention.linear_q_up_proj", m->q_lora_rank, query, 1, false);
  } else {
    add_column_linear(b, "self_attention.linear_q_proj", m->hidden_size, query, 1, false);
  }
  add_matrix(b, "self_attention.linear_kv_down_proj", PARAMETER_WEIGHT,
             m->kv_lora_rank + m->qk_pos_emb_head_dim, m->hidden_size, -1);
  add_column_linear(b, "self_attention.linear_kv_up_proj", m->kv_lora_rank,
                    heads * (m->qk_head_dim + m->v_head_dim), 1, false);
  if (!m->qk_layernorm) return;
  if (m->q_lora_rank > 0) add_norm(b, "self_attention.q_layernorm", "", m->q_lora_rank);
  add_norm(b, "self_attention.kv_layernorm", "", m->kv_lora_rank);
}

static void add_mlp(builder *b, const char *module, int64_t width, bool norm, bool bias)
{
  const struct model_settings *m = &b->s->model;
  int parts = is_gated(b->s) ? 2 : 1;
  const char *fc1 = arena_printf(b->names, "%s.linear_fc1", module);
  const char *fc2 = arena_printf(b->names, "%s.linear_fc2", module);
  if (norm) add_norm(b, fc1, "layer_norm", m->hidden_size);
  add_column_linear(b, fc1, m->hidden_size, parts * width, parts, bias);
  add_row_linear(b, fc2, width, m->hidden_size, bias);
}

/* Grouped: each linear holds the weights of all local experts, then their biases. */
static void add_grouped_linear(builder *b, const char *module, int64_t inputs, int64_t outputs,
                               bool column, int parts, bool bias)
{
  int64_t local = b->s->model.num_experts / b->s->parallel.expert_model_parallel_size;
  for (int64_t i = 0; i < local; i++) {
    b->expert = (uint32_t)i;
    parameter *p = add_matrix(b, module, PARAMETER_WEIGHT, outputs, inputs, column ? 0 : 1);
    p->split_parts = (uint8_t)parts;
  }
  for (int64_t i = 0; bias && i < local; i++) {
    b->expert = (uint32_t)i;
    add_vector(b, module, "bias", outputs, column);
  }
}

bool experts_are_grouped_by_te(const settings *s)
{
  return s->model.moe_grouped_gemm && s->derived.software.transformer_engine >= TE_GROUPED_LINEAR &&
         uses_te(s);
}

/* Megatron's GroupedMLP: [inputs, outputs], all local experts side by side. */
static void add_merged_experts(builder *b)
{
  const struct model_settings *m = &b->s->model;
  int64_t width =
      m->num_experts / b->s->parallel.expert_model_parallel_size * m->moe_ffn_hidden_size;
  add_matrix(b, "mlp.experts.linear_fc1", PARAMETER_WEIGHT, m->hidden_size,
             (is_gated(b->s) ? 2 : 1) * width, 1);
  add_matrix(b, "mlp.experts.linear_fc2", PARAMETER_WEIGHT, width, m->hidden_size, 0);
}

static void add_experts(builder *b)
{
  const settings *s = b->s;
  const struct model_settings *m = &s->model;
  int64_t local = m->num_experts / s->parallel.expert_model_parallel_size;
  b->is_expert = true;
  b->tp = s->parallel.expert_tensor_parallel_size;
  if (m->moe_grouped_gemm && !experts_are_grouped_by_te(s)) {
    add_merged_experts(b);
  } else if (m->moe_grouped_gemm) {
    int parts = is_gated(s) ? 2 : 1;
    add_grouped_linear(b, "mlp.experts.linear_fc1", m->hidden_size, parts * m->moe_ffn_hidden_size,
                       true, parts, m->add_bias_linear);
    add_grouped_linear(b, "mlp.experts.linear_fc2", m->moe_ffn_hidden_size, m->hidden_size, false,
                       1, m->add_bias_linear);
  } else {
    for (int64_t i = 0; i < local; i++) {
      b->expert = (uint32_t)i;
      add_mlp(b, "mlp.experts.local_experts", m->moe_ffn_hidden_size, false, m->add_bias_linear);
    }
  }
  b->is_expert = false;
  b->expert = 0;
  b->tp = s->parallel.tensor_model_parallel_size;
}

static void add_moe(builder *b)
{
  const struct model_settings *m = &b->s->model;
  add_norm(b, "pre_mlp_layernorm", "", m->hidden_size);
  parameter *router =
      add_matrix(b, "mlp.router", PARAMETER_WEIGHT, m->num_experts, m->hidden_size, -1);
  router->is_linear = false;
  if (m->add_bias_linear) add_vector(b, "mlp.router", "bias", m->num_experts, false);
  add_experts(b);
  if (m->moe_shared_expert_intermediate_size == 0) return;
  add_mlp(b, "mlp.shared_experts", m->moe_shared_expert_intermediate_size, false, false);
  if (m->moe_shared_expert_gate)
    add_matrix(b, "mlp.shared_experts.gate", PARAMETER_WEIGHT, 1, m->hidden_size, -1)->is_linear =
        false;
}

static void add_layer(builder *b, int32_t layer, bool moe)
{
  const settings *s = b->s;
  const struct model_settings *m = &s->model;
  bool latent = m->multi_latent_attention;
  b->layer = layer;
  if (latent || !uses_te(s)) add_norm(b, "input_layernorm", "", m->hidden_size);
  if (latent)
    add_latent_attention(b);
  else
    add_attention(b);
  if (moe) {
    add_moe(b);
  } else {
    if (!uses_te(s)) add_norm(b, "pre_mlp_layernorm", "", m->hidden_size);
    add_mlp(b, "mlp", m->ffn_hidden_size, uses_te(s), m->add_bias_linear);
  }
  b->layer = -1;
}

/* A depth: the norms of both inputs, the projection of their concatenation, a layer, a norm. */
static void add_mtp_depth(builder *b, uint32_t depth)
{
  const struct model_settings *m = &b->s->model;
  int64_t last = m->num_layers - 1;
  b->layer = (int32_t)(m->num_layers + depth);
  add_norm(b, "mtp.enorm", "", m->hidden_size);
  add_norm(b, "mtp.hnorm", "", m->hidden_size);
  add_column_linear(b, "mtp.eh_proj", 2 * m->hidden_size, m->hidden_size, 1, false);
  add_layer(b, (int32_t)(m->num_layers + depth), b->s->derived.layer_is_moe[last]);
  b->layer = (int32_t)(m->num_layers + depth);
  add_norm(b, "mtp.final_layernorm", "", m->hidden_size);
  b->layer = -1;
}

/* The first stage has the word embedding; with MTP the last stage has it too. */
static void add_embedding(builder *b, bool shared)
{
  const struct model_settings *m = &b->s->model;
  parameter *words = add_matrix(b, "embedding.word_embeddings", PARAMETER_EMBEDDING,
                                m->padded_vocab_size, m->hidden_size, 0);
  words->shared_embedding = shared;
  if (m->position_embedding_type != POSITIONS_LEARNED_ABSOLUTE) return;
  parameter *positions = add_matrix(b, "embedding.position_embeddings", PARAMETER_WEIGHT,
                                    m->max_position_embeddings, m->hidden_size, -1);
  positions->is_linear = positions->sequence_parallel = false;
}

static void add_chunk(builder *b, const struct stage_content *stage)
{
  const settings *s = b->s;
  const struct model_settings *m = &s->model;
  bool tied = !m->untie_embeddings_and_output_weights;
  bool pipelined = s->parallel.pipeline_model_parallel_size > 1;
  bool has_embedding = stage->embedding || stage->mtp_layers > 0;
  if (has_embedding) add_embedding(b, pipelined && (tied || m->mtp_num_layers > 0));
  for (uint32_t i = 0; i < stage->layer_count; i++) {
    uint32_t layer = stage->layers[i];
    add_layer(b, (int32_t)layer, s->derived.layer_is_moe[layer]);
  }
  if (stage_has_final_norm(s, stage)) add_norm(b, "final_layernorm", "", m->hidden_size);
  for (uint32_t depth = 0; depth < stage->mtp_layers; depth++)
    add_mtp_depth(b, depth);
  /* An output layer that is tied to an embedding of the same chunk has no weight of its own. */
  if (stage->loss && !(tied && has_embedding)) {
    parameter *output =
        add_matrix(b, "output_layer", PARAMETER_OUTPUT, m->padded_vocab_size, m->hidden_size, 0);
    output->shared_embedding = tied && pipelined;
  }
}

/* fp8_param_gather: weights of fp8 linears are stored in fp8. MXFP8 weights are gathered in 16
 * bits and keep that type here. */
static void store_in_fp8(const settings *s, parameter_list *list)
{
  if (!s->training.fp8_param_gather || s->training.fp8_recipe == FP8_RECIPE_MXFP8) return;
  for (uint32_t i = 0; i < list->count; i++) {
    parameter *p = &list->items[i];
    if (p->is_linear && layer_is_fp8(s, p->layer)) p->type = DTYPE_FP8;
  }
}

parameter_list parameters_of_rank(const settings *s, uint32_t pp_rank, arena *a)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  assert(pp_rank < pp);
  parameter_array found = { 0 };
  builder b = { .s = s,
                .out = &found,
                .names = a,
                .layer = -1,
                .tp = s->parallel.tensor_model_parallel_size,
                .type = (uint8_t)model_dtype(s) };
  for (int64_t chunk = 0; chunk < s->derived.virtual_stages; chunk++) {
    b.chunk = (uint32_t)chunk;
    add_chunk(&b, &s->derived.stages[chunk * pp + pp_rank]);
  }
  parameter_list list = { ARENA_ARRAY(a, parameter, found.count), found.count };
  if (found.count > 0) memcpy(list.items, found.items, found.count * sizeof *list.items);
  ARRAY_FREE(&found);
  store_in_fp8(s, &list);
  return list;
}
