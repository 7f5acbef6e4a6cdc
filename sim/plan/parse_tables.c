#include "sim/plan/parser.h"

#include <string.h>

dtype word_dtype(const plan_word *w)
{
  uint32_t i = 0;
  while (i < DTYPES && !word_is(w, dtype_name((dtype)i)))
    i++;
  return (dtype)i;
}

uint32_t site_row(parser *p, int32_t layer, const plan_word *module)
{
  struct {
    int32_t layer;
    uint32_t name;
  } key;
  key.layer = layer;
  key.name = intern(&p->names, module->text, module->length);
  uint32_t row = intern(&p->sites, &key, sizeof key);
  if (row == p->plan->sites.count)
    *ARRAY_PUSH(&p->plan->sites) =
        (plan_site){ .module = p->names.keys[key.name].bytes, .layer = layer };
  return row;
}

uint32_t tensor_row(parser *p, const plan_word *name, const plan_tensor *described)
{
  struct {
    uint32_t name, site, dtype, rank;
    int64_t shape[PLAN_TENSOR_DIMS];
  } key;
  memset(&key, 0, sizeof key);
  key.name = intern(&p->names, name->text, name->length);
  key.site = described->site;
  key.dtype = described->dtype;
  key.rank = described->rank;
  memcpy(key.shape, described->shape, sizeof key.shape);
  uint32_t row = intern(&p->tensors, &key, sizeof key);
  if (row == p->plan->tensors.count) {
    plan_tensor *made = ARRAY_PUSH(&p->plan->tensors);
    *made = *described;
    made->name = p->names.keys[key.name].bytes;
  }
  return row;
}
