/*
 * Which checkpointing and which offload system run for an Axolotl file.
 *
 *   activation_offloading   without adapter                        with adapter
 *   true                    non-reentrant checkpoints, trl         no checkpoints, trl
 *   legacy                  the same, copies on compute            the same
 *   disk                    as true: a switch is dead (#3738); in mode fixed what it is meant to be
 *   hidden_states           non-reentrant checkpoints whose inputs move; reentrant when asked for
 *   false                   transformers' checkpoints; gradient_checkpointing_kwargs go to them
 *
 * Sources: core/builders/base.py (_configure_gradient_checkpointing), loaders/model.py
 * (_apply_activation_checkpointing), core/trainers/mixins/activation_checkpointing.py,
 * normalize_config.
 */
#include <string.h>

#include "sim/config/axolotl/parts.h"
#include "sim/text/scalar.h"

/* ---- what was given ---- */

typedef struct offloading_word {
  const char *word;
  axolotl_offloading offloading;
} offloading_word;

static const offloading_word words[] = {
  { "legacy", AXOLOTL_OFFLOADS_LEGACY },
  { "disk", AXOLOTL_OFFLOADS_DISK },
  { "hidden_states", AXOLOTL_OFFLOADS_HIDDEN_STATES },
};

static bool read_offloading(const axolotl_reader *r, axolotl_run *run)
{
  const text_node *n = run->offloading_node = axolotl_get(r, "activation_offloading");
  bool on;
  if (n == NULL) return true;
  if (n->kind == TEXT_SCALAR && scalar_bool(n->text, &on)) {
    run->offloading = on ? AXOLOTL_OFFLOADS_ALL : AXOLOTL_OFFLOADS_NOTHING;
    return true;
  }
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (n->kind == TEXT_SCALAR && strcmp(n->text, words[i].word) == 0) {
      run->offloading = words[i].offloading;
      return true;
    }
  return diag_error(r->d, n->at,
                    "activation_offloading is %s; it must be true, false, legacy, disk or "
                    "hidden_states",
                    text_describe(r->a, n));
}

/* "offload" and "offload_disk" are older words for both keys
 * (check_gradient_checkpointing_w_offload). */
static bool read_checkpointing(const axolotl_reader *r, axolotl_run *run)
{
  const text_node *n = run->checkpointing_node = axolotl_get(r, "gradient_checkpointing");
  bool older = axolotl_is(r, "gradient_checkpointing", "offload");
  bool older_disk = axolotl_is(r, "gradient_checkpointing", "offload_disk");
  if (n == NULL) return true;
  if (older || older_disk) {
    run->checkpointing = true;
    run->offloading = older ? AXOLOTL_OFFLOADS_ALL : AXOLOTL_OFFLOADS_DISK;
    run->offloading_node = n;
    return true;
  }
  if (n->kind == TEXT_SCALAR && scalar_bool(n->text, &run->checkpointing)) return true;
  return diag_error(r->d, n->at,
                    "gradient_checkpointing is %s; it must be true, false, offload or offload_disk",
                    text_describe(r->a, n));
}

/* Checkpoints are reentrant unless Axolotl or the file says otherwise: normalize_config sets it
 * where there are no kwargs, torch.utils.checkpoint takes it where they leave it out. */
static bool read_reentrant(const axolotl_reader *r, axolotl_run *run)
{
  const text_node *kwargs = axolotl_get(r, "gradient_checkpointing_kwargs");
  const text_node *n = text_get(kwargs, "use_reentrant");
  bool frozen = kwargs == NULL && axolotl_get(r, "unfrozen_parameters") != NULL;
  run->reentrant = run->offloading != AXOLOTL_OFFLOADS_HIDDEN_STATES && !run->selective && !frozen;
  if (n == NULL || text_is_null(n)) return true;
  run->reentrant_node = n;
  return text_as_bool(n, &run->reentrant, r->d);
}

/* Axolotl hands the mapping on as it is; transformers' Trainer takes these two out of it. */
static void read_transformers(const axolotl_reader *r, axolotl_run *run)
{
  const text_node *kwargs = axolotl_get(r, "gradient_checkpointing_kwargs");
  const text_node *every_n = text_get(kwargs, "every_n_layers");
  run->inputs_node = text_get(kwargs, "offload");
  run->inputs_on_cpu = axolotl_truth(run->inputs_node);
  run->every_n_node = every_n != NULL && text_is_null(every_n) ? NULL : every_n;
}

bool axolotl_read_run(const axolotl_reader *r, axolotl_run *run)
{
  *run = (axolotl_run){ .adapter = axolotl_get(r, "adapter") != NULL,
                        .selective_node = axolotl_get(r, "selective_checkpointing"),
                        .layers = axolotl_truth(axolotl_get(r, "layer_offloading")) };
  run->selective = axolotl_truth(run->selective_node);
  read_transformers(r, run);
  return read_offloading(r, run) && read_checkpointing(r, run) && read_reentrant(r, run);
}

/* ---- what runs ---- */

static bool set_checkpointing(const axolotl_reader *r, const axolotl_run *run, bool reentrant)
{
  const text_node *n = run->checkpointing_node;
  return axolotl_set(r, KEY_recompute_recompute_granularity, "full", n) &&
         axolotl_set(r, KEY_recompute_recompute_method, "uniform", n) &&
         axolotl_set(r, KEY_recompute_recompute_num_layers, "1", n) &&
         axolotl_set(r, KEY_recompute_use_reentrant, reentrant ? "true" : "false",
                     run->reentrant_node != NULL ? run->reentrant_node : n);
}

/* TRL's hooks take the place of transformers' checkpoints: the loader wraps layers anew without
 * adapter, and nothing is computed again with one. */
static bool apply_trl(const axolotl_reader *r, const axolotl_run *run, const char *system)
{
  const text_node *n = run->offloading_node;
  return axolotl_set(r, KEY_offload_system, system, n) &&
         axolotl_set(r, KEY_offload_trl_params_registered, run->adapter ? "false" : "true", n) &&
         axolotl_set(r, KEY_offload_exclude_output_layer, "true", n) &&
         (run->adapter || set_checkpointing(r, run, false));
}

static bool apply_hidden_states(const axolotl_reader *r, const axolotl_run *run)
{
  return axolotl_set(r, KEY_offload_system,
                     run->reentrant ? "hidden_states_reentrant" : "hidden_states",
                     run->offloading_node) &&
         set_checkpointing(r, run, run->reentrant);
}

static bool apply_disk(const axolotl_reader *r, const axolotl_run *run)
{
  return axolotl_set(r, KEY_offload_system, "axolotl_disk", run->offloading_node) &&
         set_checkpointing(r, run, true);
}

/* fsdp_config has a switch of its own, which wraps layers as TRL's full fine-tuning does. */
static bool checkpoints_of_fsdp(const axolotl_reader *r)
{
  const text_node *map = axolotl_get(r, "fsdp_config");
  return axolotl_truth(text_get(map, "activation_checkpointing")) ||
         axolotl_truth(text_get(map, "fsdp_activation_checkpointing"));
}

static bool apply_transformers(const axolotl_reader *r, const axolotl_run *run)
{
  const text_node *n = run->every_n_node;
  const char *every_n;
  if (run->inputs_on_cpu || n != NULL)
    diag_note(r->d, (run->inputs_on_cpu ? run->inputs_node : n)->key_at,
              "gradient_checkpointing_kwargs: offload and every_n_layers need transformers 5.17 or "
              "later; with an older one the run stops or ignores them");
  return set_checkpointing(r, run, run->reentrant) &&
         (n == NULL || (text_as_string(n, &every_n, r->d) &&
                        axolotl_set(r, KEY_recompute_every_n_layers, every_n, n))) &&
         (!run->inputs_on_cpu ||
          axolotl_set(r, KEY_offload_system, "transformers", run->inputs_node));
}

static bool apply_without_offload(const axolotl_reader *r, const axolotl_run *run)
{
  if (run->checkpointing) return apply_transformers(r, run);
  return !checkpoints_of_fsdp(r) || set_checkpointing(r, run, false);
}

static bool apply_activations(const axolotl_reader *r, const axolotl_run *run)
{
  switch (run->offloading) {
  case AXOLOTL_OFFLOADS_ALL: return apply_trl(r, run, "trl");
  case AXOLOTL_OFFLOADS_LEGACY: return apply_trl(r, run, "trl_sync");
  case AXOLOTL_OFFLOADS_DISK: return apply_disk(r, run);
  case AXOLOTL_OFFLOADS_HIDDEN_STATES: return apply_hidden_states(r, run);
  case AXOLOTL_OFFLOADS_NOTHING: break;
  }
  return apply_without_offload(r, run);
}

/* Layers of frozen parameters move beside all that. */
static bool apply_layers(const axolotl_reader *r, const axolotl_run *run)
{
  const text_node *n = axolotl_get(r, "layer_offloading");
  if (!run->layers) return true;
  if (!run->adapter) {
    diag_note(r->d, n->at,
              "layer_offloading moves frozen parameters, and none is frozen: no effect");
    return true;
  }
  return axolotl_set(r, KEY_offload_layer_offloading, "true", n);
}

bool axolotl_apply_run(const axolotl_reader *r, const axolotl_run *run)
{
  return apply_activations(r, run) && axolotl_apply_selective(r, run) && apply_layers(r, run);
}
