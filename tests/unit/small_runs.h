/* For tests of compile and engine: plans of small scenarios, given as text. */
#ifndef OFFSIM_TESTS_UNIT_SMALL_RUNS_H
#define OFFSIM_TESTS_UNIT_SMALL_RUNS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/compile/compile.h"
#include "sim/config/settings.h"
#include "sim/offload/systems.h"

/* A dense GPT with grouped queries: each layer offers core_attn and attn_proj. */
#define SMALL_DENSE                                                                                \
  "model: {num_layers: 2, hidden_size: 1024, ffn_hidden_size: 4096, num_attention_heads: 8,\n"     \
  "  group_query_attention: true, num_query_groups: 8, normalization: RMSNorm, swiglu: true,\n"    \
  "  position_embedding_type: rope, add_bias_linear: false, hidden_dropout: 0.0,\n"                \
  "  attention_dropout: 0.0, untie_embeddings_and_output_weights: true, vocab_size: 1024}\n"       \
  "training: {micro_batch_size: 1, global_batch_size: 1, seq_length: 4096, bf16: true}\n"          \
  "machine: {name: ideal}\n"

/* Latent attention and experts: each layer offers all seven modules. */
#define SMALL_MOE                                                                                  \
  "model: {num_layers: 2, hidden_size: 1024, ffn_hidden_size: 4096, num_attention_heads: 8,\n"     \
  "  multi_latent_attention: true, q_lora_rank: 512, kv_lora_rank: 512, qk_head_dim: 128,\n"       \
  "  qk_pos_emb_head_dim: 64, v_head_dim: 128, qk_layernorm: true, normalization: RMSNorm,\n"      \
  "  swiglu: true, position_embedding_type: rope, add_bias_linear: false, hidden_dropout: 0.0,\n"  \
  "  attention_dropout: 0.0, untie_embeddings_and_output_weights: true, vocab_size: 1024,\n"       \
  "  num_experts: 4, moe_ffn_hidden_size: 1024, moe_router_topk: 2, moe_grouped_gemm: true,\n"     \
  "  moe_token_dispatcher_type: alltoall}\n"                                                       \
  "training: {micro_batch_size: 1, global_batch_size: 1, seq_length: 4096, bf16: true}\n"          \
  "machine: {name: ideal}\n"

/* A model of transformers, in eager PyTorch. */
#define SMALL_EAGER                                                                                \
  "model: {implementation: hf, num_layers: 3, hidden_size: 1024, ffn_hidden_size: 4096,\n"         \
  "  num_attention_heads: 8, group_query_attention: true, num_query_groups: 4,\n"                  \
  "  normalization: RMSNorm, position_embedding_type: rope, swiglu: true,\n"                       \
  "  add_bias_linear: false, hidden_dropout: 0.0, attention_dropout: 0.0,\n"                       \
  "  untie_embeddings_and_output_weights: true, vocab_size: 1024}\n"                               \
  "training: {micro_batch_size: 1, global_batch_size: 1, seq_length: 4096, bf16: true,\n"          \
  "  optimizer: adamw_torch}\n"                                                                    \
  "machine: {name: ideal}\n"

/* Changes: 16 micro-batches on `ranks` pipeline stages, so that turns repeat, and offload of both modules. */
#define SMALL_PIPELINE(ranks, more)                                                                \
  "model: {num_layers: 8}\ntraining: {global_batch_size: 16}\n"                                    \
  "parallel: {world_size: " ranks ", pipeline_model_parallel_size: " ranks                         \
  ", use_distributed_optimizer: true" more "}\n"
#define SMALL_OFFLOAD                                                                              \
  "offload: {fine_grained_activation_offloading: true, offload_modules: [core_attn, attn_proj]}\n"

/* Two texts, the second on top of the first, resolved for compute capability 9.0. Offload is that of
 * mode fixed unless they say another one. */
static inline settings *small_settings(const char *base, const char *changes, arena *a)
{
  diag d = { .quiet = true };
  settings *s = ARENA_NEW(a, settings);
  settings_init(s, a);
  s->offload.mode = MODE_FIXED;
  settings_read_scenario(s, "base", base, strlen(base), a, &d);
  settings_read_scenario(s, "changes", changes, strlen(changes), a, &d);
  s->derived.compute_capability = 90;
  settings_resolve(s, offload_conditions, a, &d);
  assert_string_equal(d.message, "");
  return s;
}

static inline void small_compile(compilation *c, const settings *s, iteration_kind iteration,
                                 arena *a)
{
  diag d = { 0 };
  compile(c, s, iteration, a, &d);
  assert_string_equal(d.message, "");
  plan_assert_valid(&c->plan);
}

/* One iteration of a scenario, and all that it lives in. */
typedef struct run {
  arena memory;
  const settings *settings;
  compilation compiled;
  const plan *plan;
  const rank_plan *rank; /* the first */
} run;

static inline void run_begin(run *r, const char *base, const char *changes,
                             iteration_kind iteration)
{
  *r = (run){ 0 };
  r->settings = small_settings(base, changes, &r->memory);
  small_compile(&r->compiled, r->settings, iteration, &r->memory);
  r->plan = &r->compiled.plan;
  r->rank = &r->compiled.plan.ranks[0];
}

static inline void run_end(run *r)
{
  compilation_release(&r->compiled);
  arena_release(&r->memory);
}

#endif
