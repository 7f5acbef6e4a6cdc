/* Lines of an Axolotl file for a setting: offload.c, selective.c and keys.def read backwards. */
#include <inttypes.h>
#include <string.h>

#include "sim/config/axolotl/parts.h"
#include "sim/config/key_table.h"

/* In place of what the file says; of activation_offloading every value, as several keys decide together. */
static const training_row
    checkpointing = { { "", "gradient_checkpointing: true", "gradient_checkpointing: false" }, 3 },
    offloading = { { "", "activation_offloading: false", "activation_offloading: true",
                     "activation_offloading: legacy", "activation_offloading: disk",
                     "activation_offloading: hidden_states" },
                   6 };

static const char *truth(bool value)
{
  return value ? "true" : "false";
}

static const char *kwargs(const settings *s, arena *a)
{
  const struct recompute_settings *r = &s->recompute;
  const char *every_n = r->every_n_layers == 1
                            ? ""
                            : arena_printf(a, ", every_n_layers: %" PRId64, r->every_n_layers);
  return arena_printf(a, "gradient_checkpointing_kwargs: {use_reentrant: %s%s%s}",
                      truth(r->use_reentrant), every_n,
                      s->offload.system == SYSTEM_transformers ? ", offload: true" : "");
}

static const char *selective(const settings *s, arena *a)
{
  const choice_list *save = &s->recompute.selective_checkpointing_save;
  const char *words = "";
  if (!s->recompute.selective_checkpointing) return "selective_checkpointing: null";
  for (uint32_t i = 0; i < save->count; i++)
    words = arena_printf(a, "%s%s\"%s\"", words, i == 0 ? "" : ", ",
                         choice_word(KEY_recompute_selective_checkpointing_save, save->items[i]));
  return arena_printf(a, "selective_checkpointing: {save: [%s], offload: %s}", words,
                      truth(s->offload.system == SYSTEM_selective_checkpointing));
}

void axolotl_rows(training_lines *to, const training_wish *w, uint32_t naming, arena *a)
{
  (void)naming;
  to->rows[to->count++] = checkpointing;
  to->rows[to->count++] = offloading;
  training_offer(to, kwargs(w->wanted, a));
  training_offer(to, selective(w->wanted, a));
  training_offer(
      to, arena_printf(a, "layer_offloading: %s", truth(w->wanted->offload.layer_offloading)));
  for (uint32_t i = 0; i < w->set_count; i++) {
    const char *value;
    setting_key key = training_key(w->sets[i], &value, a);
    const char *name = axolotl_key_of(key);
    if (name != NULL) training_need(to, arena_printf(a, "%s: %s", name, value));
    if (key == KEY_software_expandable_segments)
      to->variable = arena_printf(a, "PYTORCH_ALLOC_CONF=expandable_segments:%s",
                                  strcmp(value, "true") == 0 ? "True" : "False");
  }
}
