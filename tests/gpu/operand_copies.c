#include "tests/gpu/operand_copies.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/diag.h"
#include "sim/base/units.h"
#include "sim/plan/plan.h"

/* Operands keep their place modulo ALIGNMENT. */
enum { ALIGNMENT = 256, GUARD_BYTES = 256, GUARD_PATTERN = 0xC3, SCRATCH_PATTERN = 0xA5 };

void check_driver(const operand_copies *c, const char *what, const char *failure)
{
  if (failure != NULL) die_refused("%s: %s: %s", c->driver->name, what, failure);
}

void copies_begin(operand_copies *c)
{
  c->spans.count = 0;
}

void copies_add_bytes(operand_copies *c, void *here, int64_t bytes)
{
  if (bytes > 0) *ARRAY_PUSH(&c->spans) = (operand_span){ here, bytes, 0 };
}

/* From the lowest element to the end of the highest one; strides may be negative. */
static operand_span reach_of(const exec_tensor *t)
{
  int64_t lowest = 0, highest = 0, size = dtype_bytes((dtype)t->type);
  for (int d = 0; d < t->rank; d++) {
    int64_t last = (t->shape[d] - 1) * t->strides[d];
    if (t->shape[d] == 0) return (operand_span){ t->data, 0, 0 };
    lowest += min_i64(last, 0);
    highest += max_i64(last, 0);
  }
  return (operand_span){ (unsigned char *)t->data + lowest * size, (highest - lowest + 1) * size,
                         0 };
}

void copies_add(operand_copies *c, const exec_tensor *tensors, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    operand_span reach = reach_of(&tensors[i]);
    copies_add_bytes(c, reach.here, reach.bytes);
  }
}

static int by_address(const void *a, const void *b)
{
  const operand_span *x = a, *y = b;
  return (x->here > y->here) - (x->here < y->here);
}

/* What touches or overlaps becomes one. */
static void join_spans(operand_copies *c)
{
  uint32_t count = 0;
  if (c->spans.count == 0) return;
  qsort(c->spans.items, c->spans.count, sizeof *c->spans.items, by_address);
  for (uint32_t i = 1; i < c->spans.count; i++) {
    operand_span *last = &c->spans.items[count], next = c->spans.items[i];
    if (next.here <= last->here + last->bytes)
      last->bytes = max_i64(last->bytes, next.here + next.bytes - last->here);
    else
      c->spans.items[++count] = next;
  }
  c->spans.count = count + 1;
}

static void place_spans(operand_copies *c, int64_t scratch_bytes)
{
  int64_t at = 0;
  for (uint32_t i = 0; i < c->spans.count; i++) {
    operand_span *s = &c->spans.items[i];
    s->there = round_up(at + GUARD_BYTES, ALIGNMENT) + (int64_t)((uintptr_t)s->here % ALIGNMENT);
    at = s->there + s->bytes;
  }
  c->scratch_at = round_up(at + GUARD_BYTES, ALIGNMENT);
  c->scratch_bytes = scratch_bytes;
  c->bytes = c->scratch_at + scratch_bytes + GUARD_BYTES;
}

static unsigned char *more(unsigned char *old, int64_t bytes)
{
  free(old);
  unsigned char *memory = malloc((size_t)bytes);
  if (memory == NULL) die_refused("no memory for %lld bytes of copies", (long long)bytes);
  return memory;
}

static void make_room(operand_copies *c)
{
  void *memory;
  if (c->bytes <= c->capacity) return;
  c->capacity = max_i64(c->bytes, 2 * c->capacity);
  c->sent = more(c->sent, c->capacity);
  c->found = more(c->found, c->capacity);
  if (c->device != NULL) check_driver(c, "release", c->driver->release(c->device));
  check_driver(c, "allocate", c->driver->allocate(&memory, c->capacity));
  c->device = memory;
}

/* All of the block as the originals are now. */
static void take_image(const operand_copies *c, unsigned char *image)
{
  memset(image, GUARD_PATTERN, (size_t)c->bytes);
  memset(image + c->scratch_at, SCRATCH_PATTERN, (size_t)c->scratch_bytes);
  for (uint32_t i = 0; i < c->spans.count; i++) {
    const operand_span *s = &c->spans.items[i];
    memcpy(image + s->there, s->here, (size_t)s->bytes);
  }
}

void copies_upload(operand_copies *c, int64_t scratch_bytes)
{
  join_spans(c);
  place_spans(c, scratch_bytes);
  make_room(c);
  take_image(c, c->sent);
  check_driver(c, "copy to the device",
               c->driver->copy(c->device, c->sent, c->bytes, GPU_H2D, c->stream));
}

static const operand_span *span_of(const operand_copies *c, const unsigned char *here)
{
  for (uint32_t i = 0; i < c->spans.count; i++) {
    const operand_span *s = &c->spans.items[i];
    if (here >= s->here && here < s->here + s->bytes) return s;
  }
  return NULL;
}

void *copies_address(const operand_copies *c, const void *here)
{
  const operand_span *s = span_of(c, here);
  assert(s != NULL && "what has been added");
  return c->device + s->there + ((const unsigned char *)here - s->here);
}

exec_tensor copies_tensor(const operand_copies *c, const exec_tensor *t)
{
  exec_tensor copy = *t;
  if (reach_of(t).bytes > 0) copy.data = copies_address(c, t->data);
  return copy;
}

void *copies_scratch(const operand_copies *c)
{
  return c->scratch_bytes > 0 ? c->device + c->scratch_at : NULL;
}

void copies_download(operand_copies *c)
{
  check_driver(c, "copy from the device",
               c->driver->copy(c->found, c->device, c->bytes, GPU_D2H, c->stream));
  check_driver(c, "synchronize", c->driver->stream_synchronize(c->stream));
}

static const unsigned char *original_of(const operand_copies *c, int64_t there)
{
  for (uint32_t i = 0; i < c->spans.count; i++) {
    const operand_span *s = &c->spans.items[i];
    if (there >= s->there && there < s->there + s->bytes) return s->here + (there - s->there);
  }
  return NULL;
}

operand_difference copies_difference(const operand_copies *c)
{
  operand_difference d = { .exists = false };
  take_image(c, c->sent);
  memcpy(c->found + c->scratch_at, c->sent + c->scratch_at, (size_t)c->scratch_bytes);
  if (memcmp(c->sent, c->found, (size_t)c->bytes) == 0) return d;
  for (int64_t i = 0; i < c->bytes; i++) {
    if (c->sent[i] == c->found[i]) continue;
    if (!d.exists) d = (operand_difference){ true, original_of(c, i), c->sent[i], c->found[i], 0 };
    d.bytes++;
  }
  return d;
}

void copies_release(operand_copies *c)
{
  free(c->sent);
  free(c->found);
  if (c->device != NULL) check_driver(c, "release", c->driver->release(c->device));
  ARRAY_FREE(&c->spans);
}
