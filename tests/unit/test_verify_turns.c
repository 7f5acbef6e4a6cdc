/*
 * What a plan without most of its turns shows (cut.h) beside the whole plan: for compiled plans, and for
 * some in which edges were taken away at random, in one turn, in all, or from one on. A plan with errors is
 * never called safe.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/plan/repeats.h"
#include "sim/plan/text.h"
#include "sim/verify/verify.h"
#include "tests/unit/small_runs.h"

enum { MUTANTS = 30 };

typedef struct tally {
  uint32_t unsafe, shown; /* plans with errors, plans that are safe by their turns */
} tally;

static uint32_t draw(uint64_t *state, uint32_t below)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 33) % below);
}

static void compare(tally *t, const plan *p, const plan *before)
{
  arena a = { 0 };
  verification v;
  bool shown = plan_is_safe_by_turns(p, before, 1);
  verify_plan(&v, p, before, 1, &a);
  assert_true(v.safe || !shown);
  t->unsafe += !v.safe;
  t->shown += shown;
  verification_release(&v);
  arena_release(&a);
}

/* ---- mutants -------------------------------------------------------------------------------- */

/* The wait says nothing: its stream waits for the rank's first event. */
static bool forget_wait(rank_plan *r, uint32_t at)
{
  plan_op *o = &r->ops.items[at];
  if (o->kind != OP_WAIT && o->kind != OP_HOST_WAIT) return false;
  o->arg = 0;
  return true;
}

static bool forget_stream(rank_plan *r, uint32_t at)
{
  plan_op *o = &r->ops.items[at];
  if (o->kind != OP_FREE || o->operands == 0) return false;
  o->operands &= o->operands - 1;
  return true;
}

static bool change_stream(rank_plan *r, uint32_t at)
{
  plan_op *o = &r->ops.items[at];
  if (!op_is_copy((op_kind)o->kind) && o->kind != OP_KERNEL) return false;
  o->stream = o->stream == STREAM_COMPUTE ? STREAM_H2D : STREAM_COMPUTE;
  return true;
}

/* The event comes before the op that it is for. */
static bool record_early(rank_plan *r, uint32_t at)
{
  plan_op *o = &r->ops.items[at];
  if (at == 0 || o->kind != OP_RECORD || !op_works((op_kind)o[-1].kind)) return false;
  plan_op before = o[-1];
  o[-1] = *o;
  *o = before;
  return true;
}

typedef bool mutation(rank_plan *r, uint32_t at);
static mutation *const mutations[] = { forget_wait, forget_stream, change_stream, record_early };
enum { MUTATIONS = sizeof mutations / sizeof *mutations };

/* In the turns from `turn` on, or in that one alone. */
static void mutate(rank_plan *r, uint64_t *random)
{
  const plan_repeat repeat = r->repeat;
  mutation *change = mutations[draw(random, MUTATIONS)];
  uint32_t turn = draw(random, 3) == 0 ? draw(random, repeat.turns) : 0;
  uint32_t last = draw(random, 3) == 0 ? turn + 1 : repeat.turns;
  uint32_t place = draw(random, repeat.ops);
  bool done = false;
  for (uint32_t i = 0; i < repeat.ops && !done; i++, place = (place + 1) % repeat.ops)
    for (uint32_t k = turn; k < last; k++)
      done |= change(r, repeat.first + k * repeat.ops + place);
}

static void copy_ops(plan *p, op_array *saved, bool back)
{
  for (uint32_t r = 0; r < p->rank_count; r++) {
    op_array *ops = &p->ranks[r].ops;
    if (back)
      memcpy(ops->items, saved[r].items, ops->count * sizeof *ops->items);
    else
      ARRAY_COPY(&saved[r], ops);
  }
}

static void compare_mutants(tally *t, plan *p, const plan *before, uint64_t *random)
{
  op_array saved[8] = { 0 };
  assert_true(p->rank_count <= sizeof saved / sizeof *saved);
  copy_ops(p, saved, false);
  for (int i = 0; i < MUTANTS; i++) {
    mutate(&p->ranks[draw(random, p->rank_count)], random);
    plan_find_repeats(p, 1);
    compare(t, p, before);
    copy_ops(p, saved, true);
    plan_find_repeats(p, 1);
  }
  for (uint32_t r = 0; r < p->rank_count; r++)
    ARRAY_FREE(&saved[r]);
}

/* Each op after the last turn, changed in each way. What it does to a buffer of the last turn is found though
 * the walk leaves that turn out. */
static void compare_drains(tally *t, plan *p, const plan *before)
{
  for (uint32_t r = 0; r < p->rank_count; r++) {
    rank_plan *rank = &p->ranks[r];
    for (uint32_t i = repeat_end(&rank->repeat) + 1; i < rank->ops.count; i++)
      for (uint32_t m = 0; m < MUTATIONS; m++) {
        plan_op saved[2] = { rank->ops.items[i - 1], rank->ops.items[i] };
        if (mutations[m](rank, i)) compare(t, p, before);
        memcpy(&rank->ops.items[i - 1], saved, sizeof saved);
      }
  }
}

/* ---- a rank that answers ------------------------------------------------------------------------ */

enum { ANSWERED_TURNS = 12, ANSWERED_ALIKE = 8 };

#define BYTES "1048576 bytes"
#define SHAPE " bf16[1024,512] " BYTES " saved\n"

/* The pack stream overwrites what compute has read, and knows that it has because rank 1 answers: its message
 * comes after the one that rank 0 has sent after its kernel. */
static void put_asking_turn(FILE *to, uint32_t i)
{
  fprintf(to,
          "  forward m%u c0\n  kernel compute elementwise bf16 elements=524288 " BYTES
          " %%0 -> %%3\n"
          "  record compute e%u\n  wait next e%u\n  send next msg %u to rank 1 " BYTES " %%1\n"
          "  recv previous msg %u from rank 1 " BYTES " -> %%2\n  record previous e%u\n"
          "  wait pack e%u\n  kernel pack elementwise bf16 elements=524288 " BYTES " -> %%0\n"
          "  record pack e%u\n  wait compute e%u\n",
          i, 3 * i, 3 * i, 2 * i, 2 * i + 1, 3 * i + 1, 3 * i + 1, 3 * i + 2, 3 * i + 2);
}

/* *events: that the rank has recorded. */
static void put_answering_turn(FILE *to, uint32_t i, bool waits, uint32_t *events)
{
  fprintf(to, "  forward m%u c0\n  recv previous msg %u from rank 0 " BYTES " -> %%0\n", i, 2 * i);
  fprintf(to, "  record previous e%u\n", *events);
  if (waits) fprintf(to, "  wait next e%u\n", *events);
  fprintf(to, "  send next msg %u to rank 0 " BYTES " %%1\n", 2 * i + 1);
  if (i >= ANSWERED_ALIKE) fprintf(to, "  record next e%u\n", ++*events);
  ++*events;
}

/* Rank 1's last turns have an op more, so that rank 0 has turns after its gap. */
static char *print_answers(uint32_t waiting_turns)
{
  char *text;
  size_t length;
  uint32_t events = 0;
  FILE *to = open_memstream(&text, &length);
  fputs("offsim-plan 1\nranks 2\n\nrank 0\n  resident compute %0 query" SHAPE
        "  resident compute %1 sent" SHAPE "  resident compute %2 answer" SHAPE
        "  resident compute %3 output" SHAPE "  setup\n",
        to);
  for (uint32_t i = 0; i < ANSWERED_TURNS; i++)
    put_asking_turn(to, i);
  fputs("\nrank 1\n  resident compute %0 sent" SHAPE "  resident compute %1 answer" SHAPE
        "  setup\n",
        to);
  for (uint32_t i = 0; i < ANSWERED_TURNS; i++)
    put_answering_turn(to, i, i < waiting_turns, &events);
  fclose(to);
  return text;
}

/* Whose turn knows less than the one before, though its own ops are the same, is looked at. */
static void test_answers(void **state)
{
  (void)state;
  for (uint32_t waiting = ANSWERED_ALIKE; waiting <= ANSWERED_TURNS; waiting++) {
    arena a = { 0 };
    diag d = { 0 };
    plan p;
    tally t = { 0 };
    char *text = print_answers(waiting);
    assert_true(plan_parse(&p, "answers.plan", text, strlen(text), &a, &d));
    compare(&t, &p, NULL);
    assert_int_equal(t.unsafe, waiting < ANSWERED_TURNS);
    assert_int_equal(t.shown, waiting == ANSWERED_TURNS);
    plan_release(&p);
    arena_release(&a);
    free(text);
  }
}

/* ---- compiled plans ------------------------------------------------------------------------- */

#define PIPELINE(layers, ranks, more)                                                              \
  "model: {num_layers: " layers "}\ntraining: {global_batch_size: 24}\n"                           \
  "parallel: {world_size: " ranks ", pipeline_model_parallel_size: " ranks more "}\n"
#define MODULES(list)                                                                              \
  "offload: {fine_grained_activation_offloading: true, offload_modules: [" list "]}\n"

enum { OFFLOAD_ON_TWO_RANKS = 3 };

static const char *const scenarios[][2] = {
  { SMALL_DENSE, PIPELINE("2", "1", "") "offload: {system: none}\n" },
  { SMALL_DENSE, PIPELINE("2", "1", "") MODULES("core_attn, attn_proj") },
  { SMALL_DENSE, PIPELINE("4", "4", "") "offload: {system: none}\n" },
  [OFFLOAD_ON_TWO_RANKS] = { SMALL_DENSE, PIPELINE("4", "2", "") MODULES("core_attn, attn_proj") },
  { SMALL_DENSE, PIPELINE("8", "4", "") MODULES("attn_norm, core_attn, attn_proj, mlp_norm") },
  { SMALL_DENSE, PIPELINE("4", "2", ", num_layers_per_virtual_pipeline_stage: 1")
                     MODULES("core_attn, attn_proj") },
  { SMALL_MOE, PIPELINE("4", "4", "") MODULES("expert_fc1, moe_act, qkv_linear, core_attn") },
};

typedef struct case_plans {
  compilation first, steady;
  arena memory;
} case_plans;

static void compile_case(case_plans *c, uint32_t scenario)
{
  *c = (case_plans){ .memory = { 0 } };
  const settings *s = small_settings(scenarios[scenario][0], scenarios[scenario][1], &c->memory);
  small_compile(&c->first, s, ITERATION_WARMUP, &c->memory);
  small_compile(&c->steady, s, ITERATION_STEADY, &c->memory);
}

static void release_case(case_plans *c)
{
  compilation_release(&c->first);
  compilation_release(&c->steady);
  arena_release(&c->memory);
}

static void test_compiled(void **state)
{
  (void)state;
  uint64_t random = 1;
  for (uint32_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    case_plans c;
    tally compiled = { 0 }, mutants = { 0 };
    compile_case(&c, i);
    compare(&compiled, &c.first.plan, NULL);
    compare(&compiled, &c.steady.plan, &c.first.plan);
    assert_int_equal(compiled.unsafe, 0);
    assert_int_equal(compiled.shown, 2);
    compare_mutants(&mutants, &c.first.plan, NULL, &random);
    compare_mutants(&mutants, &c.steady.plan, &c.first.plan, &random);
    assert_true(mutants.unsafe > 10 && mutants.shown > 10);
    release_case(&c);
  }
}

static void test_drain(void **state)
{
  (void)state;
  case_plans c;
  tally t = { 0 };
  compile_case(&c, OFFLOAD_ON_TWO_RANKS);
  compare_drains(&t, &c.steady.plan, &c.first.plan);
  assert_true(t.unsafe > 100 && t.shown > 10);
  release_case(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(test_compiled), cmocka_unit_test(test_drain),
                                      cmocka_unit_test(test_answers) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
