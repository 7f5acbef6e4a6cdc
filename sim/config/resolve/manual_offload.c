/*
 * Manual synchronization of Transformer Engine's second offload engine: which layers the training
 * script names, and those conditions of get_cpu_offload_context that a setting can break
 * (transformer_engine/pytorch/cpu_offload.py).
 */
#include <inttypes.h>

#include "sim/config/resolve/steps.h"
#include "sim/text/scalar.h"

static int64_t layers_of_longest_chunk(const settings *s)
{
  int64_t longest = 0;

  for (int64_t k = 0; k < s->parallel.pipeline_model_parallel_size * s->derived.virtual_stages;
       k++) {
    int64_t layers = s->derived.stages[k].layer_count;
    longest = layers > longest ? layers : longest;
  }
  return longest;
}

static bool add_layer(settings *s, const char *text, diag *d)
{
  setting_key key = KEY_offload_cpu_offloading_layers;
  int64_t layer, count = layers_of_longest_chunk(s);

  if (!need(s, d, scalar_i64(text, &layer), key, key,
            "cpu_offloading_layers has \"%.100s\"; layers are whole numbers, from 0 in each chunk",
            text) ||
      !need(s, d, layer >= 0 && layer < count, key, key,
            "cpu_offloading_layers has %" PRId64 "; a chunk has %" PRId64
            " layers, from 0 to %" PRId64,
            layer, count, count - 1)) {
    return false;
  }
  s->derived.layer_is_offloaded[layer] = true;
  return true;
}

/* Keys that only the manual mode reads. */
static bool check_automatic(const settings *s, diag *d)
{
  setting_key stream = KEY_offload_cpu_offloading_stream;
  setting_key layers = KEY_offload_cpu_offloading_layers;

  return need(s, d, s->offload.cpu_offloading_stream == OFFLOAD_STREAM_OWN, stream, stream,
              "cpu_offloading_stream needs cpu_offloading_manual_synchronization") &&
         need(s, d, s->offload.cpu_offloading_layers.count == 0, layers, layers,
              "cpu_offloading_layers needs cpu_offloading_manual_synchronization; without it the "
              "first cpu_offloading_num_layers layers move");
}

bool resolve_manual_offload(settings *s, arena *a, diag *d)
{
  const struct offload_settings *o = &s->offload;
  setting_key key = KEY_offload_cpu_offloading_manual_synchronization;
  setting_key layers = KEY_offload_cpu_offloading_layers;
  setting_key retain = KEY_offload_cpu_offloading_retain_pinned_cpu_buffers;
  bool second = o->system == SYSTEM_te_v2;

  if (!need(s, d, !o->cpu_offloading_retain_pinned_cpu_buffers || second, retain, retain,
            "cpu_offloading_retain_pinned_cpu_buffers needs offload system te_v2; it is %s",
            chosen_word(s, KEY_offload_system))) {
    return false;
  }
  if (!o->cpu_offloading_manual_synchronization) {
    return check_automatic(s, d);
  }
  if (!need(s, d, second, key, key,
            "cpu_offloading_manual_synchronization needs offload system te_v2; it is %s",
            chosen_word(s, KEY_offload_system)) ||
      !need(s, d, o->cpu_offloading_layers.count > 0, layers, key,
            "cpu_offloading_layers is empty; with cpu_offloading_manual_synchronization only the "
            "layers that it names move")) {
    return false;
  }
  if (o->cpu_offloading_num_layers != 0) {
    diag_note(d, s->at[KEY_offload_cpu_offloading_num_layers],
              "cpu_offloading_num_layers has no effect with cpu_offloading_manual_synchronization");
  }
  s->derived.layer_is_offloaded = ARENA_ARRAY(a, bool, (size_t)s->model.num_layers);
  for (uint32_t i = 0; i < o->cpu_offloading_layers.count; i++) {
    if (!add_layer(s, o->cpu_offloading_layers.names[i], d)) {
      return false;
    }
  }
  return true;
}
