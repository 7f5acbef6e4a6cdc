/*
 * Defaults of PyTorch's fully sharded data parallel, and of verl's activation offload, which needs it.
 * Source: verl/utils/activation_offload.py (enable_activation_offloading).
 */
#include <inttypes.h>

#include "sim/config/resolve/steps.h"

void resolve_fsdp(settings *s, diag *d)
{
  struct parallel_settings *p = &s->parallel;
  setting_key prefetch = KEY_parallel_fsdp_forward_prefetch;

  if (p->fsdp_size == UNSET) {
    p->fsdp_size = p->world_size;
  }
  if (p->fsdp == FSDP_2 && p->fsdp_forward_prefetch) {
    diag_note(d, s->at[prefetch], "fsdp_forward_prefetch has no effect with fsdp2");
    p->fsdp_forward_prefetch = false;
  }
}

/* verl's own checkpoints are reentrant; its trainer sets transformers to the other kind. */
void resolve_verl(settings *s, diag *d)
{
  struct recompute_settings *r = &s->recompute;

  if (s->offload.system != SYSTEM_verl) {
    return;
  }
  if (s->model.num_layers < 3) {
    diag_note(d, s->at[KEY_offload_system],
              "offload system verl has no effect: it needs 3 layers, there are %" PRId64,
              s->model.num_layers);
  }
  if (r->recompute_granularity == GRANULARITY_FULL && !r->use_reentrant) {
    diag_note(d, s->at[KEY_recompute_recompute_granularity],
              "offload system verl replaces the checkpoints of transformers by reentrant ones of "
              "its own");
    r->use_reentrant = true;
  }
}
