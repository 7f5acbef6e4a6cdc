/* PyTorch's fully sharded data parallel (torch/distributed/fsdp/_init_utils.py: NO_SHARD for one
 * rank). */
#include <inttypes.h>

#include "sim/config/validate/validate.h"

bool validate_fsdp(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  setting_key key = KEY_parallel_fsdp, size = KEY_parallel_fsdp_size;
  system_choice system = s->offload.system;

  if (p->fsdp == FSDP_NONE) {
    return true;
  }
  return need(s, d, uses_hf(s), key, KEY_model_implementation,
              "fsdp needs model.implementation hf; it is %s (Megatron-LM's own is "
              "use_megatron_fsdp)",
              chosen_word(s, KEY_model_implementation)) &&
         need(s, d, p->world_size % p->fsdp_size == 0, size, KEY_parallel_world_size,
              "world_size is %" PRId64 "; it must be divisible by fsdp_size (%" PRId64 ")",
              p->world_size, p->fsdp_size) &&
         need(s, d, !s->training.keep_gradients, KEY_training_keep_gradients, key,
              "keep_gradients does not work with fsdp") &&
         need(s, d,
              s->offload.trl_params_registered || system == SYSTEM_none || system == SYSTEM_verl,
              KEY_offload_trl_params_registered, key,
              "with fsdp, offload.trl_params_registered must be true: views of gathered parameters "
              "cannot be copied");
}
