/*
 * Pipeline schedules: the order of runs against tables, the places of exchanges against golden
 * lines, and for many shapes a run of all ranks: every message has its partner, nothing hangs,
 * every input has been waited for before it is used.
 */
#include "sim/schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/units.h"

typedef struct shape {
  int64_t stages, virtual_stages, group, microbatches;
  bool overlap, overlap_warmup_flush;
  bool pairs; /* overlap_moe_expert_parallel_comm */
} shape;

static settings settings_of(shape s)
{
  settings out = { 0 };

  out.parallel.pipeline_model_parallel_size = s.stages;
  out.parallel.microbatch_group_size_per_vp_stage = s.group;
  out.parallel.overlap_p2p_comm = s.overlap;
  out.parallel.overlap_p2p_comm_warmup_flush = s.overlap_warmup_flush;
  out.parallel.overlap_moe_expert_parallel_comm = s.pairs;
  out.derived.num_microbatches = s.microbatches;
  out.derived.virtual_stages = s.virtual_stages;
  return out;
}

static schedule schedule_for(shape s, uint32_t rank, arena *a)
{
  settings made = settings_of(s);

  return schedule_of_rank(&made, rank, a);
}

/* ---- the order of runs ---- */

/* "F0 F1.1 B0": micro-batch, and the chunk where it is not 0; "F1+B0": a pair. */
static const char *runs_text(const schedule *s)
{
  static char text[4096];
  size_t used = 0;

  text[0] = '\0';
  for (uint32_t i = 0; i < s->count; i++) {
    const schedule_step *t = &s->steps[i];
    if (t->kind != STEP_FORWARD && t->kind != STEP_BACKWARD) continue;
    const char *before = t->paired && t->kind == STEP_BACKWARD ? "+" : used ? " " : "";
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%c%u", before,
                             t->kind == STEP_FORWARD ? 'F' : 'B', t->microbatch);
    if (t->chunk) used += (size_t)snprintf(text + used, sizeof text - used, ".%u", t->chunk);
  }
  return text;
}

static void test_order_of_runs(void **state)
{
  static const struct {
    shape shape;
    uint32_t rank;
    uint32_t in_flight;
    const char *runs;
  } cases[] = {
    { { 1, 1, 1, 3, 0, 0, 0 }, 0, 1, "F0 B0 F1 B1 F2 B2" },
    { { 2, 1, 1, 3, 0, 0, 0 }, 0, 2, "F0 F1 B0 F2 B1 B2" },
    { { 2, 1, 1, 3, 0, 0, 0 }, 1, 1, "F0 B0 F1 B1 F2 B2" },
    { { 4, 1, 1, 2, 0, 0, 0 }, 0, 2, "F0 F1 B0 B1" },
    { { 4, 1, 1, 6, 0, 0, 0 }, 1, 3, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5" },
    { { 2, 2, 2, 4, 1, 0, 0 },
      0,
      5,
      "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3" },
    { { 2, 2, 2, 4, 1, 0, 0 },
      1,
      3,
      "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3" },
    /* The table in Megatron's comments: PP2, N=3, 5 micro-batches, VP2. */
    { { 2, 2, 3, 5, 1, 0, 0 },
      1,
      4,
      "F0 F1 F2 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3 B0 F4 B1 F3.1 B2 F4.1 B3.1 B4.1 B3 B4" },
    { { 2, 2, 2, 2, 1, 0, 0 }, 0, 4, "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1" },
    /* Pairs: one forward earlier, so that both runs of a pair are independent. */
    { { 1, 1, 1, 3, 0, 0, 1 }, 0, 2, "F0 F1+B0 F2+B1 B2" },
    { { 1, 1, 1, 1, 0, 0, 1 }, 0, 1, "F0 B0" },
    { { 2, 2, 2, 4, 1, 0, 1 },
      0,
      6,
      "F0 F1 F0.1 F1.1 F2 F3+B0.1 F2.1+B1.1 F3.1+B0 B1 B2.1 B3.1 B2 B3" },
    { { 2, 2, 2, 4, 1, 0, 1 },
      1,
      4,
      "F0 F1 F0.1 F1.1+B0.1 F2+B1.1 F3+B0 F2.1+B1 F3.1+B2.1 B3.1 B2 B3" },
    { { 2, 2, 2, 2, 0, 0, 1 }, 0, 4, "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1" },
  };
  (void)state;

  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    arena a = { 0 };
    schedule s = schedule_for(cases[i].shape, cases[i].rank, &a);
    assert_string_equal(runs_text(&s), cases[i].runs);
    assert_int_equal(schedule_in_flight_at_first_backward(&s), cases[i].in_flight);
    arena_release(&a);
  }
}

/* 1F1B: min(p - r, m). Interleaved: one more than warm-up, at most all. */
static void test_in_flight(void **state)
{
  (void)state;
  for (uint32_t rank = 0; rank < 4; rank++)
    for (int64_t m = 4; m <= 12; m += 4) {
      arena a = { 0 };
      schedule plain = schedule_for((shape){ 4, 1, 4, m, 0, 0, 0 }, rank, &a);
      schedule virtual = schedule_for((shape){ 4, 3, 4, m, 1, 0, 0 }, rank, &a);
      assert_int_equal(schedule_in_flight_at_first_backward(&plain), min_i64(4 - rank, m));
      assert_int_equal(schedule_in_flight_at_first_backward(&virtual),
                       min_i64(2 * (4 - rank - 1) + 2 * 4 + 1, 3 * m));
      arena_release(&a);
    }
}

/* ---- where exchanges are ---- */

/*
 * One word a step: F B runs, > < a forward sent and received, { } a gradient received and sent,
 * each with its micro-batch; w waits for the exchange named after it, | synchronises, x releases an
 * output; f b begin the runs of a pair, = runs its layers, . finishes it. Exchanges of one batch
 * are in one pair of brackets.
 */
static const char *steps_text(const schedule *s)
{
  static const char letters[] = "FB><}{w|x=.";
  static char text[8192];
  size_t used = 0;
  uint32_t batch = UINT32_MAX;

  text[0] = '\0';
  for (uint32_t i = 0; i < s->count; i++) {
    const schedule_step *t = &s->steps[i];
    bool exchange = t->kind >= STEP_SEND_FORWARD && t->kind <= STEP_RECV_BACKWARD;
    if (batch != UINT32_MAX && (!exchange || t->batch != batch))
      used += (size_t)snprintf(text + used, sizeof text - used, "]");
    used += (size_t)snprintf(text + used, sizeof text - used, "%s", used ? " " : "");
    if (exchange && t->batch != batch)
      used += (size_t)snprintf(text + used, sizeof text - used, "[");
    batch = exchange ? t->batch : UINT32_MAX;
    char letter = letters[t->kind];
    if (t->paired) letter = letter == 'F' ? 'f' : 'b';
    used += (size_t)snprintf(text + used, sizeof text - used, "%c", letter);
    if (t->kind == STEP_WAIT)
      used += (size_t)snprintf(text + used, sizeof text - used, "%c",
                               letters[s->steps[t->target].kind]);
    if (t->kind == STEP_SYNCHRONIZE || t->kind == STEP_LAYERS || t->kind == STEP_FINISH) continue;
    used += (size_t)snprintf(text + used, sizeof text - used, "%u", t->microbatch);
    if (t->chunk) used += (size_t)snprintf(text + used, sizeof text - used, ".%u", t->chunk);
  }
  if (batch != UINT32_MAX) snprintf(text + used, sizeof text - used, "]");
  return text;
}

static void test_exchanges(void **state)
{
  static const struct {
    shape shape;
    uint32_t rank;
    const char *steps;
  } cases[] = {
    /* 1F1B: everything is waited for at once, and the device is synchronised. */
    { { 2, 1, 1, 2, 0, 0, 0 }, 0, "F0 [>0] w>0 | x0 F1 [>1 {0] w>1 w{0 | x1 B0 [{1] w{1 | B1" },
    { { 2, 1, 1, 2, 0, 0, 0 }, 1, "[<0] w<0 | F0 B0 [}0 <1] w}0 w<1 | F1 B1 [}1] w}1 |" },
    /* Interleaved, batched: a rank that exchanges nothing synchronises all the same. */
    { { 3, 2, 3, 3, 0, 0, 0 },
      0,
      "F0 [>0] w>0 | x0 F1 [>1] w>1 | x1 F2 [<0.1 >2] w<0.1 w>2 | x2 "
      "F0.1 [<1.1 >0.1] w<1.1 w>0.1 | x0.1 F1.1 [<2.1 >1.1] w<2.1 w>1.1 | x1.1 "
      "F2.1 [>2.1] w>2.1 | x2.1 [{0.1] w{0.1 | "
      "B0.1 [}0.1 {1.1] w}0.1 w{1.1 | B1.1 [}1.1 {2.1] w}1.1 w{2.1 | "
      "B2.1 [}2.1 {0] w}2.1 w{0 | B0 [{1] w{1 | B1 [{2] w{2 | B2 |" },
    /* Interleaved, overlapped in steady state only. */
    { { 2, 2, 2, 2, 1, 0, 0 },
      1,
      "[<0] w<0 F0 [<1] [>0] w<1 w>0 x0 F1 [<0.1] [>1] w<0.1 w>1 x1 "
      "F0.1 [<1.1] B0.1 [}0.1] w<1.1 F1.1 B1.1 [{0] [}1.1] w}0.1 "
      "w{0 B0 [{1] [}0] w{1 w}0 B1 [}1] w}1 w}1.1" },
    /* ... and in warm-up and flush. */
    { { 2, 2, 2, 2, 1, 1, 0 },
      0,
      "F0 [>0] w>0 x0 F1 [>1] [<0.1] w>1 x1 w<0.1 F0.1 [>0.1] [<1.1] w>0.1 x0.1 "
      "w<1.1 F1.1 [>1.1] w>1.1 x1.1 [{0.1] w{0.1 "
      "[{1.1] B0.1 [}0.1] w{1.1 [{0] B1.1 [}1.1] w}0.1 w{0 [{1] B0 w}1.1 w{1 B1" },
    /* Pairs: overlapped exchanges come before the pair's end, batched ones after it. */
    { { 2, 2, 2, 2, 1, 0, 1 },
      1,
      "[<0] w<0 F0 [<1] [>0] w<1 w>0 x0 F1 [<0.1] [>1] w<0.1 w>1 x1 F0.1 [<1.1] w<1.1 "
      "f1.1 b0.1 = [}0.1] . B1.1 [{0] [}1.1] w{0 w}1.1 B0 [{1] [}0] w{1 w}0 B1 [}1] w}1 w}0.1" },
    { { 2, 2, 2, 2, 0, 0, 1 },
      1,
      "[<0] w<0 | F0 [<1 >0] w<1 w>0 | x0 F1 [<0.1 >1] w<0.1 w>1 | x1 F0.1 [<1.1] w<1.1 | "
      "f1.1 b0.1 = . [}0.1] w}0.1 | B1.1 [}1.1 {0] w}1.1 w{0 | B0 [}0 {1] w}0 w{1 | B1 [}1] w}1 "
      "|" },
  };
  (void)state;

  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    arena a = { 0 };
    schedule s = schedule_for(cases[i].shape, cases[i].rank, &a);
    assert_string_equal(steps_text(&s), cases[i].steps);
    arena_release(&a);
  }
}

/* ---- all ranks side by side ---- */

enum { MAX_RANKS = 8, MAX_STAGES = 32, MAX_MICROBATCHES = 32 };

/* A message is what crosses from one stage of the model to the next, or its gradient. */
typedef struct message {
  bool posted[2];   /* by half: sent, received */
  uint32_t rank[2]; /* by half: who */
} message;

typedef struct world {
  shape shape;
  schedule schedules[MAX_RANKS];
  uint32_t next[MAX_RANKS];                          /* step */
  message messages[2][MAX_STAGES][MAX_MICROBATCHES]; /* gradient?, lower stage */
  bool ready[2][MAX_STAGES][MAX_MICROBATCHES];       /* gradient?, stage: input waited for */
  bool ran[2][MAX_STAGES][MAX_MICROBATCHES];
} world;

static uint32_t stage_of(const world *w, uint32_t rank, uint32_t chunk)
{
  return chunk * (uint32_t)w->shape.stages + rank;
}

static uint32_t stage_count(const world *w)
{
  return (uint32_t)(w->shape.stages * w->shape.virtual_stages);
}

/* The message of an exchange step of this rank. */
static message *message_of(world *w, uint32_t rank, const schedule_step *t)
{
  bool gradient = t->kind == STEP_SEND_BACKWARD || t->kind == STEP_RECV_BACKWARD;
  bool below = t->kind == STEP_RECV_FORWARD || t->kind == STEP_SEND_BACKWARD;
  uint32_t stage = stage_of(w, rank, t->chunk);

  assert_true(stage > 0 || !below);
  return &w->messages[gradient][below ? stage - 1 : stage][t->microbatch];
}

static bool is_receive(const schedule_step *t)
{
  return t->kind == STEP_RECV_FORWARD || t->kind == STEP_RECV_BACKWARD;
}

static void post_message(world *w, uint32_t rank, const schedule_step *t)
{
  message *m = message_of(w, rank, t);
  bool half = is_receive(t);

  assert_false(m->posted[half]);
  m->posted[half] = true;
  m->rank[half] = rank;
  if (m->posted[!half]) assert_int_equal(t->peer, m->rank[!half]);
  if (!half)
    assert_true(w->ran[t->kind == STEP_SEND_BACKWARD][stage_of(w, rank, t->chunk)][t->microbatch]);
}

static void run(world *w, uint32_t rank, const schedule_step *t)
{
  bool back = t->kind == STEP_BACKWARD;
  uint32_t stage = stage_of(w, rank, t->chunk), source = back ? stage_count(w) - 1 : 0;

  assert_true(stage == source || w->ready[back][stage][t->microbatch]);
  assert_false(w->ran[back][stage][t->microbatch]);
  assert_true(!back || w->ran[0][stage][t->microbatch]);
  w->ran[back][stage][t->microbatch] = true;
}

/* False: the rank must wait for another. */
static bool try_step(world *w, uint32_t rank)
{
  const schedule_step *t = &w->schedules[rank].steps[w->next[rank]], *target;
  message *m;

  switch ((step_kind)t->kind) {
  case STEP_FORWARD:
  case STEP_BACKWARD: run(w, rank, t); break;
  case STEP_SEND_FORWARD:
  case STEP_RECV_FORWARD:
  case STEP_SEND_BACKWARD:
  case STEP_RECV_BACKWARD: post_message(w, rank, t); break;
  case STEP_WAIT:
    target = &w->schedules[rank].steps[t->target];
    m = message_of(w, rank, target);
    if (!m->posted[0] || !m->posted[1]) return false;
    if (is_receive(target))
      w->ready[target->kind == STEP_RECV_BACKWARD][stage_of(w, rank, target->chunk)]
              [target->microbatch] = true;
    break;
  case STEP_SYNCHRONIZE:
  case STEP_LAYERS:
  case STEP_FINISH: break;
  case STEP_RELEASE_OUTPUT:
    assert_true(w->messages[0][stage_of(w, rank, t->chunk)][t->microbatch].posted[1]);
    break;
  }
  w->next[rank]++;
  return true;
}

static void run_all(world *w)
{
  bool moved = true;

  while (moved) {
    moved = false;
    for (uint32_t rank = 0; rank < w->shape.stages; rank++)
      while (w->next[rank] < w->schedules[rank].count && try_step(w, rank))
        moved = true;
  }
}

static void check_world(shape s)
{
  static world w;
  arena a = { 0 };

  memset(&w, 0, sizeof w);
  w.shape = s;
  for (uint32_t rank = 0; rank < s.stages; rank++)
    w.schedules[rank] = schedule_for(s, rank, &a);
  run_all(&w);
  for (uint32_t rank = 0; rank < s.stages; rank++)
    assert_int_equal(w.next[rank], w.schedules[rank].count);
  for (uint32_t stage = 0; stage < stage_count(&w); stage++)
    for (uint32_t m = 0; m < s.microbatches; m++)
      for (uint32_t back = 0; back <= 1; back++) {
        assert_true(w.ran[back][stage][m]);
        if (stage + 1 < stage_count(&w)) {
          assert_true(w.messages[back][stage][m].posted[0]);
          assert_true(w.messages[back][stage][m].posted[1]);
        }
      }
  arena_release(&a);
}

static void test_all_ranks_meet(void **state)
{
  (void)state;
  for (int64_t p = 2; p <= MAX_RANKS; p++)
    for (int64_t m = 1; m <= 12; m++)
      check_world((shape){ p, 1, p, m, 0, 0, 0 });

  for (int64_t p = 2; p <= 5; p++)
    for (int64_t v = 2; v <= 4; v++)
      for (int64_t group = p; group <= p + 3; group++)
        for (int64_t m = group; m <= 14; m++) {
          if (m % group != 0 && m % group < p) continue;
          for (int overlap = 0; overlap <= 2; overlap++)
            for (int pairs = 0; pairs <= 1; pairs++)
              check_world((shape){ p, v, group, m, overlap > 0, overlap > 1, pairs != 0 });
        }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_order_of_runs),
    cmocka_unit_test(test_in_flight),
    cmocka_unit_test(test_exchanges),
    cmocka_unit_test(test_all_ranks_meet),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
