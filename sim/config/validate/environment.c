/*
 * Environment variables that Megatron insists on: megatron/training/arguments.py, validate_args.
 * They are no property of a configuration, so they are errors only if an environment was given.
 */
#include <string.h>

#include "sim/config/validate/validate.h"

/* An error if a real environment was given; else a note about what a real run needs. */
static bool need_environment(const settings *s, diag *d, bool holds, setting_key key,
                             const char *message)
{
  if (holds) {
    return true;
  }
  if (s->software.environment_given) {
    return diag_error(d, s->given[key] ? s->at[key] : s->at[KEY_software_environment_given], "%s",
                      message);
  }
  diag_note(d, (source_pos){ 0 }, "%s", message);
  return true;
}

enum { BLACKWELL = 100 }; /* ten times its compute capability */

/* Machine `ideal` is no GPU. */
static bool is_before_blackwell(const settings *s)
{
  return s->derived.compute_capability < BLACKWELL && strcmp(s->machine.name, "ideal") != 0;
}

/* What a script does not set may come from around it, and the prediction is the same. */
static bool need_connections(const settings *s, diag *d, bool holds)
{
  setting_key key = KEY_software_cuda_device_max_connections;
  static const char message[] = "tensor and context parallelism before Blackwell need "
                                "CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment";
  if (s->given[key]) return need_environment(s, d, holds, key, message);
  if (!holds) diag_note(d, (source_pos){ 0 }, "%s", message);
  return true;
}

static bool check_connections(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t connections = s->software.cuda_device_max_connections;
  setting_key key = KEY_software_cuda_device_max_connections;
  bool splits = p->tensor_model_parallel_size > 1 || p->context_parallel_size > 1;
  bool must_be_one = splits && !uses_hf(s) && !p->use_megatron_fsdp &&
                     !p->overlap_moe_expert_parallel_comm && is_before_blackwell(s);

  return need_environment(
             s, d, !p->use_megatron_fsdp || connections != 1, key,
             "use_megatron_fsdp needs CUDA_DEVICE_MAX_CONNECTIONS above 1, or not set") &&
         need_connections(s, d, !must_be_one || connections == 1);
}

bool validate_environment(const settings *s, diag *d)
{
  const struct software_settings *w = &s->software;
  bool offloading = s->offload.system == SYSTEM_megatron;
  bool new_engine = s->derived.software.transformer_engine >= SOFTWARE_VERSION(2, 10);

  return need_environment(
             s, d, !offloading || !new_engine || w->nvte_cpu_offload_v1,
             KEY_software_nvte_cpu_offload_v1,
             "fine_grained_activation_offloading with Transformer Engine 2.10 or newer "
             "needs NVTE_CPU_OFFLOAD_V1=1 in the environment (nvte_cpu_offload_v1=true)") &&
         need_environment(s, d,
                          !s->training.deterministic_mode || !w->nvte_allow_nondeterministic_algo,
                          KEY_software_nvte_allow_nondeterministic_algo,
                          "deterministic_mode needs NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 in the "
                          "environment") &&
         check_connections(s, d);
}
