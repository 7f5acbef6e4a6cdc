/*
 * Constraints of layer-level offloading, which several systems share.
 * Sources: see validate.h.
 */
#include <inttypes.h>

#include "sim/config/validate/validate.h"

/* Conditions of the engines themselves: get_cpu_offload_context (transformer_engine/pytorch/cpu_offload.py).
 */
static bool check_layer_engine(const settings *s, diag *d)
{
  setting_key key = KEY_offload_system;

  return !offloads_layers(s) || uses_hf(s) ||
         (need(s, d, !s->offload.fine_grained_activation_offloading,
               KEY_offload_fine_grained_activation_offloading, key,
               "cpu_offloading and fine_grained_activation_offloading cannot both be used") &&
          need(s, d, s->offload.cpu_offloading_activations, KEY_offload_cpu_offloading_activations,
               key, "offload system %s needs cpu_offloading_activations", chosen_word(s, key)));
}

static bool check_layer_level(const settings *s, diag *d)
{
  setting_key count = KEY_offload_cpu_offloading_num_layers, key = KEY_offload_cpu_offloading;

  /* Megatron-LM's own conditions; it does not use the manual mode. */
  bool manual = s->offload.cpu_offloading_manual_synchronization;

  return !s->offload.cpu_offloading ||
         (need(s, d, manual || s->offload.cpu_offloading_num_layers < s->model.num_layers, count,
               key,
               "cpu_offloading_num_layers is %" PRId64 "; it must be less than num_layers (%" PRId64
               ")",
               s->offload.cpu_offloading_num_layers, s->model.num_layers) &&
          need(s, d, manual || s->parallel.pipeline_model_parallel_size == 1, key, count,
               "cpu_offloading needs pipeline_model_parallel_size 1; it is %" PRId64,
               s->parallel.pipeline_model_parallel_size) &&
          need(s, d, s->offload.cpu_offloading_activations || s->offload.cpu_offloading_weights,
               KEY_offload_cpu_offloading_activations, key,
               "cpu_offloading_activations and cpu_offloading_weights are both false; "
               "cpu_offloading needs one of them") &&
          need(s, d, s->recompute.recompute_granularity == GRANULARITY_NONE, key, count,
               "cpu_offloading does not work with recomputation"));
}

bool validate_offload(const settings *s, settings_check *of_system, diag *d)
{
  return check_layer_level(s, d) && check_layer_engine(s, d) &&
         (of_system == NULL || of_system(s, d));
}
