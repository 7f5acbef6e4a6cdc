#include "sim/config/megatron/entry_points.h"

#include <stddef.h>
#include <string.h>

/* The first that fits counts. Source: Megatron-LM at d98e8a64: pretrain_*.py, train_rl.py,
 * tools/, examples/. */
static const entry_point entry_points[] = {
  { "*multimodal/*", "trains a model of images and text" },
  { "*mimo/*", "trains a model of several modalities" },
  { "*retro/*", "trains a Retro model" },
  { "*tasks/main.py", "evaluates a model, or fine-tunes BERT" },
  { "*msdp/*", "prompts or evaluates a model" },
  { "*tools/checkpoint/*", "works on a checkpoint" },
  { "pretrain_gpt", NULL },
  { "pretrain_gpt_*", NULL },
  { "pretrain_bert*", "trains a BERT model" },
  { "pretrain_t5*", "trains a T5 model, which has an encoder" },
  { "pretrain_ict*", "trains a retriever" },
  { "pretrain_retro*", "trains a Retro model" },
  { "pretrain_vision*", "trains a vision model" },
  { "pretrain_vlm*", "trains a model of images and text" },
  { "pretrain_multimodal*", "trains a model of images and text" },
  { "pretrain_llava*", "trains a model of images and text" },
  { "pretrain_mamba*", "trains a Mamba or hybrid model" },
  { "pretrain_hybrid*", "trains a Mamba or hybrid model" },
  { "train_mamba*", "trains a Mamba or hybrid model" },
  { "pretrain_mimo*", "trains a model of several modalities" },
  { "train_mimo*", "trains a model of several modalities" },
  { "train_rl*", "trains by reinforcement learning" },
  { "*dataloader_provider*", "trains a model of images and text" },
  { "run_text_generation*", "generates text" },
  { "generate*", "generates text" },
  { "text_generation*", "generates text" },
  { "gpt_*inference*", "runs inference" },
  { "*_inference*", "runs inference" },
  { "inference*", "runs inference" },
  { "simple_gpt_*", "runs inference" },
  { "run_*_server*", "serves a model" },
  { "*_server", "serves a model" },
  { "offline_eval*", "evaluates a model" },
  { "evaluat*", "evaluates a model" },
  { "mmlu", "evaluates a model" },
  { "convert*", "converts a checkpoint" },
  { "hf2*", "converts a checkpoint" },
  { "*2hf*", "converts a checkpoint" },
  { "*mcore2*", "converts a checkpoint" },
  { "*2mcore*", "converts a checkpoint" },
  { "checkpoint_*", "works on a checkpoint" },
  { "export*", "exports a checkpoint" },
  { "saver_*", "converts a checkpoint" },
  { "loader_*", "converts a checkpoint" },
  { "quantize*", "quantizes a model" },
  { "prune*", "prunes a model" },
  { "validate*", "validates a model" },
  { "offline_feature_extract*", "extracts features" },
  { "preprocess_*", "prepares data" },
  { "analyze_data*", "prepares data" },
  { "merge_datasets*", "prepares data" },
  { "build_*", "prepares data" },
  { "detxoify*", "evaluates a model" },
};

/* One `*` or two, each for any text. */
static bool fits(const char *pattern, const char *name, size_t length)
{
  for (; *pattern != '\0' && *pattern != '*'; pattern++, name++, length--) {
    if (length == 0 || *pattern != *name) return false;
  }
  if (*pattern == '\0') return length == 0;
  for (size_t skipped = 0; skipped <= length; skipped++) {
    if (fits(pattern + 1, name + skipped, length - skipped)) return true;
  }
  return false;
}

/* The last part of a path or module. */
static const char *last_part(const char *entry, bool is_module, size_t *length)
{
  const char *name = strrchr(entry, is_module ? '.' : '/');
  name = name != NULL ? name + 1 : entry;
  *length = strlen(name);
  if (!is_module && *length > 3 && strcmp(name + *length - 3, ".py") == 0) *length -= 3;
  return name;
}

const entry_point *entry_point_find(const char *entry, bool is_module)
{
  size_t length;
  const char *name = last_part(entry, is_module, &length);
  for (size_t i = 0; i < sizeof entry_points / sizeof *entry_points; i++) {
    bool whole = strchr(entry_points[i].name, '/') != NULL;
    if (fits(entry_points[i].name, whole ? entry : name, whole ? strlen(entry) : length))
      return &entry_points[i];
  }
  return NULL;
}
