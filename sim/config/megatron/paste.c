#include "sim/config/megatron/paste.h"

#include <string.h>

#include "sim/config/key_table.h"
#include "sim/config/megatron/flags.h"

bool megatron_takes_options(const settings *s)
{
  return !uses_hf(s) && !s->derived.of_verl;
}

static const char *joined(const char *before, const char *more, arena *a)
{
  return *before == '\0' || *more == '\0' ? arena_printf(a, "%s%s", before, more)
                                          : arena_printf(a, "%s %s", before, more);
}

/* The variable that sets the key to true; NULL: none. */
static const char *variable_of(setting_key key)
{
  if (key == KEY_software_expandable_segments)
    return "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
  return key == KEY_software_nvte_cpu_offload_v1 ? "NVTE_CPU_OFFLOAD_V1=1" : NULL;
}

/* `variables` are apart: they go before the command. */
static bool paste(megatron_pasted *to, const char **variables, const char *set, arena *a)
{
  size_t length = strcspn(set, "=");
  setting_key key = key_find(arena_strndup(a, set, length));
  const char *value = set + length + 1;
  if (key == KEY_offload_system && *value == '\0') return true;
  if (key == KEY_offload_system && strcmp(value, "megatron") == 0) {
    key = KEY_offload_fine_grained_activation_offloading;
    value = "true";
  }
  const char *variable = variable_of(key);
  bool leaves_out = variable != NULL && strcmp(value, "true") != 0;
  const char *given = variable != NULL ? variable : megatron_flag_for(key, value, &leaves_out, a);
  if (given == NULL) return false;
  const char **part = leaves_out ? &to->left_out : variable != NULL ? variables : &to->flags;
  *part = joined(*part, given, a);
  return true;
}

bool megatron_paste(megatron_pasted *to, const char *const *sets, uint32_t count, arena *a)
{
  const char *variables = "";
  *to = (megatron_pasted){ "", "" };
  for (uint32_t i = 0; i < count; i++)
    if (!paste(to, &variables, sets[i], a)) return false;
  to->flags = joined(variables, to->flags, a);
  return true;
}
