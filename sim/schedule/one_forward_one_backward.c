/*
 * 1F1B without virtual stages (schedules.py, forward_backward_pipelining_without_interleaving). It
 * waits for every exchange at once: this schedule has no overlapped form.
 *
 *     warm-up    p - r - 1 times    recv_forward  F  send_forward
 *     steady                        F  send_forward+recv_backward  B  send_backward+recv_forward
 *     flush      as many as warm-up recv_backward  B  send_backward
 */
#include <assert.h>

#include "sim/base/units.h"
#include "sim/schedule/steps.h"

typedef struct pipeline {
  step_writer writer;
  bool first_rank, last_rank;
} pipeline;

static work_item microbatch(uint32_t i)
{
  return (work_item){ i, 0 };
}

static void run_forward(pipeline *p, uint32_t i)
{
  write_run(&p->writer, STEP_FORWARD, microbatch(i));
}

static void run_backward(pipeline *p, uint32_t i)
{
  write_run(&p->writer, STEP_BACKWARD, microbatch(i));
}

/* Exchanges with the previous rank; the first rank does not call the communicator. */
static void with_previous(pipeline *p, const uint32_t *send_backward, const uint32_t *recv_forward)
{
  exchange e = { 0 };

  assert(p->first_rank == (p->writer.pp_rank == 0));
  if (p->first_rank) return;
  if (send_backward) want(&e, SEND_PREVIOUS, microbatch(*send_backward));
  if (recv_forward) want(&e, RECV_PREVIOUS, microbatch(*recv_forward));
  write_exchange(&p->writer, &e);
}

static void with_next(pipeline *p, const uint32_t *send_forward, const uint32_t *recv_backward)
{
  exchange e = { 0 };

  if (p->last_rank) return;
  assert(send_forward != NULL || recv_backward != NULL);
  if (send_forward) want(&e, SEND_NEXT, microbatch(*send_forward));
  assert(p->last_rank == (p->writer.pp_rank == p->writer.pp_size - 1));
  if (recv_backward) want(&e, RECV_NEXT, microbatch(*recv_backward));
  write_exchange(&p->writer, &e);
  if (send_forward) write_run(&p->writer, STEP_RELEASE_OUTPUT, microbatch(*send_forward));
}

schedule one_forward_one_backward(const settings *s, uint32_t pp_rank, arena *a)
{
  uint32_t size = (uint32_t)s->parallel.pipeline_model_parallel_size;
  uint32_t microbatches = (uint32_t)s->derived.num_microbatches;
  uint32_t warmup = (uint32_t)min_i64(size - pp_rank - 1, microbatches);
  assert(pp_rank < size && s->derived.virtual_stages == 1);
  /* Each micro-batch has at most F, B, a release, and four exchanges, each with its wait and a
   * synchronise. */
  pipeline p = { .writer = step_writer_new(size, pp_rank, false, 15 * microbatches, a),
                 .first_rank = pp_rank == 0,
                 .last_rank = pp_rank == size - 1 };

  for (uint32_t i = 0; i < warmup; i++) {
    with_previous(&p, NULL, &i);
    run_forward(&p, i);
    with_next(&p, &i, NULL);
  }
  if (warmup < microbatches) with_previous(&p, NULL, &warmup);
  for (uint32_t back = 0; back < microbatches - warmup; back++) {
    uint32_t ahead = back + warmup, after = ahead + 1;
    run_forward(&p, ahead);
    with_next(&p, &ahead, &back);
    run_backward(&p, back);
    with_previous(&p, &back, after < microbatches ? &after : NULL);
  }
  for (uint32_t back = microbatches - warmup; back < microbatches; back++) {
    with_next(&p, NULL, &back);
    run_backward(&p, back);
    with_previous(&p, &back, NULL);
  }
  return (schedule){ p.writer.steps, p.writer.count };
}
