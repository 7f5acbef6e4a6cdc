#include "sim/verify/parts.h"

#include <assert.h>

bool views_turn(const plan *p)
{
  for (uint32_t i = 0; i < p->views.count; i++)
    if (p->views.items[i].turned != 0) return true;
  return false;
}

const byte_range *bytes_of_views(const plan *p, bool of_driver, arena *a)
{
  byte_range *bytes = ARENA_ARRAY(a, byte_range, p->views.count);
  for (uint32_t i = 0; i < p->views.count; i++) {
    const plan_view *v = &p->views.items[i];
    bytes[i] = whole_memory;
    bool fits = v->whole || plan_view_bytes(v, &bytes[i]);
    assert(fits && "validated");
    (void)fits;
    if (v->turned != 0 && !of_driver)
      bytes[i] = (byte_range){ 0, v->turned * (bytes[i].end - bytes[i].begin) };
  }
  return bytes;
}

uint32_t part_new(part_array *parts)
{
  *ARRAY_PUSH(parts) = (part){ .bytes = whole_memory, .next = NO_PART };
  return parts->count - 1;
}

/* Cuts the part in two, which have the same past. */
static void cut(part_array *parts, uint32_t at, int64_t where)
{
  part *rest = ARRAY_PUSH(parts), *own = &parts->items[at];
  assert(own->bytes.begin < where && where < own->bytes.end);
  *rest = *own;
  rest->bytes.begin = own->bytes.end = where;
  own->next = parts->count - 1;
}

uint32_t parts_cut_out(part_array *parts, uint32_t first, byte_range bytes)
{
  assert(bytes.begin <= bytes.end);
  if (bytes.begin == bytes.end) return NO_PART;
  while (parts->items[first].bytes.end <= bytes.begin)
    first = parts->items[first].next;
  if (parts->items[first].bytes.begin < bytes.begin) {
    cut(parts, first, bytes.begin);
    first = parts->items[first].next;
  }
  uint32_t last = first;
  while (parts->items[last].bytes.end < bytes.end)
    last = parts->items[last].next;
  if (parts->items[last].bytes.end > bytes.end) cut(parts, last, bytes.end);
  return first;
}

static void later(uint32_t *op, uint32_t other)
{
  if (other > *op) *op = other;
}

uses parts_uses(part_array *parts, uint32_t first, byte_range bytes, const rank_plan *p)
{
  uses u = { .last = { 0 } };
  for (uint32_t i = parts_in(parts, first, bytes); i != NO_PART; i = next_part(parts, i, bytes)) {
    const part *one = &parts->items[i];
    for (int s = 0; s < DEVICE_STREAMS; s++)
      later(&u.last[s], one->last[s]);
    if (one->write != 0) later(&u.writes[p->ops.items[one->write - 1].stream], one->write);
  }
  return u;
}
