#include "sim/train/quantized.h"

#include <string.h>

#include "sim/base/units.h"
#include "sim/exec/code_books.h"
#include "sim/exec/number_formats.h"
#include "sim/graph/sizes.h"
#include "sim/operators/lora.h"
#include "sim/train/generator.h"
#include "sim/train/parameters.h"

/* What is kept of a weight, by name of its tensors. */
typedef enum kept { CODES, SCALES, NESTED_SCALES, MEAN, VALUES, KEPT } kept;
static const char *const names[KEPT] = { "weight", "weight.absmax", "weight.nested_absmax",
                                         "weight.nested_offset", "weight.quant_map" };

static const plan_tensor *tensor_of(const plan *p, uint32_t stage, uint32_t buffer)
{
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

static void draw(const settings *s, const plan *p, const plan_tensor *weight, uint64_t seed,
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
  int64_t scales = ceil_div(count, LORA_BLOCK_ELEMENTS);
  float *numbers = ARENA_ARRAY(&a, float, (size_t)count);
  quantized_weight q = { .codes = ARENA_ARRAY(&a, uint8_t, (size_t)weight->shape[0]),
                         .scales = ARENA_ARRAY(&a, uint8_t, (size_t)scales),
                         .nested_scales = ARENA_ARRAY(&a, float, (size_t)scales),
                         .mean = ARENA_NEW(&a, float),
                         .block = LORA_BLOCK_ELEMENTS,
                         .nested_block = LORA_BLOCK_SCALES };
  draw(s, p, weight, seed, numbers, count, &a);
  quantize_weight(numbers, count, &q);
  const void *const from[KEPT] = { q.codes, q.scales, q.nested_scales, q.mean, codes_4bit };
  memcpy(data, from[which], (size_t)(t->shape[0] * dtype_bytes((dtype)t->dtype)));
  arena_release(&a);
  return true;
}
