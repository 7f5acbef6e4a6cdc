/* What an iteration needs at least, so that what is far too large is refused before it has begun.
 */
#include <inttypes.h>

#include "ref/exec/state.h"

static int64_t array_bytes_of(const plan_buffer *b)
{
  return class_side((buffer_class)b->purpose) == ON_DISK ? 0 : b->bytes;
}

static int64_t residents_of(const rank_plan *r)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < r->residents; i++)
    bytes += array_bytes_of(&r->buffers.items[i]);
  return bytes;
}

/* What is taken above the residents, at most. */
static int64_t rise_of(const rank_plan *r)
{
  int64_t now = 0, most = 0;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    bool takes = o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC;
    if (takes) now += array_bytes_of(&r->buffers.items[o->arg]);
    if (o->kind == OP_FREE || o->kind == OP_HOST_FREE)
      now -= array_bytes_of(&r->buffers.items[o->arg]);
    if (now > most) most = now;
  }
  return most;
}

/* Ranks need not be at their peaks at once: all have their residents, one is at its peak. */
static int64_t least_bytes(const ref_exec *e, const plan *p)
{
  int64_t residents = 0, rise = 0;
  for (uint32_t i = 0; i < e->layout->rank_count; i++) {
    const rank_plan *r = &p->ranks[e->layout->ranks[i].stage];
    int64_t own = rise_of(r);
    residents += residents_of(r);
    if (own > rise) rise = own;
  }
  return residents + rise;
}

bool ref_exec_fits(const ref_exec *e, const plan *p, diag *d)
{
  int64_t least = e->options.arithmetic == REF_OPAQUE ? 0 : least_bytes(e, p);
  return least <= e->limit_bytes ||
         diag_refused(d,
                      "ref: %u ranks need at least %" PRId64 " bytes of memory together; there are "
                      "%" PRId64,
                      e->layout->rank_count, least, e->limit_bytes);
}
