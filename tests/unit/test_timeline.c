/* The timeline of a step as it ran, read back by the reader of profilers' traces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/units.h"
#include "sim/plan/text.h"
#include "traces/import/run_summary.h"
#include "traces/measured_timeline.h"

enum { OPS = 64, RANK = 3, RANKS = 4, NEVER_RAN = 2 };

static const char text[] =
    "offsim-plan 1\n"
    "ranks 1\n"
    "rank 0\n"
    "resident compute %0 weight bf16[512,512] 524288 bytes weight\n"
    "forward m1 c0\n"
    "  alloc compute %1 x bf16[1024,512] 1048576 bytes saved\n"
    "  kernel compute copy bf16 elements=524288 2097152 bytes %0 -> %1 @ layer 2 mlp\n"
    "  record compute e0\n"
    "  wait d2h e0\n"
    "  host_alloc host %2 x bf16[1024,512] 1048576 bytes pinned_host\n"
    "  d2h d2h %1 -> %2 @ layer 2 mlp\n"
    "  free compute %1 after d2h\n"
    "backward m1 c0\n"
    "  alloc h2d %3 x bf16[1024,512] 1048576 bytes reload\n"
    "  h2d h2d %2 -> %3 @ layer 2 mlp\n"
    "  record h2d e1\n"
    "  wait compute e1\n"
    "  host_free host %2\n"
    "  kernel compute copy bf16 elements=262144 1048576 bytes %3 -> %0 @ layer 2 mlp\n"
    "  kernel compute copy bf16 elements=262144 1048576 bytes %3 -> %0\n"
    "  free h2d %3\n"
    "optimizer\n"
    "  kernel compute copy bf16 elements=262144 1048576 bytes %0 -> %0\n";

typedef struct fixture {
  arena memory;
  plan plan;
  int64_t begin_ps[OPS], end_ps[OPS], live[OPS];
  char *written;
  size_t length;
  real_run read;
} fixture;

/* Op i runs from i to i + 1/2 us, but for the kernel of backward that has no time. */
static void give_times(fixture *f)
{
  const rank_plan *r = &f->plan.ranks[0];
  uint32_t kernels = 0;
  assert_true(r->ops.count < OPS);
  for (uint32_t i = 0; i < r->ops.count; i++) {
    op_kind kind = (op_kind)r->ops.items[i].kind;
    bool ran = op_works(kind) && !(kind == OP_KERNEL && kernels++ == NEVER_RAN);
    f->begin_ps[i] = ran ? i * PS_PER_US : -1;
    f->end_ps[i] = ran ? i * PS_PER_US + PS_PER_US / 2 : -1;
    f->live[i] = 1000 + i;
  }
}

static int set_up(void **state)
{
  fixture *f = *state = calloc(1, sizeof *f);
  diag d = { 0 };
  timeline_file t;
  assert_true(plan_parse(&f->plan, "text", text, sizeof text - 1, &f->memory, &d));
  give_times(f);
  FILE *out = open_memstream(&f->written, &f->length);
  timeline_begin(&t, out, &f->plan, RANK, RANKS, &f->memory);
  timeline_put_measured(&t, &(measured_rank){ .number = RANK,
                                              .ops = &f->plan.ranks[0],
                                              .begin_ps = f->begin_ps,
                                              .end_ps = f->end_ps,
                                              .live_bytes = f->live,
                                              .reserved_bytes = f->live,
                                              .pinned_bytes = f->live });
  timeline_end(&t);
  assert_int_equal(fclose(out), 0);
  real_run_init(&f->read, &f->memory);
  assert_true(
      real_run_read_bytes(&f->read, "timeline", (const uint8_t *)f->written, f->length, &d));
  assert_true(real_run_finish(&f->read, &d));
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  real_run_release(&f->read);
  plan_release(&f->plan);
  arena_release(&f->memory);
  free(f->written);
  free(f);
  return 0;
}

static void work_has_its_times_and_bytes(void **state)
{
  const fixture *f = *state;
  const rank_plan *r = &f->plan.ranks[0];
  uint32_t seen = 0;
  for (uint32_t i = 0; i < f->read.spans.count; i++) {
    const real_span *s = &f->read.spans.items[i];
    if (!real_span_is_work((real_span_kind)s->kind)) continue;
    uint32_t op = s->correlation - 1;
    assert_int_equal(s->begin_ns * PS_PER_NS, f->begin_ps[op]);
    assert_int_equal(s->end_ns * PS_PER_NS, f->end_ps[op]);
    if (real_span_is_copy((real_span_kind)s->kind)) assert_int_equal(s->bytes, MIB);
    seen++;
  }
  uint32_t ran = 0;
  for (uint32_t i = 0; i < r->ops.count; i++)
    ran += f->begin_ps[i] >= 0;
  assert_int_equal(seen, ran);
  assert_int_equal(f->read.rank, RANK);
  assert_int_equal(f->read.world_size, RANKS);
}

static void passes_are_those_of_the_plan(void **state)
{
  fixture *f = *state;
  run_summary s = run_summary_of(&f->read, &f->memory);
  assert_int_equal(f->read.passes.count, 3);
  assert_int_equal(f->read.passes.items[0].kind, REAL_FORWARD);
  assert_int_equal(f->read.passes.items[1].kind, REAL_BACKWARD);
  assert_int_equal(f->read.passes.items[2].kind, REAL_FINISH);
  assert_int_equal(s.d2h.count, 1);
  assert_int_equal(s.h2d.count, 1);
  assert_int_equal(s.streams[s.offload_stream].role, ROLE_D2H);
  assert_int_equal(s.streams[s.reload_stream].role, ROLE_H2D);
}

static uint32_t times_found(const char *in, const char *what)
{
  uint32_t count = 0;
  for (const char *at = in; (at = strstr(at, what)) != NULL; at++)
    count++;
  return count;
}

/* Three kernels of compute have times: as many points of each curve; no call of the host is known. */
static void phases_and_curves(void **state)
{
  const fixture *f = *state;
  assert_int_equal(times_found(f->written, "\"live bytes\""), 3);
  assert_int_equal(times_found(f->written, "\"pinned bytes\""), 3);
  assert_int_equal(times_found(f->written, "\"forward m1 c0\""), 1);
  assert_int_equal(times_found(f->written, "\"backward m1 c0\""), 1);
  assert_int_equal(times_found(f->written, "cuda_runtime"), 0);
  assert_int_equal(times_found(f->written, "\"rank 3\""), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(work_has_its_times_and_bytes, set_up, tear_down),
    cmocka_unit_test_setup_teardown(passes_are_those_of_the_plan, set_up, tear_down),
    cmocka_unit_test_setup_teardown(phases_and_curves, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
