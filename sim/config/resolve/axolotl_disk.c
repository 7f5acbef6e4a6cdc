/*
 * activation_offloading: disk of Axolotl. As released, the loader looks for the older word
 * "offload_disk", so nothing is patched, and TRL's offload to the host runs as for `true` (axolotl
 * pull request #3738). In mode fixed the disk offload runs.
 */
#include "sim/config/resolve/steps.h"

static void drop_checkpoints(settings *s)
{
  s->recompute.recompute_granularity = GRANULARITY_NONE;
  s->recompute.recompute_method = METHOD_NONE;
  s->recompute.recompute_num_layers = UNSET;
}

void resolve_axolotl_disk(settings *s, diag *d)
{
  bool adapter = s->lora.adapter != ADAPTER_NONE;

  if (s->offload.system != SYSTEM_axolotl_disk || s->offload.mode != MODE_AS_RELEASED) {
    return;
  }
  diag_note(
      d, s->at[KEY_offload_system],
      "as released, activation_offloading: disk runs as true: predicted as offload system trl");
  s->offload.system = SYSTEM_trl;
  s->offload.trl_params_registered = !adapter;
  s->recompute.use_reentrant = false;
  if (adapter) {
    drop_checkpoints(s);
  }
}
