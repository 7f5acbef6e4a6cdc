/*
 * Kernels write all elements of what they are to write. An element that one leaves out keeps what
 * its array was filled with when it came into being: two runs that fill arrays with different bytes
 * then differ, at the kernel's op.
 */
#include "sim/offload/systems.h"
#include "tests/unit/small_runs.h"

#include <stdlib.h>

#include "ref/exec/exec.h"
#include "sim/train/train.h"

enum { STEPS = 2 };

/* clang-format off */
#define DENSE                                                                                      \
  "model: {num_layers: 2, hidden_size: 32, ffn_hidden_size: 64, num_attention_heads: 4,\n"         \
  "  num_query_groups: 2, group_query_attention: true, vocab_size: 256,\n"                         \
  "  hidden_dropout: 0.1, attention_dropout: 0.1}\n"                                               \
  "training: {micro_batch_size: 2, global_batch_size: 4, seq_length: 16, bf16: true}\n"            \
  "machine: {name: ideal}\n"
#define LLAMA                                                                                      \
  "model: {normalization: RMSNorm, position_embedding_type: rope, swiglu: true,\n"                 \
  "  add_bias_linear: false, hidden_dropout: 0.0, attention_dropout: 0.0}\n"
#define EXPERTS                                                                                    \
  "model: {num_experts: 4, moe_ffn_hidden_size: 16, moe_router_topk: 2, moe_grouped_gemm: true,\n" \
  "  moe_token_dispatcher_type: alltoall, moe_router_load_balancing_type: aux_loss,\n"             \
  "  moe_aux_loss_coeff: 0.01, moe_shared_expert_intermediate_size: 16}\n"
#define LATENT                                                                                     \
  "model: {multi_latent_attention: true, q_lora_rank: 16, kv_lora_rank: 16, qk_head_dim: 8,\n"     \
  "  qk_pos_emb_head_dim: 4, v_head_dim: 8, qk_layernorm: true, group_query_attention: false,\n"   \
  "  num_query_groups: 4, mtp_num_layers: 1}\n"
#define SHARED                                                                                     \
  "parallel: {world_size: 4, tensor_model_parallel_size: 2, sequence_parallel: true,\n"            \
  "  context_parallel_size: 2}\n"
#define HF                                                                                         \
  "model: {implementation: hf, num_layers: 2, hidden_size: 32, ffn_hidden_size: 64,\n"             \
  "  num_attention_heads: 4, group_query_attention: true, num_query_groups: 2, vocab_size: 256}\n" \
  "training: {micro_batch_size: 2, global_batch_size: 2, seq_length: 16, bf16: true,\n"            \
  "  optimizer: adamw_torch}\n"                                                                    \
  "machine: {name: ideal}\n"
#define ALL_MODULES                                                                                \
  "offload: {fine_grained_activation_offloading: true, offload_modules: [attn_norm, core_attn,\n"  \
  "  attn_proj, mlp_norm, expert_fc1, moe_act, qkv_linear]}\n"
#define CHECKPOINTS                                                                                \
  "recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}\n"
/* clang-format on */

enum { LAYERS = 4 };

/* What comes first is changed by what comes after it. */
static const char *const cases[][LAYERS] = {
  { DENSE },
  { DENSE, SHARED },
  { DENSE, LLAMA },
  { DENSE, LLAMA, SHARED },
  { DENSE, LLAMA, "training: {fp8_format: hybrid, fp8_recipe: tensorwise}\n" },
  { DENSE, LLAMA, EXPERTS },
  { DENSE, LLAMA, EXPERTS, "parallel: {world_size: 2, expert_model_parallel_size: 2}\n" },
  { DENSE, LLAMA, EXPERTS, "model: {moe_token_dispatcher_type: allgather}\n" },
  { DENSE, LLAMA, EXPERTS, LATENT },
  { DENSE, LLAMA, EXPERTS, LATENT ALL_MODULES },
  { HF, LLAMA },
  { HF, LLAMA, CHECKPOINTS },
  { HF, LLAMA, "lora: {adapter: lora}\n" },
  { HF, LLAMA, "lora: {adapter: qlora}\n" },
};

/* ---- what all ops have written --------------------------------------------------------------- */

typedef struct written {
  bool is_first; /* of the first iteration */
  uint32_t rank, op;
  exec_fingerprint print;
} written;

typedef struct all_written {
  written *items;
  uint32_t count, capacity;
  uint32_t steps; /* done */
} all_written;

static void note(void *context, uint32_t rank, uint32_t op, exec_fingerprint print)
{
  all_written *w = context;
  *ARRAY_PUSH(w) = (written){ w->steps == 0, rank, op, print };
}

static void count_step(void *context, uint32_t step, const train_step *s)
{
  (void)s;
  ((all_written *)context)->steps = step + 1;
}

static all_written written_by(const train_input *in, uint8_t poison)
{
  arena a = { 0 };
  diag d = { 0 };
  all_written w = { 0 };
  train_result result;
  ref_options of_ref = { .fingerprints = true, .poison = poison };
  executor on_ref = ref_executor(&of_ref);
  train_options options = { .seed = 1,
                            .steps = STEPS,
                            .learning_rate = 1e-3,
                            .executor = &on_ref,
                            .op_done = note,
                            .step_done = count_step,
                            .context = &w };
  token_stream_open(&options.tokens, in->settings, NULL, 0, 1, false, &d);
  if (!train_run(in, &options, &result, &a, &d))
    fail_msg("%s", result.finding != NULL ? result.finding : d.message);
  arena_release(&a);
  return w;
}

static void fail_at(const plan *p, size_t number, const written *w)
{
  const plan_op *o = &p->ranks[w->rank % p->rank_count].ops.items[w->op];
  fail_msg("case %zu: rank %u: op %u (%s @ %s) leaves out elements that it is to write", number,
           w->rank, w->op, plan_op_name(p, o), p->sites.items[o->site].module);
}

static void check_written(const train_input *in, size_t number)
{
  all_written one = written_by(in, 0xA5), other = written_by(in, 0x3C);
  assert_int_equal(one.count, other.count);
  for (uint32_t i = 0; i < one.count; i++)
    if (memcmp(&one.items[i].print, &other.items[i].print, sizeof one.items[i].print) != 0)
      fail_at(one.items[i].is_first ? in->first : in->steady, number, &one.items[i]);
  ARRAY_FREE(&one);
  ARRAY_FREE(&other);
}

static settings *settings_of(const char *const layers[LAYERS], arena *a)
{
  diag d = { .quiet = true };
  settings *s = ARENA_NEW(a, settings);
  settings_init(s, a);
  for (int i = 0; i < LAYERS && layers[i] != NULL; i++)
    settings_read_scenario(s, "case", layers[i], strlen(layers[i]), a, &d);
  s->derived.compute_capability = 90;
  settings_resolve(s, offload_conditions, a, &d);
  assert_string_equal(d.message, "");
  return s;
}

static void check_case(size_t number)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  compilation first, steady;
  const settings *s = settings_of(cases[number], &a);
  small_compile(&first, s, ITERATION_WARMUP, &a);
  small_compile(&steady, s, ITERATION_STEADY, &a);
  train_input in = { s, &first.plan, &steady.plan };
  executor on_ref = ref_executor(&(ref_options){ 0 });
  if (!train_knows(&in, &on_ref, &d)) fail_msg("case %zu: %s", number, d.message);
  check_written(&in, number);
  compilation_release(&first);
  compilation_release(&steady);
  arena_release(&a);
}

static void kernels_write_all_that_they_are_to_write(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    check_case(i);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(kernels_write_all_that_they_are_to_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
