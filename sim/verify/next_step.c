/*
 * Races between a step and the next one, which issues the same ops. Its order is that of this step;
 * what it knows of this step is in order.h. So only those of its uses matter that come first:
 *
 *   residents     memory that a step finds and leaves: each buffer that is alive at the end is one
 *                 of those that are alive at the begin of the next step, which allocates the others
 *   host buffers  the next step takes from a pool what this one has left there, first returned
 *                 first taken
 *   blocks        the next step may get any block that this one has freed
 *
 * A use after a write of its own step needs no check: it comes after that write, or has a finding.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/verify/buffer_walk.h"

/* ---- what the next step finds -------------------------------------------------------------- */

/* A buffer at the end of a step, or at its begin. */
typedef struct kept {
  uint32_t buffer;
  const plan_buffer *what;
  const plan_tensor *tensor;
  const plan_site *site;
  bool matched;
} kept;

/* As for leaks: a step may leave the last micro-batch's input in another pool. */
static int order_of_size(const kept *a, const kept *b)
{
  bool anywhere = a->what->purpose == CLASS_RETAINED;
  if (a->what->purpose != b->what->purpose) return a->what->purpose < b->what->purpose ? -1 : 1;
  if (!anywhere && a->what->stream != b->what->stream)
    return a->what->stream < b->what->stream ? -1 : 1;
  if (a->what->bytes != b->what->bytes) return a->what->bytes < b->what->bytes ? -1 : 1;
  return 0;
}

static int order_of_name(const kept *a, const kept *b)
{
  int size = order_of_size(a, b), name = strcmp(a->tensor->name, b->tensor->name);
  if (size != 0) return size;
  if (name != 0) return name;
  if (a->site->layer != b->site->layer) return a->site->layer < b->site->layer ? -1 : 1;
  return strcmp(a->site->module, b->site->module);
}

static int order_of_kept(const void *left, const void *right)
{
  const kept *a = left, *b = right;
  int name = order_of_name(a, b);
  return name != 0 ? name : a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static kept kept_buffer(const rank_walk *w, uint32_t buffer)
{
  const plan_buffer *b = &w->plan->buffers.items[buffer];
  const plan_tensor *t = &w->v->plan->tensors.items[b->tensor];
  return (kept){ buffer, b, t, &w->v->plan->sites.items[t->site], false };
}

/* Pairs what is equal in both sorted lists, from the first on. */
static void match(kept *begin, uint32_t begins, kept *end, uint32_t ends,
                  int (*order)(const kept *, const kept *), uint32_t *left_as)
{
  for (uint32_t i = 0, k = 0; i < begins && k < ends;) {
    int which = begin[i].matched ? -1 : end[k].matched ? 1 : order(&begin[i], &end[k]);
    if (which == 0) {
      assert(left_as[begin[i].buffer] == NO_BUFFER);
      left_as[begin[i].buffer] = end[k].buffer;
      begin[i].matched = end[k].matched = true;
    }
    i += which <= 0;
    k += which >= 0;
  }
}

/* By resident: the buffer that this step leaves as the next step's resident, NO_BUFFER: none. */
static uint32_t *find_predecessors(const rank_walk *w, arena *a)
{
  const rank_plan *p = w->plan;
  uint32_t *left_as = ARENA_ARRAY(a, uint32_t, p->residents);
  kept *begin = ARENA_ARRAY(a, kept, p->residents);
  kept *end = ARENA_ARRAY(a, kept, w->cells.count);
  uint32_t begins = 0, ends = 0;
  for (uint32_t b = 0; b < p->residents; b++) {
    left_as[b] = is_alive(w, b) ? b : NO_BUFFER;
    if (left_as[b] == NO_BUFFER) begin[begins++] = kept_buffer(w, b);
  }
  for (uint32_t i = 0; begins > 0 && i < w->cells.count; i++) {
    const cell *c = &w->cells.items[i];
    if (c->freed || c->buffer == NO_BUFFER || c->buffer < p->residents) continue;
    if (p->buffers.items[c->buffer].host_key == 0) end[ends++] = kept_buffer(w, c->buffer);
  }
  qsort(begin, begins, sizeof *begin, order_of_kept);
  qsort(end, ends, sizeof *end, order_of_kept);
  match(begin, begins, end, ends, order_of_name, left_as);
  match(begin, begins, end, ends, order_of_size, left_as);
  return left_as;
}

/* The memory that the next step's buffer has been in this step, or NULL. */
static const cell *former_cell(const rank_walk *w, const uint32_t *left_as, uint32_t buffer)
{
  uint32_t key = w->plan->buffers.items[buffer].host_key;
  if (key != 0 && buffer >= w->plan->residents) {
    const host_queue *q = &w->pools[key];
    assert(q->first <= q->count);
    uint32_t waits = q->count - q->first, turn = w->taken_as[buffer];
    return turn < waits ? &w->cells.items[q->items[q->first + turn]] : NULL;
  }
  return left_as[buffer] == NO_BUFFER ? NULL : &w->cells.items[w->cell_of[left_as[buffer]]];
}

/* ---- uses ---------------------------------------------------------------------------------- */

/* Whether an op of this step, numbered from 1, is done when the next step's `op` begins. */
static bool is_over(const rank_walk *w, uint32_t use, uint32_t op)
{
  return use == 0 || is_done_step_before(w->v->plan, &w->v->order, w->rank, use - 1, op);
}

static void check_write(rank_walk *w, const cell *c, const early_use *e)
{
  uses u = cell_uses(w, c, e->bytes);
  bool pooled = w->plan->buffers.items[e->buffer].host_key != 0;
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    uint32_t use = u.last[s];
    if (is_over(w, use, e->op)) continue;
    uint32_t harmful =
        use == u.writes[s] || pooled ? use : harmful_use(w, c->buffer, e->bytes, use);
    finding_kind kind = pooled                       ? FINDING_HOST_BUFFER_REUSED
                        : use == u.writes[s]         ? FINDING_WRITE_BEFORE_WRITE
                        : is_over(w, harmful, e->op) ? FINDING_OVERWRITTEN_COPY
                                                     : FINDING_WRITE_BEFORE_READ;
    report_use(w, kind, kind == FINDING_OVERWRITTEN_COPY ? use : harmful, e->op, c->buffer,
               e->buffer, true);
  }
}

static void check_read(rank_walk *w, const cell *c, const early_use *e)
{
  uses u = cell_uses(w, c, e->bytes);
  if (!c->written && !has_contents(w, c->buffer))
    report_use(w, FINDING_NEVER_WRITTEN, 0, e->op, c->buffer, e->buffer, true);
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (!is_over(w, u.writes[s], e->op))
      report_use(w, FINDING_READ_BEFORE_WRITE, u.writes[s], e->op, c->buffer, e->buffer, true);
}

/* Once a stream has waited for all that a pool's blocks were used for, so have its later ops. */
static void check_first_write(rank_walk *w, const early_use *e,
                              bool settled[DEVICE_STREAMS][DEVICE_STREAMS])
{
  uint8_t pool = w->plan->buffers.items[e->buffer].stream,
          stream = w->plan->ops.items[e->op].stream;
  assert(pool < DEVICE_STREAMS && stream < DEVICE_STREAMS);
  if (settled[pool][stream]) return;
  settled[pool][stream] = true;
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    const former_use *use = &w->returned[pool].on[s];
    if (is_over(w, use->op, e->op)) continue;
    settled[pool][stream] = false;
    report_use(w, FINDING_BLOCK_REUSED, use->op, e->op, use->buffer, e->buffer, true);
  }
}

/* A resident that this step frees, and of which it leaves nothing in its place: the next step has to
 * allocate it, before anything else. */
static bool is_allocated_again(const rank_walk *w, const uint32_t *left_as, uint32_t buffer)
{
  return buffer < w->plan->residents && left_as[buffer] == NO_BUFFER && is_on_device(w, buffer);
}

static void check_early_use(rank_walk *w, const uint32_t *left_as, const early_use *e,
                            bool settled[DEVICE_STREAMS][DEVICE_STREAMS])
{
  const cell *c = former_cell(w, left_as, e->buffer);
  if (c == NULL && e->writes && is_allocated_again(w, left_as, e->buffer))
    check_first_write(w, e, settled);
  if (c == NULL) return;
  if (e->writes)
    check_write(w, c, e);
  else if (e->buffer < w->plan->residents)
    check_read(w, c, e);
}

void find_races_with_next_step(rank_walk *w, arena *a)
{
  const uint32_t *left_as = find_predecessors(w, a);
  bool early_settled[DEVICE_STREAMS][DEVICE_STREAMS] = { 0 }; /* each list is in program order */
  bool settled[DEVICE_STREAMS][DEVICE_STREAMS] = { 0 };
  for (uint32_t i = 0; i < w->early.count; i++)
    check_early_use(w, left_as, &w->early.items[i], early_settled);
  for (uint32_t i = 0; i < w->first_writes.count; i++)
    check_first_write(w, &w->first_writes.items[i], settled);
}
