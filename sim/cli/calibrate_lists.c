#include "sim/cli/calibrate_lists.h"

#include <assert.h>
#include <string.h>

/* clang-format off */
#define WIDE                              \
  { "hidden_size", "4096" },              \
  { "ffn_hidden_size", "14336" },         \
  { "num_attention_heads", "32" }
#define TWO_STAGES                        \
  { "world_size", "2" },                  \
  { "pipeline_model_parallel_size", "2" }, \
  { "global_batch_size", "4" },           \
  { "seq_length", "16384" }

const calibration_model calibration_models[] = {
  { "llama-2048", "llama", { { 0 } } },
  { "llama-4096", "llama", { WIDE, { "seq_length", "8192" } } },
  { "llama-4096-long", "llama", { WIDE, { "seq_length", "16384" }, { "num_layers", "4" } } },
  { "llama-4096-middle", "llama", { WIDE } },
  { "llama-4096-short", "llama", { WIDE, { "seq_length", "2048" } } },
  { "llama-8192", "llama",
    { { "hidden_size", "8192" }, { "ffn_hidden_size", "28672" }, { "num_attention_heads", "64" },
      { "num_layers", "3" } } },
  { "mixture-2048", "mixture", { { 0 } } },
  { "mixture-2048-long", "mixture",
    { { "seq_length", "16384" }, { "num_layers", "3" }, { "moe_layer_freq", "[0,1,1]" } } },
  { "mixture-2048-middle", "mixture", { { "seq_length", "8192" } } },
  { "torch-4096", "torch",
    { { "position_embedding_type", "none" }, { "fused_projections", "true" },
      { "fused_rms_norm", "true" }, { "optimizer", "none" }, { "keep_gradients", "true" } } },
  { "torch-4096-rope", "torch", { { 0 } } },
  { 0 },
};

const calibration_model calibration_exchanges[] = {
  { "data parallel", "llama",
    { WIDE, { "num_layers", "4" }, { "use_distributed_optimizer", "false" } } },
  { "expert parallel", "mixture",
    { { "num_layers", "2" }, { "moe_layer_freq", "[0,1]" }, { "world_size", "2" },
      { "expert_model_parallel_size", "2" }, { "global_batch_size", "2" },
      { "use_distributed_optimizer", "false" } } },
  { "pipeline", "llama", { TWO_STAGES, { "num_layers", "2" } } },
  { "virtual stages", "llama",
    { TWO_STAGES, { "num_virtual_stages_per_pipeline_rank", "2" }, { "overlap_p2p_comm", "true" },
      { "fine_grained_activation_offloading", "true" },
      { "offload_modules", "core_attn,attn_proj" }, { "nvte_cpu_offload_v1", "true" } } },
  { 0 },
};
/* clang-format on */

static const char *text_of(const char *base)
{
  const calibration_base *b = calibration_bases;
  while (b->name != NULL && strcmp(b->name, base) != 0)
    b++;
  assert(b->name != NULL && "a scenario of cuda/calibrate/models");
  return b->text;
}

bool calibration_read(settings *s, const calibration_model *of, arena *a, diag *d)
{
  const char *text = text_of(of->base);
  const source_pos at = { of->name, 0, 0 };
  bool ok = settings_read_scenario(s, of->base, text, strlen(text), a, d);
  for (uint32_t i = 0; i < CALIBRATION_SETTINGS && of->set[i].key != NULL && ok; i++)
    ok = settings_set(s, of->set[i].key, of->set[i].value, at, a, d);
  return ok;
}
