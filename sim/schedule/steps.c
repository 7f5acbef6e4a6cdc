#include "sim/schedule/steps.h"

#include <assert.h>

void want(exchange *e, transfer_kind kind, work_item item)
{
  assert((uint32_t)kind - FIRST_TRANSFER < TRANSFER_KINDS);
  assert(!e->wanted[kind - FIRST_TRANSFER] && "one transfer of a kind in a call");
  e->wanted[kind - FIRST_TRANSFER] = true;
  e->item[kind - FIRST_TRANSFER] = item;
}

uint32_t handle_of(const handles *h, transfer_kind kind)
{
  assert((uint32_t)kind - FIRST_TRANSFER < TRANSFER_KINDS);
  return h->step[kind - FIRST_TRANSFER];
}

step_writer step_writer_new(uint32_t pp_size, uint32_t pp_rank, bool overlapped, uint32_t capacity,
                            arena *a)
{
  assert(pp_rank < pp_size && capacity > 0);
  return (step_writer){ .steps = ARENA_ARRAY(a, schedule_step, capacity),
                        .capacity = capacity,
                        .pp_size = pp_size,
                        .pp_rank = pp_rank,
                        .overlapped = overlapped };
}

static schedule_step *new_step(step_writer *w, step_kind kind, work_item item)
{
  assert(w->count < w->capacity);
  schedule_step *s = &w->steps[w->count++];
  s->kind = (uint8_t)kind;
  s->microbatch = item.microbatch;
  s->chunk = item.chunk;
  return s;
}

void write_run(step_writer *w, step_kind kind, work_item item)
{
  assert(kind == STEP_FORWARD || kind == STEP_BACKWARD || kind == STEP_RELEASE_OUTPUT);
  assert((kind == STEP_RELEASE_OUTPUT || w->pair == PAIR_NONE) && "a run is whole, or in a pair");
  new_step(w, kind, item);
}

void write_wait(step_writer *w, uint32_t target)
{
  assert(target < w->count && w->steps[target].kind != STEP_WAIT);
  work_item item = { w->steps[target].microbatch, w->steps[target].chunk };
  new_step(w, STEP_WAIT, item)->target = target;
}

void write_paired(step_writer *w, step_kind kind, work_item item)
{
  assert(kind == STEP_FORWARD || kind == STEP_BACKWARD);
  assert(w->pair == (kind == STEP_FORWARD ? PAIR_NONE : PAIR_FORWARD));
  w->pair = kind == STEP_FORWARD ? PAIR_FORWARD : PAIR_BACKWARD;
  new_step(w, kind, item)->paired = true;
}

void write_layers(step_writer *w)
{
  assert(w->pair == PAIR_BACKWARD);
  w->pair = PAIR_LAYERS;
  new_step(w, STEP_LAYERS, (work_item){ 0, 0 });
}

void write_finish(step_writer *w)
{
  assert(w->pair == PAIR_LAYERS);
  w->pair = PAIR_NONE;
  new_step(w, STEP_FINISH, (work_item){ 0, 0 });
}

static uint32_t peer_of(const step_writer *w, transfer_kind kind)
{
  bool next = kind == SEND_NEXT || kind == RECV_NEXT;

  assert(w->pp_size > 1 && w->pp_rank < w->pp_size);
  return (w->pp_rank + (next ? 1 : w->pp_size - 1)) % w->pp_size;
}

/* The order in which a call posts its transfers (_batched_p2p_ops and _p2p_ops). */
static const transfer_kind *posting_order(const step_writer *w)
{
  static const transfer_kind batched[] = { SEND_PREVIOUS, RECV_PREVIOUS, SEND_NEXT, RECV_NEXT };
  static const transfer_kind even[] = { SEND_NEXT, RECV_PREVIOUS, SEND_PREVIOUS, RECV_NEXT };
  static const transfer_kind odd[] = { RECV_PREVIOUS, SEND_NEXT, RECV_NEXT, SEND_PREVIOUS };

  if (!w->overlapped) return batched;
  return w->pp_rank % 2 == 0 ? even : odd;
}

static handles post(step_writer *w, const exchange *e)
{
  const transfer_kind *order = posting_order(w);
  handles h;
  uint32_t batch = w->batches;

  for (uint32_t i = 0; i < TRANSFER_KINDS; i++) {
    uint32_t t = (uint32_t)order[i] - FIRST_TRANSFER;
    h.step[t] = NO_STEP;
    if (!e->wanted[t]) continue;
    schedule_step *s = new_step(w, (step_kind)order[i], e->item[t]);
    s->peer = peer_of(w, order[i]);
    s->batch = batch;
    h.step[t] = w->count - 1;
    w->batches = batch + 1;
    if (w->overlapped) batch++;
  }
  assert(w->batches >= batch && "transfers of one call are in its batches");
  return h;
}

handles write_posts(step_writer *w, const exchange *e)
{
  assert(w->overlapped && "batched exchanges are awaited at once");
  return post(w, e);
}

void write_exchange(step_writer *w, const exchange *e)
{
  uint32_t first = w->count;
  post(w, e);
  uint32_t end = w->count;

  assert(end - first <= TRANSFER_KINDS);
  for (uint32_t target = first; target < end; target++)
    write_wait(w, target);
  if (!w->overlapped) new_step(w, STEP_SYNCHRONIZE, (work_item){ 0, 0 });
}
