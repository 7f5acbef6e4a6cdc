/* Gates and lanes of the streams on which ranks exchange data. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/peers/exchange_state.h"

/* The gates and lanes that a plan's stream needs. */
typedef struct stream_needs {
  bool used;
  uint32_t slots;
} stream_needs;

/* The number of messages of an exchange, from its first one on. */
static uint32_t messages_from(const stage *s, uint32_t op)
{
  uint32_t count = 0;
  for (; is_message(s, op); op = s->following[op])
    count++;
  return count;
}

static void need(stream_needs *n, uint32_t slots)
{
  n->used = true;
  if (slots > n->slots) n->slots = slots;
}

static void find_needs(const stage *s, stream_needs *needs)
{
  memset(needs, 0, DEVICE_STREAMS * sizeof *needs);
  for (uint32_t i = 0; i < s->ops_of->ops.count; i++) {
    const plan_op *o = stage_op(s, i);
    if (!op_runs_on_stream((op_kind)o->kind)) continue;
    assert(o->stream < DEVICE_STREAMS);
    need(&needs[o->stream], o->kind == OP_COLLECTIVE ? 1 : messages_from(s, i));
  }
}

uint32_t streams_of(const stage *s)
{
  stream_needs needs[DEVICE_STREAMS];
  uint32_t streams = 0, slots = 0;
  find_needs(s, needs);
  for (uint32_t i = 0; i < DEVICE_STREAMS; i++) {
    slots += needs[i].slots;
    streams += needs[i].used + (needs[i].slots > 1 ? needs[i].slots - 1 : 0);
  }
  assert(slots == 0 || streams > 0);
  return slots == 0 ? 0 : streams;
}

static void *grown(void *items, uint32_t count, size_t size)
{
  assert(count > 0 && size > 0);
  void *now = realloc(items, count * size);
  if (now == NULL) die_refused("no memory for %zu bytes of gates", count * size);
  return now;
}

static const char *add_slot(const gpu_driver *driver, rendezvous_point *p)
{
  uint32_t slot = p->slots;
  p->passed = grown(p->passed, slot + 1, sizeof *p->passed);
  p->lanes = grown(p->lanes, slot + 1, sizeof *p->lanes);
  p->lanes[slot] = NULL;
  const char *failure =
      slot == 0 ? driver->gate_new(&p->arrived) : driver->stream_new(&p->lanes[slot]);
  if (failure != NULL) return failure;
  failure = driver->gate_new(&p->passed[slot]);
  if (failure == NULL)
    p->slots++;
  else if (slot == 0)
    driver->gate_delete(p->arrived);
  else
    driver->stream_delete(p->lanes[slot]);
  return failure;
}

const char *gates_prepare(exchange *x, uint32_t rank)
{
  const gpu_driver *driver = x->setup.driver;
  rank_exchange *r = &x->ranks[rank];
  assert(is_here(x, rank) && r->stage != NULL);
  stream_needs needs[DEVICE_STREAMS];
  find_needs(r->stage, needs);
  const char *failure = driver->use(x->setup.gpu_of[rank]);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    while (failure == NULL && r->points[s].slots < needs[s].slots)
      failure = add_slot(driver, &r->points[s]);
  return failure;
}

void lanes_synchronize(exchange *x, uint32_t rank)
{
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++) {
    const rendezvous_point *p = &x->ranks[rank].points[s];
    assert(p->slots == 0 || p->lanes[0] == NULL);
    for (uint32_t i = 1; i < p->slots; i++)
      (void)x->setup.driver->stream_synchronize(p->lanes[i]);
  }
}

static void point_release(const gpu_driver *driver, rendezvous_point *p)
{
  for (uint32_t i = 0; i < p->slots; i++) {
    if (i > 0) driver->stream_delete(p->lanes[i]);
    driver->gate_delete(p->passed[i]);
  }
  if (p->slots > 0) driver->gate_delete(p->arrived);
  free(p->passed);
  free(p->lanes);
}

void gates_release(exchange *x, uint32_t rank)
{
  if (is_here(x, rank)) (void)x->setup.driver->use(x->setup.gpu_of[rank]);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    point_release(x->setup.driver, &x->ranks[rank].points[s]);
}

const char *post_text(exchange *x, const post *p)
{
  assert(p->op < x->ranks[p->rank].stage->ops_of->ops.count);
  return arena_printf(&x->texts, "rank %u: %s", p->rank,
                      stage_op_text(x->ranks[p->rank].stage, p->op, &x->texts));
}
