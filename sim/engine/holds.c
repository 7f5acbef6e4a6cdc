#include "sim/engine/holds.h"

#include <assert.h>

#include "sim/base/array.h"

static bool has_hold(const hold_list *l, uint32_t at)
{
  uint32_t low = 0, high = l->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (l->items[middle].at < at)
      low = middle + 1;
    else
      high = middle;
  }
  assert(low == 0 || l->items[low - 1].at < at);
  return low < l->count && l->items[low].at == at;
}

/* Merges two sorted runs from the back. */
bool holds_add(hold_list *l, const hold_list *found)
{
  hold_list added = { 0 };
  for (uint32_t i = 0; i < found->count; i++)
    if (!has_hold(l, found->items[i].at)) *ARRAY_PUSH(&added) = found->items[i];
  bool any = added.count > 0;
  uint32_t old = l->count;
  for (uint32_t i = 0; i < added.count; i++)
    (void)ARRAY_PUSH(l);
  for (uint32_t to = l->count; added.count > 0;) {
    bool keeps = old > 0 && l->items[old - 1].at > added.items[added.count - 1].at;
    l->items[--to] = keeps ? l->items[--old] : added.items[--added.count];
    assert(to == old + added.count && "the holds not moved yet are as many as the places left");
  }
  ARRAY_FREE(&added);
  for (uint32_t i = 1; i < l->count; i++)
    assert(l->items[i - 1].at < l->items[i].at && "one hold for an op");
  return any;
}

uint32_t holds_that_wait(const hold_list *l)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < l->count; i++)
    count += l->items[i].until != HOLD_FOR_NOTHING;
  return count;
}
