/* Overrides of verl's command for a setting: fsdp.c, megatron.c and trainer.c read backwards. */
#include <inttypes.h>
#include <string.h>

#include "sim/config/key_table.h"
#include "sim/config/megatron/flags.h"
#include "sim/config/verl/parts.h"

/* Of the SFT trainers, and of main_ppo. */
static const struct naming {
  const char *model, *veomni, *megatron, *micro_batch_size;
} namings[] = {
  { "model.", "engine.", "engine.", "data.micro_batch_size_per_gpu" },
  { MODEL, OMNI, MCORE, ACTOR "ppo_micro_batch_size_per_gpu" },
};
_Static_assert(sizeof namings / sizeof namings[0] == VERL_NAMINGS, "one of each");

/* ---- FSDP ---- */

static const char *truth(bool value)
{
  return value ? "True" : "False";
}

static void offer(training_lines *to, const char *prefix, const char *name, const char *value,
                  arena *a)
{
  training_offer(to, arena_printf(a, "%s%s=%s", prefix, name, value));
}

static void add_fsdp(training_lines *to, const settings *s, const struct naming *n, arena *a)
{
  bool recomputes = s->recompute.recompute_granularity == GRANULARITY_FULL;
  const char *limit = arena_printf(a, "%.17g", s->offload.activation_gpu_limit);

  offer(to, TURBO, "memory.recompute", truth(recomputes), a);
  offer(to, n->model, "enable_gradient_checkpointing", truth(recomputes), a);
  offer(to, n->model, "enable_activation_offload", truth(s->offload.system != SYSTEM_none), a);
  offer(to, n->veomni, "enable_reentrant", truth(s->recompute.use_reentrant), a);
  offer(to, n->veomni, "activation_gpu_limit", limit, a);
}

/* ---- Megatron-LM's engine ---- */

/* An option's field: a list of words as Hydra writes it; what must not be given gets its default. */
static const char *field(setting_key key, const char *value, arena *a)
{
  bool leaves_out;
  const char *option = megatron_flag_for(key, value, &leaves_out, a);

  if (option == NULL) {
    return NULL;
  }
  char *name = arena_strndup(a, option + 2, strcspn(option + 2, " "));
  const megatron_flag *flag = &megatron_flags[megatron_flag_find(name)];
  for (char *c = name; *c != '\0'; c++) {
    *c = *c == '-' ? '_' : *c;
  }
  if (flag->type == FLAG_TYPE_FLAG) {
    return arena_printf(a, "%s=%s", name, truth(!leaves_out));
  }
  bool list = flag->values == FLAG_VALUES_SOME;
  return leaves_out ? arena_printf(a, "%s=null", name)
                    : arena_printf(a, list ? "%s=[%s]" : "%s=%s", name, value);
}

/* ---- both ---- */

static bool is_of_layers(setting_key key)
{
  const char *section = key_rows[key].section;
  return strcmp(section, "recompute") == 0 || strcmp(section, "offload") == 0;
}

void verl_rows(training_lines *to, const training_wish *w, uint32_t naming, arena *a)
{
  const struct naming *n = &namings[naming];

  if (uses_hf(w->wanted)) {
    add_fsdp(to, w->wanted, n, a);
  }
  for (uint32_t i = 0; i < w->set_count; i++) {
    const char *value, *given = NULL;
    setting_key key = training_key(w->sets[i], &value, a);
    if (!uses_hf(w->wanted) && is_of_layers(key)) {
      given = field(key, value, a);
    }
    if (given != NULL) {
      training_need(to, arena_printf(a, "++%soverride_transformer_config.%s", n->megatron, given));
    } else if (key == KEY_training_micro_batch_size) {
      training_need(to, arena_printf(a, "%s=%s", n->micro_batch_size, value));
    } else if (key == KEY_software_expandable_segments && strcmp(value, "true") == 0) {
      to->variable = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
    }
  }
}
