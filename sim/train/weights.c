#include "sim/train/weights.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/exec/code_books.h"
#include "sim/exec/number_formats.h"
#include "sim/graph/sizes.h"
#include "sim/operators/lora.h"
#include "sim/train/generator.h"

static dtype type_at(const plan *p, uint32_t stage, const train_home *home)
{
  assert(home->buffer < p->ranks[stage].buffers.count);
  const plan_buffer *b = &p->ranks[stage].buffers.items[home->buffer];
  return home->view.whole ? (dtype)p->tensors.items[b->tensor].dtype : (dtype)home->view.dtype;
}

static int64_t elements_of(const train_parameter *of)
{
  assert(of->part.own_rows <= of->part.rows && of->part.own_columns <= of->part.columns);
  return of->part.own_rows * of->part.own_columns;
}

/* Rounds to a type. */
static float rounded(dtype type, double x)
{
  double place[1];
  number_store(place, type, 0, x);
  return (float)number_load(place, type, 0);
}

static void fill_home(const plan *p, uint32_t stage, const train_parameter *of,
                      const train_home *home, void *data)
{
  dtype type = type_at(p, stage, home), weight = type_at(p, stage, &of->weight);
  int64_t offset = home->view.whole ? 0 : home->view.offset;
  assert(home->view.whole || view_is_contiguous(&home->view));
  for (int64_t i = 0; i < elements_of(of); i++)
    number_store(data, type, offset + i,
                 (double)rounded(weight, (double)(float)train_part_initial(&of->part, i)));
}

void weights_fill(const plan *p, uint32_t stage, const train_parameter_list *list, uint32_t buffer,
                  void *data)
{
  for (uint32_t i = 0; i < list->count; i++) {
    const train_parameter *of = &list->items[i];
    if (of->weight.buffer == buffer) fill_home(p, stage, of, &of->weight, data);
    if (of->first_main.buffer == buffer) fill_home(p, stage, of, &of->first_main, data);
  }
}

static exec_drawn drawn_home(const plan *p, uint32_t stage, const train_parameter *of,
                             const train_home *home)
{
  dtype type = type_at(p, stage, home);
  int64_t offset = home->view.whole ? 0 : home->view.offset;
  return (exec_drawn){ .offset_bytes = offset * dtype_bytes(type),
                       .count = elements_of(of),
                       .type = (uint8_t)type,
                       .rounded = (uint8_t)type_at(p, stage, &of->weight),
                       .deviation = of->part.initial.deviation,
                       .value = of->part.initial.value,
                       .spread = generator_spread(),
                       .key = of->part.key,
                       .rows = of->part.rows,
                       .columns = of->part.columns,
                       .own_rows = of->part.own_rows,
                       .own_columns = of->part.own_columns,
                       .tensors = of->part.tensors,
                       .index = of->part.index };
}

uint32_t weights_drawn(const plan *p, uint32_t stage, const train_parameter_list *list,
                       uint32_t buffer, const exec_drawn **parts, arena *a)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < list->count; i++)
    count += (uint32_t)(list->items[i].weight.buffer == buffer) +
             (uint32_t)(list->items[i].first_main.buffer == buffer);
  exec_drawn *drawn = ARENA_ARRAY(a, exec_drawn, count);
  *parts = drawn;
  for (uint32_t i = 0; i < list->count; i++) {
    const train_parameter *of = &list->items[i];
    if (of->weight.buffer == buffer) *drawn++ = drawn_home(p, stage, of, &of->weight);
    if (of->first_main.buffer == buffer) *drawn++ = drawn_home(p, stage, of, &of->first_main);
  }
  return count;
}

void weights_put(const plan *p, uint32_t stage, const train_parameter *of, float *tensor)
{
  dtype type = type_at(p, stage, &of->weight);
  for (int64_t i = 0; i < elements_of(of); i++)
    tensor[train_part_element(&of->part, i)] =
        rounded(type, (double)(float)train_part_initial(&of->part, i));
}

/* ---- in 4 bits ------------------------------------------------------------------------------- */

/* The tensors of a quantised weight, by name. */
typedef enum kept { CODES, SCALES, NESTED_SCALES, MEAN, VALUES, KEPT } kept;
static const char *const names[KEPT] = { "weight", "weight.absmax", "weight.nested_absmax",
                                         "weight.nested_offset", "weight.quant_map" };

static const plan_tensor *tensor_of(const plan *p, uint32_t stage, uint32_t buffer)
{
  assert(stage < p->rank_count && buffer < p->ranks[stage].buffers.count);
  return &p->tensors.items[p->ranks[stage].buffers.items[buffer].tensor];
}

static bool is_packed(const plan_tensor *t)
{
  return t->dtype == DTYPE_BYTE && strcmp(t->name, names[CODES]) == 0;
}

static kept kept_of(const plan_tensor *t)
{
  kept k = 0;
  if (strcmp(t->name, names[CODES]) == 0) return is_packed(t) ? CODES : KEPT;
  while (k < KEPT && strcmp(t->name, names[k]) != 0)
    k++;
  return k;
}

/* The packed weight of the same module. */
static const plan_tensor *weight_beside(const plan *p, uint32_t stage, const plan_tensor *t)
{
  const rank_plan *r = &p->ranks[stage];
  for (uint32_t i = 0; i < r->buffers.count; i++) {
    const plan_tensor *other = tensor_of(p, stage, i);
    if (other->site == t->site && is_packed(other)) return other;
  }
  return NULL;
}

static void draw_numbers(const settings *s, const plan *p, const plan_tensor *weight, uint64_t seed,
                         float *to, int64_t count, arena *a)
{
  const plan_site *site = &p->sites.items[weight->site];
  const char *name =
      arena_printf(a, "layers.%d.%s.%s", (int)site->layer, site->module, weight->name);
  uint64_t key = generator_key(seed, name);
  for (int64_t i = 0; i < count; i++) {
    double place[1], x = TRAIN_INIT_DEVIATION * generator_normal(key, (uint64_t)i);
    number_store(place, model_dtype(s), 0, (double)(float)x);
    to[i] = (float)number_load(place, model_dtype(s), 0);
  }
}

bool quantized_is(const plan *p, uint32_t stage, uint32_t buffer)
{
  const plan_tensor *t = tensor_of(p, stage, buffer);
  return kept_of(t) != KEPT && weight_beside(p, stage, t) != NULL;
}

bool quantized_fill(const settings *s, const plan *p, uint32_t stage, uint32_t buffer,
                    uint64_t seed, void *data)
{
  const plan_tensor *t = tensor_of(p, stage, buffer);
  kept which = kept_of(t);
  const plan_tensor *weight = which == KEPT ? NULL : weight_beside(p, stage, t);
  if (weight == NULL) return false;
  arena a = { 0 };
  int64_t count = 2 * weight->shape[0];
  assert(count % 2 == 0);
  int64_t scales = ceil_div(count, LORA_BLOCK_ELEMENTS);
  float *numbers = ARENA_ARRAY(&a, float, (size_t)count);
  quantized_weight q = { .codes = ARENA_ARRAY(&a, uint8_t, (size_t)weight->shape[0]),
                         .scales = ARENA_ARRAY(&a, uint8_t, (size_t)scales),
                         .nested_scales = ARENA_ARRAY(&a, float, (size_t)scales),
                         .mean = ARENA_NEW(&a, float),
                         .block = LORA_BLOCK_ELEMENTS,
                         .nested_block = LORA_BLOCK_SCALES };
  draw_numbers(s, p, weight, seed, numbers, count, &a);
  quantize_weight(numbers, count, &q);
  const void *const from[KEPT] = { q.codes, q.scales, q.nested_scales, q.mean, codes_4bit };
  memcpy(data, from[which], (size_t)(t->shape[0] * dtype_bytes((dtype)t->dtype)));
  arena_release(&a);
  return true;
}
