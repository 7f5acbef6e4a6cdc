/*
 * Interleaved 1F1B (schedules.py, forward_backward_pipelining_with_interleaving).
 *
 * A rank holds `chunks` virtual stages; chunk c of pipeline rank r is stage c * p + r of the model.
 * Micro-batches run in groups of N: a group goes through chunk 0, then through chunk 1, and so on;
 * the k-th forward of a rank is entry k of that order, the k-th backward the same entry with the
 * chunks reversed.
 *
 *     warm-up    w = 2 (p - r - 1) + (chunks - 1) N forwards; with overlapped expert exchange one
 *                more, so that the two runs of a pair do not depend on each other
 *     steady     F(k + w)  B(k)
 *     flush      the remaining backwards
 *
 * Exchanges: without overlap one batched call after each run (in steady state after each pair),
 * with a wait at once. With overlap sends and receives are posted separately; Megatron waits for a
 * receive before the run that needs it, for a forward send at once (its source is about to be
 * released), for a backward send when the next one has been posted. overlap_p2p_comm_warmup_flush
 * does the same in warm-up and flush, where the receive for the next run is then posted before the
 * current one.
 */
#include <assert.h>

#include "sim/base/units.h"
#include "sim/schedule/steps.h"

typedef enum direction { FORWARD, BACKWARD } direction;

/* Posted receives without a wait so far, oldest first. */
typedef struct handle_queue {
  uint32_t *steps;
  uint32_t first, end;
} handle_queue;

typedef struct pipeline {
  step_writer writer;
  const work_item *table; /* [total] */
  uint32_t total, chunks, warmup;
  bool all_warmup;
  bool first_rank, last_rank;
  bool overlap, overlap_warmup_flush;
  bool pairs;               /* each steady forward runs together with its backward */
  uint32_t *received[2];    /* micro-batches received so far, per direction and chunk */
  handle_queue arriving[2]; /* per direction */
  uint32_t sending_back;    /* the backward send without a wait so far, or NO_STEP */
} pipeline;

/* ---- who runs what ---- */

static work_item *schedule_table(uint32_t microbatches, uint32_t chunks, uint32_t group, arena *a)
{
  work_item *table = ARENA_ARRAY(a, work_item, (size_t)microbatches * chunks);
  uint32_t k = 0;

  for (uint32_t start = 0; start < microbatches; start += group)
    for (uint32_t chunk = 0; chunk < chunks; chunk++)
      for (uint32_t m = start; m < microbatches && m < start + group; m++)
        table[k++] = (work_item){ m, chunk };
  assert(k == microbatches * chunks && "each chunk of each micro-batch once");
  return table;
}

/* The k-th run in this direction. k may be one past the end, when the caller looks for the next
 * run. */
static work_item run_item(const pipeline *p, uint32_t k, direction d)
{
  work_item item = p->table[k % p->total];

  assert(k <= p->total && item.chunk < p->chunks);
  if (d == BACKWARD) item.chunk = p->chunks - 1 - item.chunk;
  return item;
}

static bool leads(const pipeline *p, direction d)
{
  assert(d == FORWARD || d == BACKWARD);
  return d == FORWARD ? p->first_rank : p->last_rank;
}

/* Whether no rank sends the run's input: the first stage forward, the last stage backward. */
static bool is_source(const pipeline *p, work_item item, direction d)
{
  assert(item.chunk < p->chunks);
  return leads(p, d) && item.chunk == (d == FORWARD ? 0 : p->chunks - 1);
}

/* Whether no rank receives the run's result. */
static bool is_sink(const pipeline *p, work_item item, direction d)
{
  assert(item.chunk < p->chunks);
  return leads(p, d == FORWARD ? BACKWARD : FORWARD) &&
         item.chunk == (d == FORWARD ? p->chunks - 1 : 0);
}

/*
 * The receive during run k (recv_tensor_from_previous_stage): the input of run k + 1. The first
 * rank of the direction instead receives what the last rank, p - 1 runs behind, sends around the
 * ring.
 */
static bool receives(const pipeline *p, uint32_t k, direction d, uint32_t *chunk)
{
  uint32_t behind = p->writer.pp_size - 1;
  assert(k < p->total);

  if (!leads(p, d)) {
    *chunk = run_item(p, k + 1, d).chunk;
    return true;
  }
  if (k < behind) return false;
  uint32_t sent = run_item(p, k - behind, d).chunk;
  if (sent == (d == FORWARD ? p->chunks - 1 : 0)) return false;
  *chunk = d == FORWARD ? sent + 1 : sent - 1;
  assert(*chunk < p->chunks);
  return true;
}

/* ---- exchanges ---- */

static void want_receive(pipeline *p, exchange *e, direction d, uint32_t chunk)
{
  uint32_t microbatch = p->received[d][chunk]++;

  assert(chunk < p->chunks && microbatch < p->total / p->chunks);
  want(e, d == FORWARD ? RECV_PREVIOUS : RECV_NEXT, (work_item){ microbatch, chunk });
}

/* Adds the receive of run k, unless k is the last run of its kind. */
static void want_next_receive(pipeline *p, exchange *e, uint32_t k, direction d, bool last)
{
  uint32_t chunk;

  if (!last && receives(p, k, d, &chunk)) want_receive(p, e, d, chunk);
}

static void want_send(const pipeline *p, exchange *e, work_item item, direction d)
{
  assert(item.microbatch < p->total / p->chunks && item.chunk < p->chunks);
  if (!is_sink(p, item, d)) want(e, d == FORWARD ? SEND_NEXT : SEND_PREVIOUS, item);
}

static void await_receive(pipeline *p, direction d, bool must)
{
  handle_queue *q = &p->arriving[d];

  assert(!must || q->first < q->end);
  if (q->first < q->end) write_wait(&p->writer, q->steps[q->first++]);
}

/* Posts the exchange and waits for a forward send; the caller waits for receives later. Returns the
 * backward send or NO_STEP. */
static uint32_t post_overlapped(pipeline *p, const exchange *e)
{
  handles h = write_posts(&p->writer, e);

  for (direction d = FORWARD; d <= BACKWARD; d++) {
    uint32_t receive = handle_of(&h, d == FORWARD ? RECV_PREVIOUS : RECV_NEXT);
    assert(p->arriving[d].end <= p->total);
    if (receive != NO_STEP) p->arriving[d].steps[p->arriving[d].end++] = receive;
  }
  if (handle_of(&h, SEND_NEXT) != NO_STEP) write_wait(&p->writer, handle_of(&h, SEND_NEXT));
  return handle_of(&h, SEND_PREVIOUS);
}

/* After a backward: posts its exchanges, then waits for the previous backward's send. */
static void post_backward_overlapped(pipeline *p, const exchange *e)
{
  assert(p->overlap && (p->sending_back == NO_STEP || p->sending_back < p->writer.count));
  uint32_t send = post_overlapped(p, e);

  if (p->sending_back != NO_STEP) write_wait(&p->writer, p->sending_back);
  p->sending_back = send;
}

static void release_output(pipeline *p, work_item item)
{
  if (!is_sink(p, item, FORWARD)) write_run(&p->writer, STEP_RELEASE_OUTPUT, item);
}

/* ---- warm-up ---- */

static void warmup_step(pipeline *p, uint32_t k)
{
  assert(k < p->warmup && (!p->overlap_warmup_flush || p->overlap));
  work_item item = run_item(p, k, FORWARD);
  bool last_run = k == p->total - 1, turns = k == p->warmup - 1 && !p->all_warmup;
  exchange before = { 0 }, after = { 0 };

  if (p->overlap_warmup_flush && !is_source(p, item, FORWARD) && k != 0)
    await_receive(p, FORWARD, true);
  want_next_receive(p, p->overlap_warmup_flush && !p->first_rank ? &before : &after, k, FORWARD,
                    last_run);
  if (p->overlap_warmup_flush) post_overlapped(p, &before);
  write_run(&p->writer, STEP_FORWARD, item);
  want_send(p, &after, item, FORWARD);
  if (turns && !p->overlap && !p->last_rank) want_receive(p, &after, BACKWARD, p->chunks - 1);
  if (p->overlap_warmup_flush)
    post_overlapped(p, &after);
  else
    write_exchange(&p->writer, &after);
  release_output(p, item);
}

/* With overlap, posts the first gradient's receive at the end of warm-up. */
static void post_first_gradient(pipeline *p)
{
  exchange e = { 0 };

  if (!p->overlap || p->all_warmup || p->last_rank) return;
  assert(p->sending_back == NO_STEP && p->received[BACKWARD][p->chunks - 1] == 0);
  want_receive(p, &e, BACKWARD, p->chunks - 1);
  post_overlapped(p, &e);
}

/* ---- steady state ---- */

/* pp_pre_forward. */
static void before_steady_forward(pipeline *p, uint32_t k, work_item ahead)
{
  assert(p->overlap && k + p->warmup < p->total);
  if (!is_source(p, ahead, FORWARD)) await_receive(p, FORWARD, p->overlap_warmup_flush);
  if (k > 0) release_output(p, run_item(p, k + p->warmup - 1, FORWARD));
}

/* pp_post_forward. */
static void after_steady_forward(pipeline *p, uint32_t k, work_item ahead, bool last)
{
  assert(p->overlap && last == (k + p->warmup == p->total - 1));
  exchange e = { 0 };

  want_send(p, &e, ahead, FORWARD);
  want_next_receive(p, &e, k + p->warmup, FORWARD, last);
  post_overlapped(p, &e);
}

/* pp_pre_backward. */
static void before_steady_backward(pipeline *p, work_item back)
{
  assert(p->overlap && back.chunk < p->chunks);
  if (!is_source(p, back, BACKWARD)) await_receive(p, BACKWARD, p->overlap_warmup_flush);
}

/* pp_post_backward. */
static void after_steady_backward(pipeline *p, uint32_t k, work_item back)
{
  assert(p->overlap && k < p->total - p->warmup);
  exchange e = { 0 };

  want_send(p, &e, back, BACKWARD);
  want_next_receive(p, &e, k, BACKWARD, false);
  post_backward_overlapped(p, &e);
}

static void steady_overlapped(pipeline *p, uint32_t k, bool last)
{
  assert(p->overlap && !p->pairs);
  work_item ahead = run_item(p, k + p->warmup, FORWARD), back = run_item(p, k, BACKWARD);

  before_steady_forward(p, k, ahead);
  write_run(&p->writer, STEP_FORWARD, ahead);
  after_steady_forward(p, k, ahead, last);
  before_steady_backward(p, back);
  write_run(&p->writer, STEP_BACKWARD, back);
  after_steady_backward(p, k, back);
}

static void steady_pair_overlapped(pipeline *p, uint32_t k, bool last)
{
  assert(p->overlap && p->pairs);
  work_item ahead = run_item(p, k + p->warmup, FORWARD), back = run_item(p, k, BACKWARD);

  before_steady_forward(p, k, ahead);
  write_paired(&p->writer, STEP_FORWARD, ahead);
  before_steady_backward(p, back);
  write_paired(&p->writer, STEP_BACKWARD, back);
  write_layers(&p->writer);
  after_steady_forward(p, k, ahead, last);
  after_steady_backward(p, k, back);
  write_finish(&p->writer);
}

static void steady_batched(pipeline *p, uint32_t k, bool last)
{
  assert(!p->overlap && p->sending_back == NO_STEP);
  work_item ahead = run_item(p, k + p->warmup, FORWARD), back = run_item(p, k, BACKWARD);
  exchange e = { 0 };

  if (p->pairs) {
    write_paired(&p->writer, STEP_FORWARD, ahead);
    write_paired(&p->writer, STEP_BACKWARD, back);
    write_layers(&p->writer);
    write_finish(&p->writer);
  } else {
    write_run(&p->writer, STEP_FORWARD, ahead);
    write_run(&p->writer, STEP_BACKWARD, back);
  }
  want_send(p, &e, ahead, FORWARD);
  want_send(p, &e, back, BACKWARD);
  want_next_receive(p, &e, k + p->warmup, FORWARD, last);
  want_next_receive(p, &e, k, BACKWARD, false);
  write_exchange(&p->writer, &e);
  release_output(p, ahead);
}

static void steady(pipeline *p)
{
  uint32_t pairs = p->total - p->warmup;

  assert(p->warmup <= p->total && p->all_warmup == (pairs == 0));
  for (uint32_t k = 0; k < pairs; k++)
    if (p->overlap && p->pairs)
      steady_pair_overlapped(p, k, k == pairs - 1);
    else if (p->overlap)
      steady_overlapped(p, k, k == pairs - 1);
    else
      steady_batched(p, k, k == pairs - 1);
  if (p->overlap && pairs > 0) release_output(p, run_item(p, p->total - 1, FORWARD));
}

/* ---- flush ---- */

static void flush_step(pipeline *p, uint32_t k)
{
  assert(k >= p->total - p->warmup && k < p->total);
  work_item item = run_item(p, k, BACKWARD);
  exchange before = { 0 }, after = { 0 };

  if (!is_source(p, item, BACKWARD) && k != 0) await_receive(p, BACKWARD, p->overlap_warmup_flush);
  want_next_receive(p, p->overlap_warmup_flush && !p->last_rank ? &before : &after, k, BACKWARD,
                    k == p->total - 1);
  if (p->overlap_warmup_flush) post_overlapped(p, &before);
  write_run(&p->writer, STEP_BACKWARD, item);
  want_send(p, &after, item, BACKWARD);
  if (p->overlap_warmup_flush)
    post_backward_overlapped(p, &after);
  else
    write_exchange(&p->writer, &after);
}

static void flush(pipeline *p)
{
  exchange first = { 0 };
  assert(!p->all_warmup || p->last_rank || p->received[BACKWARD][p->chunks - 1] == 0);

  if (p->all_warmup && !p->last_rank) {
    want_receive(p, &first, BACKWARD, p->chunks - 1);
    write_exchange(&p->writer, &first);
  }
  for (uint32_t k = p->total - p->warmup; k < p->total; k++)
    flush_step(p, k);
  if (p->sending_back != NO_STEP) write_wait(&p->writer, p->sending_back);
}

/* ---- the whole ---- */

static uint32_t warmup_runs(const settings *s, uint32_t pp_rank, uint32_t total)
{
  assert(pp_rank < s->parallel.pipeline_model_parallel_size);
  int64_t runs = 2 * (s->parallel.pipeline_model_parallel_size - pp_rank - 1) +
                 (s->derived.virtual_stages - 1) * s->parallel.microbatch_group_size_per_vp_stage +
                 s->parallel.overlap_moe_expert_parallel_comm;

  assert(runs >= 0 && total > 0);
  return (uint32_t)min_i64(runs, total);
}

static pipeline new_pipeline(const settings *s, uint32_t pp_rank, arena *a)
{
  uint32_t size = (uint32_t)s->parallel.pipeline_model_parallel_size;
  uint32_t microbatches = (uint32_t)s->derived.num_microbatches;
  uint32_t chunks = (uint32_t)s->derived.virtual_stages, total = microbatches * chunks;
  uint32_t group = (uint32_t)s->parallel.microbatch_group_size_per_vp_stage;
  assert(group >= size && group <= microbatches);
  assert(chunks > 1 && size > 1 && total / chunks == microbatches);
  assert(microbatches % group == 0 || microbatches % group >= size);

  uint32_t warmup = warmup_runs(s, pp_rank, total);
  bool overlap = s->parallel.overlap_p2p_comm;
  pipeline p = { .table = schedule_table(microbatches, chunks, group, a),
                 .total = total,
                 .chunks = chunks,
                 .warmup = warmup,
                 .all_warmup = warmup == total,
                 .first_rank = pp_rank == 0,
                 .last_rank = pp_rank == size - 1,
                 .overlap = overlap,
                 .pairs = s->parallel.overlap_moe_expert_parallel_comm,
                 .overlap_warmup_flush = overlap && s->parallel.overlap_p2p_comm_warmup_flush,
                 .sending_back = NO_STEP };

  /* Each run has its step, two exchanges with their waits and a synchronise; each forward has a
   * release, and its pair's two steps. */
  p.writer = step_writer_new(size, pp_rank, overlap, 16 * total + 8, a);
  for (direction d = FORWARD; d <= BACKWARD; d++) {
    p.received[d] = ARENA_ARRAY(a, uint32_t, chunks);
    p.arriving[d].steps = ARENA_ARRAY(a, uint32_t, total + 1);
  }
  return p;
}

schedule interleaved(const settings *s, uint32_t pp_rank, arena *a)
{
  pipeline p = new_pipeline(s, pp_rank, a);

  if (!p.first_rank) {
    exchange first = { 0 };
    want_receive(&p, &first, FORWARD, 0);
    write_exchange(&p.writer, &first);
  }
  for (uint32_t k = 0; k < p.warmup; k++)
    warmup_step(&p, k);
  post_first_gradient(&p);
  steady(&p);
  flush(&p);
  assert(p.arriving[FORWARD].first == p.arriving[FORWARD].end);
  assert(p.arriving[BACKWARD].first == p.arriving[BACKWARD].end);
  return (schedule){ p.writer.steps, p.writer.count };
}
