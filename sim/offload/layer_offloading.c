/*
 * Axolotl's layer offloading: the frozen weights of the decoder layers are on the host, and on the
 * device only during their layer's passes (src/axolotl/core/trainers/mixins/layer_offloading.py,
 * LayerOffloadManager).
 *
 * Before a layer runs, forward or backward, its weights are loaded if they are not on the device,
 * compute waits for the transfer stream, and the transfer stream begins to load the next layer.
 * After the layer the previous layer's weights leave. Each time they are copied to the host on the
 * compute stream, although they never change. So at most three layers are on the device, and
 *
 *   - the last layer leaves after its forward and is loaded on demand, on the compute stream, when
 *     backward begins;
 *   - a training step, one micro-batch, ends while the first layer is being loaded; the next step
 *     begins by offloading it and loading it again;
 *   - a checkpoint's recomputation calls the layer's module, whose hooks fire once more: compute
 *     waits for the layer whose load has just begun.
 *
 * Two modes. As released that offload does not wait for the transfer: it may copy weights that have
 * not arrived over the layer's only copy on the host. A review of Axolotl PR #3512, which added
 * this system, mentions it; upstream still has the race. `fixed` waits, as that review proposes.
 *
 * Blocks of the transfer stream's memory that compute has read are freed without record_stream.
 * That is not a race: the transfer stream waits for compute before each layer that it loads.
 */
#include <assert.h>

#include "sim/config/checks.h"
#include "sim/offload/actions.h"
#include "sim/offload/systems.h"

typedef struct manager {
  int32_t layers;
  bool as_released;
} manager;

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  manager *x = ARENA_NEW(a, manager);
  (void)iteration;
  (void)d;

  assert(r->chunk_count == 1 && "one stage, one chunk");
  x->layers = (int32_t)r->settings->model.num_layers;
  x->as_released = r->settings->offload.mode == MODE_AS_RELEASED;
  return x;
}

/* ---- one layer ---- */

static void offload(const manager *x, walk *w, int32_t layer)
{
  assert(layer >= -1 && layer <= x->layers);
  if (layer < 0 || layer == x->layers || !act_weights_on_device(w, layer)) return;
  act_weights_out(w, layer, STREAM_COMPUTE);
  assert(!act_weights_on_device(w, layer));
}

static void load(walk *w, int32_t layer)
{
  if (!act_weights_on_device(w, layer)) act_weights_in(w, layer, STREAM_COMPUTE, STREAM_COMPUTE);
  assert(act_weights_on_device(w, layer));
}

static void prefetch(const manager *x, walk *w, int32_t layer)
{
  if (layer < 0 || layer >= x->layers || act_weights_on_device(w, layer)) return;
  act_join(w, STREAM_H2D, STREAM_COMPUTE);
  act_weights_in(w, layer, STREAM_H2D, STREAM_H2D);
  assert(act_weights_on_device(w, layer));
}

/* ---- the hooks of a layer's module ---- */

static void layer_begin(void *state, walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  const manager *x = state;
  (void)i;

  assert(layer >= 0 && layer < x->layers);
  load(w, layer);
  act_join(w, STREAM_COMPUTE, STREAM_H2D);
  prefetch(x, w, pass == PASS_BACKWARD ? layer - 1 : layer + 1);
}

static void layer_end(void *state, walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  const manager *x = state;
  bool backward = pass == PASS_BACKWARD;
  (void)i;
  assert(act_weights_on_device(w, layer) && "the layer's weights are on the device");

  offload(x, w, backward ? layer + 1 : layer - 1);
  if (layer == (backward ? 0 : x->layers - 1)) offload(x, w, layer);
}

/* ---- around a training step ---- */

static void offload_all(void *state, walk *w, instance_id i)
{
  const manager *x = state;
  (void)i;

  for (int32_t layer = 0; layer < x->layers; layer++)
    offload(x, w, layer);
  assert(x->layers > 0);
  prefetch(x, w, 0);
}

static void step_begin(void *state, walk *w, instance_id i)
{
  const manager *x = state;

  if (!x->as_released) act_join(w, STREAM_COMPUTE, STREAM_H2D);
  offload_all(state, w, i);
}

static const char *defects(void *state)
{
  const manager *x = state;

  return x->as_released ? "a step begins by copying the first layer's weights to the host without "
                          "waiting for the transfer that loads them"
                        : NULL;
}

/* ---- conditions ---- */

/* Systems that Axolotl's trainer has. */
bool layer_offloading_goes_beside(system_choice system)
{
  assert(system != SYSTEM_EMPTY && (uint32_t)system < OFFLOAD_SYSTEM_COUNT);
  bool others = system == SYSTEM_save_on_cpu || system == SYSTEM_veomni ||
                system == SYSTEM_planned || system == SYSTEM_deepspeed;
  return offload_systems[system].scope == OFFLOAD_STEP && !others;
}

/* Inputs of checkpoints and outputs of attention, together, take both copying streams. */
static bool goes_beside(const settings *s, diag *d)
{
  assert(s->offload.layer_offloading || s->offload.system == SYSTEM_layer_offloading);
  setting_key key = KEY_offload_layer_offloading;
  bool alone = s->offload.system == SYSTEM_layer_offloading;

  return need(s, d, alone || layer_offloading_goes_beside(s->offload.system), key,
              KEY_offload_system,
              "layer_offloading works beside Axolotl's systems of activations; offload "
              "system %s is not one of them",
              chosen_word(s, KEY_offload_system)) &&
         need(s, d, alone || !s->offload.selective_checkpointing_hidden_states, key,
              KEY_offload_selective_checkpointing_hidden_states,
              "layer_offloading beside selective_checkpointing_hidden_states would need a third "
              "copying stream, which is not modelled");
}

static bool conditions(const settings *s, diag *d)
{
  setting_key key =
      s->given[KEY_offload_layer_offloading] ? KEY_offload_layer_offloading : KEY_offload_system;

  return goes_beside(s, d) &&
         need(s, d, s->lora.adapter != ADAPTER_NONE, key, KEY_lora_adapter,
              "offload system layer_offloading moves frozen parameters; without lora.adapter all "
              "parameters train") &&
         need(s, d, s->parallel.fsdp == FSDP_NONE, key, KEY_parallel_fsdp,
              "offload system layer_offloading does not work with fsdp, which has no whole "
              "parameters to move");
}

const offload_descriptor layer_offloading_system = {
  .policy = {
    .begin = begin,
    .forward_begin = step_begin,
    .layer_begin = layer_begin,
    .layer_end = layer_end,
    .backward_end = offload_all,
    .defects = defects,
  },
  .theory = { .group_leaves = theory_no_group, .entry_leaves = theory_no_entry },
  .conditions = conditions,
  .streams = {
    .leaves = "frozen weights",
    .waits_for_copy_out = "compute, at once: the same stream",
    .memory_goes = "at once",
    .comes_back = "one layer ahead",
    .into_pool_of = "the copying stream",
  },
};
