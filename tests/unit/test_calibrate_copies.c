/* Timing copies of several GPUs at once, on the CPU in their place: one of them is slow, or
 * fails. */
#include "cuda/calibrate/copies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "sim/base/units.h"

enum { GPUS = 3, SLOW_GPU = 1, COPIES = 4, PATIENCE_MS = 20000, NEVER = INT32_MAX };

static _Thread_local uint32_t gpu_in_use;
static atomic_uint copies_of[GPUS];
static uint32_t fails_at; /* copy of the last GPU */

static const char *use(uint32_t device)
{
  gpu_in_use = device;
  return gpu_driver_host.use(0);
}

static bool others_go_on(void)
{
  bool go_on = true;
  for (int i = 0; i < GPUS; i++)
    go_on &= i == SLOW_GPU || atomic_load(&copies_of[i]) > COPIES + 1;
  return go_on;
}

/* Until all others have made more copies than they have to: this one is the last. */
static void wait_for_company(void)
{
  for (int ms = 0; ms < PATIENCE_MS && !others_go_on(); ms++)
    nanosleep(&(struct timespec){ .tv_nsec = PS_PER_MS / PS_PER_NS }, NULL);
}

static const char *copy(void *to, const void *from, int64_t bytes, gpu_copy_kind kind,
                        gpu_stream *stream)
{
  uint32_t number = atomic_fetch_add(&copies_of[gpu_in_use], 1);
  if (gpu_in_use == GPUS - 1 && number == fails_at) return "the link is gone";
  if (gpu_in_use == SLOW_GPU && number == COPIES && fails_at == NEVER) wait_for_company();
  return gpu_driver_host.copy(to, from, bytes, kind, stream);
}

static bool time_on(uint32_t gpus, copy_direction direction, int64_t *ps, diag *d)
{
  gpu_driver driver = gpu_driver_host;
  driver.use = use;
  driver.copy = copy;
  copy_bench b = { .driver = &driver, .gpus = gpus, .blocks = 2, .bytes = 64 * KIB };
  copy_run run = { gpus, direction, b.bytes, COPIES };
  for (int i = 0; i < GPUS; i++)
    atomic_store(&copies_of[i], 0);
  bool ok = copy_bench_open(&b, d) && time_copies(&b, &run, ps, d);
  copy_bench_close(&b);
  return ok;
}

/* A finished thread continues until all have finished. */
static void test_all_copy_until_all_are_done(void **state)
{
  (void)state;
  diag d = { 0 };
  int64_t ps = 0;
  fails_at = NEVER;
  assert_true(time_on(GPUS, COPY_OUT, &ps, &d));
  assert_true(ps > 0);
  assert_true(others_go_on());
  assert_int_equal(atomic_load(&copies_of[SLOW_GPU]), COPIES + 1); /* the first one is not timed */
}

static void test_both_directions_copy_twice(void **state)
{
  (void)state;
  diag d = { 0 };
  int64_t ps = 0;
  fails_at = NEVER;
  assert_true(time_on(1, COPY_BOTH, &ps, &d));
  assert_true(ps > 0);
  assert_int_equal(atomic_load(&copies_of[0]), 2 * (COPIES + 1));
}

static void test_failure_holds_nobody_up(void **state)
{
  (void)state;
  for (fails_at = 0; fails_at <= COPIES; fails_at++) {
    diag d = { 0 };
    int64_t ps = 0;
    assert_false(time_on(GPUS, COPY_IN, &ps, &d));
    assert_string_equal(d.message, "offsim: error: copies between GPU and host: the link is gone");
    assert_int_equal(d.exit_status, 3);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all_copy_until_all_are_done),
    cmocka_unit_test(test_both_directions_copy_twice),
    cmocka_unit_test(test_failure_holds_nobody_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
