/*
 * Windows of layers: at which layer's commit each copy ends. Transformer Engine's double buffer and
 * verl's (which began as a copy of it) offload the first N of L layers, one at a time, one in each
 * window: windows are L / N layers long, and the first L mod N of them are one layer longer.
 *
 * `count` follows the schedule. In forward it is the number of windows that have ended, and so the
 * layer whose copy is in flight; in backward the number of layers whose reload has not begun.
 */
#ifndef OFFSIM_SIM_OFFLOAD_LAYER_WINDOWS_H
#define OFFSIM_SIM_OFFLOAD_LAYER_WINDOWS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/offload/actions.h"

typedef struct layer_windows {
  uint32_t layers, offloaded; /* L, N */
  uint32_t *end;              /* by offloaded layer: the layer at whose commit its window ends */
  uint32_t count;
} layer_windows;

static inline layer_windows layer_windows_new(uint32_t layers, uint32_t offloaded, arena *a)
{
  layer_windows w = { .layers = layers, .offloaded = offloaded };
  uint32_t longer = layers % offloaded;

  assert(offloaded > 0 && offloaded < layers);
  w.end = ARENA_ARRAY(a, uint32_t, offloaded);
  for (uint32_t i = 0; i < offloaded; i++)
    w.end[i] = layers / offloaded * (i + 1) - 1 + (i + 1 < longer ? i + 1 : longer);
  return w;
}

/* Forward: compute joins the copy in flight at this layer's commit. The last layer ends the last
 * window. */
static inline bool layer_windows_end_at(const layer_windows *w, uint32_t layer)
{
  assert(layer < w->layers && w->count <= w->offloaded);
  return w->count < w->offloaded && w->end[w->count] == layer;
}

/* Backward: whether the reload of layer count - 1 begins before this layer's backward. */
static inline bool layer_windows_reload_at(const layer_windows *w, uint32_t layer)
{
  assert(layer < w->layers && w->count > 0 && w->count <= w->offloaded);
  return w->end[w->count - 1] == layer;
}

#define NO_LAYER UINT32_MAX

/* Before a layer's backward: if a reload begins, both streams wait for each other, and the function
 * returns its layer, which the caller copies; else NO_LAYER. The engines keep the count at one
 * until layer 0, before which compute waits for the last reload. */
static inline uint32_t layer_windows_backward(layer_windows *x, walk *w, uint32_t layer)
{
  assert(layer < x->layers && x->count > 0 && "forward has ended every window");
  uint32_t coming = NO_LAYER;

  if (layer_windows_reload_at(x, layer)) {
    act_join(w, STREAM_H2D, STREAM_COMPUTE);
    act_join(w, STREAM_COMPUTE, STREAM_H2D);
    coming = x->count - 1;
    if (x->count > 1) x->count--;
  }
  if (layer == 0) {
    assert(coming == NO_LAYER && "the first window ends after layer 0");
    act_join(w, STREAM_COMPUTE, STREAM_H2D);
    x->count = 0;
  }
  return coming;
}

#endif
