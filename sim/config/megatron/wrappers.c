#include "sim/config/megatron/wrappers.h"

#include <string.h>

/* Source: ms-swift at 3602360a, swift/megatron/arguments/megatron_args.py (MegatronArguments), as far
 * as its defaults are not those of Megatron-LM. That of bf16 is the type of the model's weights. */
static const wrapper_default of_swift[] = {
  { "--bf16", "true" },
  { "--micro-batch-size", "1" },
  { "--global-batch-size", "16" },
  { "--recompute-granularity", "selective" },
  { "--use-distributed-optimizer", "true" },
  { "--cross-entropy-loss-fusion", "true" },
  { "--no-rope-fusion", "true" },
  { "--attention-softmax-in-fp32", "true" },
  { "--attention-backend", "flash" },
  { "--expert-tensor-parallel-size", "1" },
  { "--moe-router-dtype", "fp32" },
  { "--moe-token-dispatcher-type", "alltoall" },
  { "--moe-grouped-gemm", "true" },
};

enum { SWIFT_DEFAULTS = sizeof of_swift / sizeof of_swift[0] };

#define SWIFT "ms-swift", of_swift, SWIFT_DEFAULTS, "NPROC_PER_NODE", "NNODES"

static const megatron_wrapper wrappers[] = {
  { "megatron", "sft", NULL, SWIFT },
  { "megatron", "pt", NULL, SWIFT },
  { "megatron", "rlhf", "trains by reinforcement learning or preferences", SWIFT },
  { "megatron", "export", "converts a checkpoint", SWIFT },
};

const megatron_wrapper *megatron_wrapper_of(const shell_command *c)
{
  if (c->count < 2) return NULL;
  const char *slash = strrchr(c->words[0].text, '/');
  const char *program = slash != NULL ? slash + 1 : c->words[0].text;
  for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
    if (strcmp(program, wrappers[i].program) == 0 &&
        strcmp(c->words[1].text, wrappers[i].verb) == 0)
      return &wrappers[i];
  }
  return NULL;
}

static const shell_word *variable_of(const shell_command *c, const char *name)
{
  for (uint32_t i = 0; i < c->environment_count; i++) {
    const shell_word *value = &c->environment[i].value;
    if (strcmp(c->environment[i].name, name) == 0 && *value->text != '\0') return value;
  }
  return NULL;
}

shell_launch megatron_wrapper_launch(const megatron_wrapper *w, const shell_command *c)
{
  shell_launch launch = c->launch;
  const shell_word *per_node = variable_of(c, w->per_node), *nodes = variable_of(c, w->nodes);
  if (per_node != NULL) {
    launch.per_node = *per_node;
    launch.nodes_default_to_one = true;
  }
  if (nodes != NULL && per_node != NULL) launch.nodes = *nodes;
  return launch;
}
