/*
 * selective_checkpointing of an Axolotl file: which operators checkpoints keep the results of, and
 * whether these go to the host (monkeypatch/selective_checkpointing.py; `true` keeps attention).
 */
#include <string.h>

#include "sim/config/axolotl/parts.h"
#include "sim/config/key_table.h"

/* An entry is looked for in the qualified names of operators, but for "attention", which is a
 * group. */
static bool matches(const char *entry, const char *name)
{
  bool group = strcmp(entry, "attention") == 0 || strcmp(name, "attention") == 0;
  return group ? strcmp(entry, name) == 0 : strstr(name, entry) != NULL;
}

/* Appends the scenario's names for an entry of `save` to `list`. */
static const char *with_entry(const axolotl_reader *r, const char *list, const text_node *entry)
{
  const char *const *names = key_rows[KEY_recompute_selective_checkpointing_save].words;
  const char *before = list;
  for (; *names != NULL; names++)
    if (matches(entry->text, *names)) list = axolotl_join(r, list, *names);
  if (list == before)
    diag_note(r->d, entry->at, "selective_checkpointing.save: %.100s is not modelled", entry->text);
  return list;
}

static bool set_save(const axolotl_reader *r, const text_node *map)
{
  const text_node *save = text_get(map, "save");
  const char *list = "";
  if (save == NULL || text_is_null(save)) return true;
  if (!text_expect(save, TEXT_SEQUENCE, r->d)) return false;
  for (uint32_t i = 0; i < save->count; i++) {
    if (!text_expect(&save->children[i], TEXT_SCALAR, r->d)) return false;
    list = with_entry(r, list, &save->children[i]);
  }
  return axolotl_set(r, KEY_recompute_selective_checkpointing_save, list, save);
}

/* In addition to hidden_states, the inputs of checkpoints are offloaded. */
static bool set_offload(const axolotl_reader *r, const axolotl_run *run)
{
  const text_node *n = text_get(run->selective_node, "offload");
  bool inputs = run->offloading == AXOLOTL_OFFLOADS_HIDDEN_STATES;
  if (!axolotl_truth(n)) return true;
  return axolotl_set(r, KEY_offload_system, "selective_checkpointing", n) &&
         (!inputs || axolotl_set(r, KEY_offload_selective_checkpointing_hidden_states, "true", n));
}

bool axolotl_apply_selective(const axolotl_reader *r, const axolotl_run *run)
{
  if (!run->selective) return true;
  return axolotl_set(r, KEY_recompute_selective_checkpointing, "true", run->selective_node) &&
         set_save(r, run->selective_node) && set_offload(r, run);
}
