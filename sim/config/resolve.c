/*
 * What follows from what was given. Steps run in the order of Megatron's: command line
 * (validate_args), then the config classes; each leaves settings that it would leave as they are
 * when it ran on them again, so that a printed scenario reads back to itself.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/config/resolve_parts.h"

static int64_t if_unset(int64_t value, int64_t otherwise)
{
  return value == UNSET ? otherwise : value;
}

/* ---- whose modules ---- */

/* Systems of the Hugging Face trainers run its modules, without a word about it. */
static const char *default_implementation(const settings *s)
{
  bool needs_hf = s->offload.system[0] != '\0' &&
                  offload_system_find(s->offload.system)->implementation == OFFLOAD_ON_HF;

  if (needs_hf) {
    return "hf";
  }
  return text_is(s->model.transformer_impl, "local") ? "local" : "te";
}

static bool resolve_implementation(settings *s, diag *d)
{
  struct model_settings *m = &s->model;
  setting_key key = KEY_model_implementation, older = KEY_model_transformer_impl;

  if (m->implementation[0] == '\0') {
    m->implementation = default_implementation(s);
  }
  if (uses_hf(s)) {
    s->training.gradient_accumulation_fusion = false;
    return true;
  }
  const char *modules = text_is(m->implementation, "te") ? "transformer_engine" : "local";
  if (!s->given[older]) {
    m->transformer_impl = modules;
  }
  return need(s, d, text_is(m->transformer_impl, modules), key, older,
              "implementation is %s, but transformer_impl %s", m->implementation,
              m->transformer_impl);
}

/* ---- ranks and micro-batches ---- */

/* `dense`, `expert`: GPUs that hold one stage of the model, without and with experts. */
static bool resolve_world_size(settings *s, int64_t dense, int64_t expert, diag *d)
{
  struct parallel_settings *p = &s->parallel;
  int64_t pp = p->pipeline_model_parallel_size;
  int64_t most = key_rows[KEY_parallel_world_size].most;

  if (!need(s, d, dense <= most / pp && expert <= most / pp,
            KEY_parallel_tensor_model_parallel_size, KEY_parallel_expert_model_parallel_size,
            "the parallel sizes ask for more than %" PRId64 " GPUs", most)) {
    return false;
  }
  if (p->world_size != UNSET) {
    return true;
  }
  int64_t least = least_common_multiple(dense, expert) * pp;
  if (!need(s, d, least <= most, KEY_parallel_tensor_model_parallel_size,
            KEY_parallel_expert_model_parallel_size,
            "the parallel sizes ask for %" PRId64 " GPUs; at most %" PRId64 " are possible", least,
            most)) {
    return false;
  }
  p->world_size = least;
  diag_note(d, (source_pos){ 0 },
            "world_size is not given; taking the least that the other sizes allow, %" PRId64,
            p->world_size);
  return true;
}

static bool check_world_size(const settings *s, int64_t dense, int64_t expert, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t pp = p->pipeline_model_parallel_size;
  setting_key world = KEY_parallel_world_size;

  return need(s, d, p->world_size % (dense * pp) == 0, world,
              KEY_parallel_tensor_model_parallel_size,
              "world_size is %" PRId64
              "; it must be divisible by tensor_model_parallel_size (%" PRId64
              ") x pipeline_model_parallel_size (%" PRId64 ") x context_parallel_size (%" PRId64
              ") = %" PRId64,
              p->world_size, p->tensor_model_parallel_size, pp, p->context_parallel_size,
              dense * pp) &&
         need(s, d, p->world_size % (expert * pp) == 0, world,
              KEY_parallel_expert_model_parallel_size,
              "world_size is %" PRId64
              "; it must be divisible by expert_tensor_parallel_size (%" PRId64
              ") x expert_model_parallel_size (%" PRId64
              ") x pipeline_model_parallel_size (%" PRId64 ") = %" PRId64,
              p->world_size, p->expert_tensor_parallel_size, p->expert_model_parallel_size, pp,
              expert * pp);
}

static bool resolve_ranks(settings *s, diag *d)
{
  struct parallel_settings *p = &s->parallel;
  int64_t pp = p->pipeline_model_parallel_size;
  int64_t dense = p->tensor_model_parallel_size * p->context_parallel_size;

  p->expert_tensor_parallel_size =
      if_unset(p->expert_tensor_parallel_size, p->tensor_model_parallel_size);
  int64_t expert = p->expert_tensor_parallel_size * p->expert_model_parallel_size;
  if (!resolve_world_size(s, dense, expert, d) || !check_world_size(s, dense, expert, d)) {
    return false;
  }
  s->derived.data_parallel_size = p->world_size / (dense * pp);
  s->derived.expert_data_parallel_size = p->world_size / (expert * pp);
  return true;
}

static bool resolve_microbatches(settings *s, diag *d)
{
  struct training_settings *t = &s->training;
  int64_t dp = s->derived.data_parallel_size, per_step = t->micro_batch_size * dp;

  int64_t accumulated = if_unset(t->gradient_accumulation_steps, 1);
  t->global_batch_size = if_unset(t->global_batch_size, per_step * accumulated);
  s->derived.num_microbatches = t->global_batch_size / per_step;
  return need(s, d, t->global_batch_size % per_step == 0, KEY_training_global_batch_size,
              KEY_training_micro_batch_size,
              "global_batch_size is %" PRId64 "; it must be divisible by micro_batch_size (%" PRId64
              ") x data parallel size (%" PRId64 ") = %" PRId64,
              t->global_batch_size, t->micro_batch_size, dp, per_step) &&
         need(s, d,
              t->gradient_accumulation_steps == UNSET ||
                  t->gradient_accumulation_steps == s->derived.num_microbatches,
              KEY_training_gradient_accumulation_steps, KEY_training_global_batch_size,
              "gradient_accumulation_steps is %" PRId64 ", but global_batch_size makes %" PRId64
              " micro-batches of a step",
              t->gradient_accumulation_steps, s->derived.num_microbatches);
}

static void resolve_pipeline(settings *s)
{
  struct parallel_settings *p = &s->parallel;

  p->microbatch_group_size_per_vp_stage =
      if_unset(p->microbatch_group_size_per_vp_stage, p->pipeline_model_parallel_size);
  if (s->derived.virtual_stages == 1) {
    p->overlap_p2p_comm = false;
    p->overlap_p2p_comm_warmup_flush = false;
  }
  if (p->tensor_model_parallel_size == 1) {
    p->sequence_parallel = false;
  }
}

/* ---- model ---- */

static int64_t default_ffn_hidden_size(const struct model_settings *m)
{
  /* Gated: 8/3 h, down to a multiple of 64, so that there are as many parameters as with 4 h. */
  return m->swiglu ? m->hidden_size * 8 / 3 / 64 * 64 : 4 * m->hidden_size;
}

static bool resolve_heads(settings *s, diag *d)
{
  struct model_settings *m = &s->model;

  if (m->kv_channels == UNSET) {
    if (!need_multiple(s, d, KEY_model_hidden_size, KEY_model_num_attention_heads)) {
      return false;
    }
    m->kv_channels = m->hidden_size / m->num_attention_heads;
  }
  if (!m->group_query_attention) {
    if (s->given[KEY_model_num_query_groups] && m->num_query_groups != m->num_attention_heads) {
      diag_note(d, s->at[KEY_model_num_query_groups],
                "num_query_groups has no effect without group_query_attention");
    }
    m->num_query_groups = m->num_attention_heads;
  }
  m->num_query_groups = if_unset(m->num_query_groups, 1);
  return true;
}

/* Rows of the embedding: vocab_size up to a multiple of make_vocab_size_divisible_by x TP
 * (megatron/core/tokenizers/utils/build_tokenizer.py, vocab_size_with_padding); plain models have
 * vocab_size of them. */
static bool resolve_vocabulary(settings *s, diag *d)
{
  struct model_settings *m = &s->model;

  if (m->padded_vocab_size == UNSET) {
    if (m->vocab_size == UNSET) {
      return diag_error(d, (source_pos){ 0 },
                        "model.vocab_size is not given; it, or model.padded_vocab_size, is needed");
    }
    int64_t multiple =
        uses_hf(s) ? 1 : m->make_vocab_size_divisible_by * s->parallel.tensor_model_parallel_size;
    m->padded_vocab_size = round_up(m->vocab_size, multiple);
  }
  return true;
}

static void resolve_activation(settings *s)
{
  struct model_settings *m = &s->model;
  bool gated = m->swiglu || m->quick_geglu;

  if (m->add_bias_linear) {
    m->add_qkv_bias = true;
  }
  /* Megatron refuses these; as a default the fusion gives way. */
  bool cannot_fuse = m->use_te_activation_func || m->squared_relu;
  if (cannot_fuse && !s->given[KEY_model_bias_activation_fusion]) {
    m->bias_activation_fusion = false;
  }
  if (!m->add_bias_linear && !gated) {
    m->bias_activation_fusion = false;
  }
}

static void resolve_positions(settings *s)
{
  struct model_settings *m = &s->model;

  m->max_position_embeddings = if_unset(m->max_position_embeddings, s->training.seq_length);
  if (!text_is(m->position_embedding_type, "rope")) {
    m->apply_rope_fusion = false;
  }
  if (m->apply_query_key_layer_scaling) {
    m->attention_softmax_in_fp32 = true;
  }
}

static bool resolve_experts(settings *s, arena *a, diag *d)
{
  struct model_settings *m = &s->model;

  s->derived.layer_is_moe = ARENA_ARRAY(a, bool, (size_t)m->num_layers);
  if (m->num_experts == 0) {
    return true;
  }
  m->moe_ffn_hidden_size = if_unset(m->moe_ffn_hidden_size, m->ffn_hidden_size);
  if (m->moe_expert_capacity_factor < 0) {
    m->moe_expert_capacity_factor = -1;
  }
  return moe_layer_freq_parse(s, s->derived.layer_is_moe, d);
}

static bool resolve_model(settings *s, arena *a, diag *d)
{
  struct model_settings *m = &s->model;

  if (!resolve_heads(s, d) || !resolve_vocabulary(s, d)) {
    return false;
  }
  resolve_hf(s);
  m->ffn_hidden_size = if_unset(m->ffn_hidden_size, default_ffn_hidden_size(m));
  resolve_activation(s);
  resolve_positions(s);
  return resolve_experts(s, a, d);
}

/* ---- precision, optimizer, kernels ---- */

static void resolve_precision(settings *s)
{
  struct training_settings *t = &s->training;

  if (t->fp16) {
    t->check_for_nan_in_loss_and_grad = false; /* the loss scaler looks for them */
  }
  if (t->bf16 && t->grad_reduce_in_bf16) {
    t->accumulate_allreduce_grads_in_fp32 = false;
  } else if (t->bf16 && text_is(t->main_grads_dtype, "fp32")) {
    t->accumulate_allreduce_grads_in_fp32 = true;
  }
}

static void resolve_optimizer(settings *s)
{
  const char *optimizer = s->training.optimizer;
  bool emerging = !text_is(optimizer, "adam") && !text_is(optimizer, "sgd");

  if (s->parallel.use_megatron_fsdp) {
    s->parallel.use_distributed_optimizer = true;
  }
  s->derived.layer_wise_optimizer =
      emerging && (s->parallel.use_distributed_optimizer || text_is(optimizer, "dist_muon"));
}

/* megatron/training/determinism.py sets these where they are not set. */
static void resolve_determinism(settings *s, arena *a)
{
  if (!s->training.deterministic_mode) {
    return;
  }
  if (!s->given[KEY_software_nvte_allow_nondeterministic_algo]) {
    s->software.nvte_allow_nondeterministic_algo = false;
  }
  if (s->software.cublas_workspace_config[0] == '\0') {
    s->software.cublas_workspace_config = arena_strdup(a, ":4096:8");
  }
}

/* Deprecated names of whole captures (megatron/core/transformer/cuda_graph_config.py). */
static void resolve_cuda_graphs(settings *s)
{
  struct training_settings *t = &s->training;

  if (names_contain(&t->cuda_graph_modules, "full_iteration") &&
      !text_is(t->cuda_graph_impl, "none")) {
    t->cuda_graph_impl = "full_iteration";
  }
  if (names_contain(&t->cuda_graph_modules, "full") ||
      names_contain(&t->cuda_graph_modules, "full_iteration") ||
      names_contain(&t->cuda_graph_modules, "full_iteration_inference")) {
    t->cuda_graph_modules = (name_list){ 0 };
  }
}

/* Megatron-LM has the layout since May 2026 (#4509); it is what happens without a word about it. */
static void resolve_layer_wise_layout(settings *s)
{
  setting_key key = KEY_parallel_use_layer_wise_param_layout;
  software_release image = s->derived.software;
  bool older = image.year < 2026 || (image.year == 2026 && image.month < 5);

  if (s->given[KEY_software_container] && !s->given[key] && older) {
    s->parallel.use_layer_wise_param_layout = false;
  }
  s->derived.layer_wise_layout =
      s->derived.layer_wise_optimizer && s->parallel.use_layer_wise_param_layout;
}

bool resolve_software(settings *s, arena *a, diag *d)
{
  setting_key key = KEY_software_container;

  resolve_determinism(s, a);
  return need(
      s, d, software_release_of(s->software.container, &s->derived.software), key, key,
      "container is \"%.200s\"; it must be the name of a PyTorch image with its month, such "
      "as pytorch:25.09-py3",
      s->software.container);
}

/* ---- offload ---- */

static void drop_offload_module(settings *s, const char *module, arena *a, diag *d)
{
  name_list *modules = &s->offload.offload_modules;
  name_list left = { .names = ARENA_ARRAY(a, const char *, modules->count) };

  if (!names_contain(modules, module)) {
    return;
  }
  for (uint32_t i = 0; i < modules->count; i++) {
    if (!text_is(modules->names[i], module)) {
      left.names[left.count++] = modules->names[i];
    }
  }
  *modules = left;
  diag_note(d, s->at[KEY_offload_offload_modules],
            "offload_modules: %s stays on the device, because a CUDA graph begins or ends there",
            module);
}

/* A captured part cannot take over or hand on what a norm's group holds
 * (megatron/core/transformer/transformer_layer.py, _set_offload_modules). */
static void resolve_offload_of_graphs(settings *s, arena *a, diag *d)
{
  const name_list *captured = &s->training.cuda_graph_modules;

  if (text_is(s->training.cuda_graph_impl, "none")) {
    return;
  }
  if (names_contain(captured, "attn")) {
    drop_offload_module(s, "attn_norm", a, d);
  }
  if (names_contain(captured, "attn") || names_contain(captured, "moe_router")) {
    drop_offload_module(s, "mlp_norm", a, d);
  }
}

/* Megatron's layer-level flags go to the engine that Transformer Engine runs: the second from 2.10
 * on, unless the environment asks for the first. */
static const char *layer_engine(const settings *s)
{
  bool second = s->derived.software.transformer_engine >= SOFTWARE_VERSION(2, 10);

  return second && !s->software.nvte_cpu_offload_v1 ? "te_v2" : "te_v1";
}

static const char *default_offload_system(const settings *s)
{
  const struct offload_settings *o = &s->offload;

  if (o->fine_grained_activation_offloading) {
    return "megatron";
  }
  if (o->moe_paged_stash) {
    return "paged_stash";
  }
  return o->cpu_offloading && o->cpu_offloading_activations ? layer_engine(s) : "none";
}

static void drop_double_buffering(settings *s, diag *d, const char *why)
{
  setting_key key = KEY_offload_cpu_offloading_double_buffering;

  if (s->offload.cpu_offloading_double_buffering) {
    diag_note(d, s->at[key], "cpu_offloading_double_buffering has no effect: %s", why);
  }
  s->offload.cpu_offloading_double_buffering = false;
}

/* What has no effect, or not the one wished for. */
static void resolve_layer_level(settings *s, diag *d)
{
  struct offload_settings *o = &s->offload;
  bool second = text_is(o->system, "te_v2");

  if (o->cpu_offloading_weights) {
    diag_note(d, s->at[KEY_offload_cpu_offloading_weights],
              "cpu_offloading_weights has no effect: Transformer Engine offloads no weights");
  }
  if (second) {
    drop_double_buffering(s, d, "Transformer Engine's second engine has no double buffer");
  } else if (s->derived.software.transformer_engine < SOFTWARE_VERSION(2, 5)) {
    drop_double_buffering(s, d, "it needs Transformer Engine 2.5");
  }
  if (second && !o->cpu_offloading_manual_synchronization &&
      o->cpu_offloading_num_layers == s->model.num_layers - 1) {
    diag_note(d, s->at[KEY_offload_cpu_offloading_num_layers],
              "with all layers but one offloaded, te_v2 waits for every copy; two layers less let "
              "copies and computation overlap");
  }
}

/* TransformerBlock.forward enters the context in which layers are offloaded; a schedule that runs
 * them in parts does without it (model_chunk_schedule_plan.py). */
static void drop_layers_in_parts(settings *s, diag *d)
{
  if (s->parallel.overlap_moe_expert_parallel_comm && offloads_layers(s) && !uses_hf(s)) {
    diag_note(d, s->at[KEY_parallel_overlap_moe_expert_parallel_comm],
              "with overlap_moe_expert_parallel_comm no layer is offloaded: its schedule never "
              "enters the context of layer-level offloading");
    s->offload.system = "none";
  }
}

static void resolve_offload(settings *s, arena *a, diag *d)
{
  struct offload_settings *o = &s->offload;
  bool is_variant;

  o->cpu_offloading = o->cpu_offloading || o->cpu_offloading_num_layers > 0;
  if (o->system[0] == '\0') {
    o->system = default_offload_system(s);
  }
  resolve_checkpoint_engines(s);
  if (offloads_layers(s) && !uses_hf(s)) {
    o->cpu_offloading = true;
    resolve_layer_level(s, d);
    return;
  }
  is_variant = text_is(o->system, "megatron_pr1752");
  o->fine_grained_activation_offloading = offload_scope_of(s) == OFFLOAD_MODULES;
  o->moe_paged_stash = o->moe_paged_stash || offload_scope_of(s) == OFFLOAD_EXPERTS;
  if (is_variant && o->offload_modules.count == 0) {
    static const char *core_attention[] = { "core_attn" };
    o->offload_modules = (name_list){ .names = core_attention, .count = 1 };
  }
  resolve_offload_of_graphs(s, a, d);
}

static bool check_required(const settings *s, diag *d)
{
  for (setting_key key = 0; key < KEY_COUNT; key++) {
    if (key_is_required(key) && !need_given(s, d, key)) {
      return false;
    }
  }
  return true;
}

static bool validate(const settings *s, diag *d)
{
  return validate_hf(s, d) && validate_parallel(s, d) && validate_model(s, d) && validate_moe(s, d) &&
         validate_training(s, d) && validate_recompute(s, d) && validate_cuda_graphs(s, d) &&
         validate_offload(s, d) && validate_checkpoint_engines(s, d) && validate_paged_stash(s, d) &&
         validate_fsdp(s, d) && validate_verl(s, d) &&
         validate_environment(s, d) && validate_sizes(s, d);
}

bool settings_resolve(settings *s, arena *a, diag *d)
{
  if (!diag_ok(d) || !check_required(s, d)) {
    return false;
  }
  resolve_axolotl_disk(s, d);
  if (!resolve_implementation(s, d) || !resolve_ranks(s, d) || !resolve_microbatches(s, d) ||
      !resolve_stages(s, a, d) || !resolve_model(s, a, d)) {
    return false;
  }
  resolve_pipeline(s);
  resolve_precision(s);
  resolve_optimizer(s);
  resolve_cuda_graphs(s);
  if (!resolve_software(s, a, d)) {
    return false;
  }
  resolve_layer_wise_layout(s);
  resolve_offload(s, a, d);
  resolve_fsdp(s, d);
  resolve_verl(s, d);
  if (!resolve_manual_offload(s, a, d) || !validate(s, d)) {
    return false;
  }
  drop_layers_in_parts(s, d);
  note_unmodelled(s, d);
  return true;
}
