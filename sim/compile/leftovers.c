#include "sim/compile/leftovers.h"

#include <assert.h>

#include "sim/compile/held.h"

static uint32_t layer_count(const walk *w)
{
  assert(w->settings->model.num_layers > 0 && w->settings->model.mtp_num_layers >= 0);
  return (uint32_t)(w->settings->model.num_layers + w->settings->model.mtp_num_layers);
}

uint32_t leftovers_layers(const walk *w)
{
  return w->left == NULL ? 0 : layer_count(w);
}

void leftovers_forget(walk *w, instance_id i, uint32_t layer)
{
  if (w->left == NULL) w->left = ARENA_ARRAY(w->memory, layer_leftover, layer_count(w));
  assert(layer < leftovers_layers(w));
  w->left[layer].newest = i;
  held_release(w, &w->left[layer].buffers);
}

void leftovers_add(walk *w, instance_id i, uint32_t layer, uint32_t buffer)
{
  assert(layer < leftovers_layers(w) && buffer != NO_BUFFER);
  if (w->left[layer].newest != i || (w->references.items[buffer] & REFERENCE_EMPTIED)) return;
  held_add(w, &w->left[layer].buffers, buffer);
}

bool leftovers_keep_one(walk *w, int64_t bytes)
{
  assert(bytes > 0);
  for (uint32_t layer = 0; layer < leftovers_layers(w); layer++)
    if (held_keep_one(w, &w->left[layer].buffers, bytes)) return true;
  return false;
}

void leftovers_end(walk *w)
{
  assert(!w->exchanges_of_pair && "the last pair is finished");
  for (uint32_t layer = 0; layer < leftovers_layers(w); layer++)
    held_release(w, &w->left[layer].buffers);
}
