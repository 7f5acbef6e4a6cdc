/*
 * Options that no row of the table knows: those of wrappers, forks and newer versions.
 *
 * Most of them name data, logs or checkpoints, and a run is predicted without them, which a note
 * says. One whose name looks like a shape, a precision or memory may change the prediction, and so
 * may a misspelt option: that is an error.
 */
#include <string.h>

#include "sim/config/foreign_messages.h"
#include "sim/config/megatron/args_parts.h"

/* Parts of names, with dashes. A name with one of these parts changes neither memory nor time,
 * even if it also has parts of the second list. */
static const char *const harmless[] = {
  "-path",   "-dir",     "-file", "-log-",       "-logg",     "wandb",   "tensorboard",
  "swanlab", "mlflow",   "save",  "-name",       "tokenizer", "eval",    "valid",
  "-seed",   "profile",  "nsys",  "data-",       "-dataset",  "timeout", "-port",
  "-host",   "learning", "-lr",   "loss-weight",
};

static const char *const weighty[] = {
  "size",           "layer",   "head",      "hidden",    "ffn",       "-dim",     "vocab",
  "embedding",      "expert",  "moe",       "attention", "attn",      "mlp",      "norm",
  "rope",           "mtp",     "lora",      "adapter",   "freeze",    "offload",  "recompute",
  "checkpoint-act", "swap",    "cache",     "buffer",    "memory",    "parallel", "pipeline",
  "shard",          "zero",    "fsdp",      "stage",     "seq",       "length",   "token",
  "pack",           "batch",   "fp8",       "fp4",       "fp16",      "bf16",     "fp32",
  "int8",           "dtype",   "precision", "quant",     "optimizer", "adam",     "muon",
  "grad",           "dropout", "overlap",   "fuse",      "fusion",    "graph",    "compile",
  "distill",        "teacher", "vision",    "image",     "encoder",   "decoder",  "mamba",
  "reward",
};

static bool has_one(const char *name, const char *const *parts, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (strstr(name, parts[i]) != NULL) return true;
  }
  return false;
}

/* Small letters, and dashes where the name has underscores. */
static const char *plain_name(const char *name, arena *a)
{
  char *plain = arena_strdup(a, name);
  for (char *c = plain; *c != '\0'; c++) {
    if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    if (*c == '_') *c = '-';
  }
  return plain;
}

static bool may_change_prediction(const char *name, const char *near, arena *a)
{
  const char *plain = plain_name(name, a);
  if (near != NULL && megatron_flags[megatron_flag_find(near)].effect.kind != FLAG_IGNORED) {
    return true;
  }
  return !has_one(plain, harmless, sizeof harmless / sizeof *harmless) &&
         has_one(plain, weighty, sizeof weighty / sizeof *weighty);
}

bool megatron_unknown_option(const args_reader *r, const char *name, source_pos at)
{
  bool listed = r->d->further_count < DIAG_FURTHER; /* else the message is not printed */
  const char *near = listed ? megatron_flag_nearest(r->a, name) : NULL;
  bool skip = r->ignore_unknown || !may_change_prediction(name, near, r->a);
  return foreign_unknown(r->d, at, "Megatron option", name, near, skip);
}
