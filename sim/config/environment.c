#include "sim/config/environment.h"

#include <string.h>

#include "sim/base/text.h"

typedef enum variable_kind {
  VARIABLE_SWITCH, /* 0 or 1 */
  VARIABLE_NUMBER,
  VARIABLE_NUMBER_OR_NOTHING, /* launch scripts compute it: taken where it is a plain number */
  VARIABLE_TEXT,
  VARIABLE_ALLOCATOR, /* PyTorch's "name:value,name:value" */
} variable_kind;

typedef struct variable {
  const char *name;
  variable_kind kind;
  const char *key;
} variable;

static const variable variables[] = {
  { "CUDA_DEVICE_MAX_CONNECTIONS", VARIABLE_NUMBER, "software.cuda_device_max_connections" },
  { "CUBLAS_WORKSPACE_CONFIG", VARIABLE_TEXT, "software.cublas_workspace_config" },
  { "NVTE_ALLOW_NONDETERMINISTIC_ALGO", VARIABLE_SWITCH,
    "software.nvte_allow_nondeterministic_algo" },
  { "NVTE_CPU_OFFLOAD_V1", VARIABLE_SWITCH, "software.nvte_cpu_offload_v1" },
  { "NVTE_FLASH_ATTN", VARIABLE_SWITCH, "software.nvte_flash_attn" },
  { "NVTE_FUSED_ATTN", VARIABLE_SWITCH, "software.nvte_fused_attn" },
  { "NVTE_UNFUSED_ATTN", VARIABLE_SWITCH, "software.nvte_unfused_attn" },
  { "OMP_NUM_THREADS", VARIABLE_NUMBER_OR_NOTHING, "software.omp_num_threads" },
  { "PYTORCH_ALLOC_CONF", VARIABLE_ALLOCATOR, "software.expandable_segments" },
  { "PYTORCH_CUDA_ALLOC_CONF", VARIABLE_ALLOCATOR, "software.expandable_segments" },
  { "WORLD_SIZE", VARIABLE_NUMBER_OR_NOTHING, "parallel.world_size" },
};

static bool is_number(const char *text)
{
  return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static const char *switch_text(const char *value)
{
  if (strcmp(value, "0") == 0 || strcmp(value, "1") == 0) {
    return *value == '1' ? "true" : "false";
  }
  return NULL;
}

static const char *expandable_segments(const char *value)
{
  const char *name = "expandable_segments:";
  const char *found = strstr(value, name);
  if (found == NULL) {
    return "false";
  }
  found += strlen(name);
  return begins_with(found, "True") || begins_with(found, "true") ? "true" : "false";
}

/* The value of the key. NULL: none, or, if `wanted` is set, an error. */
static const char *key_text(const variable *v, const char *value, const char **wanted)
{
  *wanted = NULL;
  switch (v->kind) {
  case VARIABLE_SWITCH: *wanted = "0 or 1"; return switch_text(value);
  case VARIABLE_NUMBER: *wanted = "a number"; return is_number(value) ? value : NULL;
  case VARIABLE_NUMBER_OR_NOTHING: return is_number(value) ? value : NULL;
  case VARIABLE_TEXT: return value;
  case VARIABLE_ALLOCATOR: return expandable_segments(value);
  }
  return NULL;
}

bool environment_set(settings *s, const char *name, const char *value, source_pos at, arena *a,
                     diag *d)
{
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
    const variable *v = &variables[i];
    if (strcmp(name, v->name) != 0) {
      continue;
    }
    const char *wanted;
    const char *text = key_text(v, value, &wanted);
    if (text == NULL) {
      return wanted == NULL ||
             diag_error(d, at, "%s is \"%s\"; %s is needed here", name, value, wanted);
    }
    return settings_set(s, v->key, text, at, a, d);
  }
  return true;
}

bool environment_matters(const char *name)
{
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
    if (strcmp(name, variables[i].name) == 0) {
      return true;
    }
  }
  return false;
}

bool environment_given(settings *s, source_pos at, arena *a, diag *d)
{
  return settings_set(s, "software.environment_given", "true", at, a, d);
}
