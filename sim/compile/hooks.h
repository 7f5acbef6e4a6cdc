/*
 * Hooks at which two engines may act: the policy and, beside it, Axolotl's layer_offloading.
 *
 * The trainer's training_step enters the context of the weights first and leaves it last
 * (axolotl/core/trainers/base.py: LayerOffloadingMixin comes before ActivationOffloadingMixin). A
 * layer's hooks belong to its module; what a checkpoint's own context does comes before the module
 * is called.
 */
#ifndef OFFSIM_SIM_COMPILE_HOOKS_H
#define OFFSIM_SIM_COMPILE_HOOKS_H

#include "sim/compile/walk.h"

static inline void hook_forward_begin(walk *w, instance_id i)
{
  if (w->beside != NULL) w->beside->forward_begin(w->beside_state, w, i);
  if (w->policy->forward_begin != NULL) w->policy->forward_begin(w->state, w, i);
}

static inline void hook_backward_end(walk *w, instance_id i)
{
  if (w->policy->backward_end != NULL) w->policy->backward_end(w->state, w, i);
  if (w->beside != NULL) w->beside->backward_end(w->beside_state, w, i);
}

static inline void hook_layer_begin(walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  if (w->policy->layer_begin != NULL) w->policy->layer_begin(w->state, w, i, layer, pass);
  if (w->beside != NULL) w->beside->layer_begin(w->beside_state, w, i, layer, pass);
}

static inline void hook_layer_end(walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  if (w->beside != NULL) w->beside->layer_end(w->beside_state, w, i, layer, pass);
  if (w->policy->layer_end != NULL) w->policy->layer_end(w->state, w, i, layer, pass);
}

#endif
