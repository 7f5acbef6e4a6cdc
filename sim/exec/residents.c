#include "sim/exec/residents.h"

#include <assert.h>
#include <string.h>

static bool is_same_place(const plan *a, uint32_t site_a, const plan *b, uint32_t site_b)
{
  assert(site_a < a->sites.count && site_b < b->sites.count);
  const plan_site *left = &a->sites.items[site_a], *right = &b->sites.items[site_b];
  return left->layer == right->layer && strcmp(left->module, right->module) == 0;
}

static bool is_same(const plan *a, const plan_buffer *left, const plan *b, const plan_buffer *right)
{
  assert(left->tensor < a->tensors.count && right->tensor < b->tensors.count);
  const plan_tensor *s = &a->tensors.items[left->tensor], *t = &b->tensors.items[right->tensor];
  return left->purpose == right->purpose && left->bytes == right->bytes &&
         strcmp(s->name, t->name) == 0 && is_same_place(a, s->site, b, t->site);
}

uint32_t survivors_take(survivors *s, const plan *now, const plan_buffer *resident)
{
  if (s->stage == NULL) return NO_BUFFER;
  uint32_t count = s->stage->ops_of->buffers.count;
  assert(count == 0 || s->cursor < count);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t b = (s->cursor + i) % count;
    if (!s->there[b] || !is_same(s->stage->plan, stage_buffer(s->stage, b), now, resident))
      continue;
    s->cursor = (b + 1) % count;
    s->there[b] = false;
    return b;
  }
  return NO_BUFFER;
}
