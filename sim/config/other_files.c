#include "sim/config/other_files.h"

#include <string.h>

#define BY_NAME                                                                                    \
  "write its options by Megatron-LM's names in a mapping for --megatron-args, or in a scenario"
#define BY_HF                                                                                      \
  "give --hf-config config.json of the model, and the rest by --set: implementation=hf, "          \
  "seq_length=4096, micro_batch_size=2"

/* The first row whose key the file has counts: an option reads such a file, or none does. */
static const struct {
  const char *key, *what, *option, *instead;
} other_files[] = {
  { "base_model", "an Axolotl configuration", "--axolotl", NULL },
  { "actor_rollout_ref", "a configuration of verl", "--verl", NULL },
  { "architectures", "a model of Hugging Face", "--hf-config", NULL },
  { "num_hidden_layers", "a model of Hugging Face", "--hf-config", NULL },
  { "gpu_name", "a machine", "--machine", NULL },
  { "per_device_train_batch_size", "a Hugging Face trainer (LLaMA-Factory, TRL)", NULL, BY_HF },
  { "compute_environment", "Accelerate", NULL, BY_HF },
  { "pipe_parallel_size", "GPT-NeoX", NULL, BY_NAME },
  { "pipe-parallel-size", "GPT-NeoX", NULL, BY_NAME },
  { "rerun_state_machine", "Megatron Bridge", NULL, BY_NAME },
  { "exp_manager", "NeMo", NULL, BY_NAME },
  { "policy", "NeMo RL", NULL, BY_NAME },
  { "modules", "Primus", NULL,
    "write the options of its pre_trainer.yaml, of the model's file and of `overrides` in one "
    "mapping "
    "for --megatron-args" },
  { "data", "a configuration of verl", "--verl", NULL },
  { "training", "a scenario", "", NULL },
  { "defaults", "Hydra", NULL, "give the file with the options, or the composed one" },
};

static bool refuse(const text_node *n, size_t row, const char *option, diag *d)
{
  const char *what = other_files[row].what, *other = other_files[row].option;

  if (other == NULL)
    return diag_error(d, n->key_at, "\"%s\" is a key of %s, whose files offsim does not read; %s",
                      n->key, what, other_files[row].instead);
  if (*other == '\0')
    return diag_error(d, n->key_at, "\"%s\" is a key of %s; give the file without %s", n->key, what,
                      option);
  return diag_error(d, n->key_at, "\"%s\" is a key of %s; give the file with %s FILE", n->key, what,
                    other);
}

bool other_files_check(const text_node *top, const char *option, diag *d)
{
  for (size_t i = 0; i < sizeof other_files / sizeof *other_files; i++) {
    const text_node *n = text_get(top, other_files[i].key);
    if (n == NULL) continue;
    bool ours = other_files[i].option != NULL && strcmp(other_files[i].option, option) == 0;
    return ours || refuse(n, i, option, d);
  }
  return true;
}
