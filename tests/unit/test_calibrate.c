/* Calibrating a simulated machine finds that machine: the simulator trains in place of GPUs. */
#include "sim/calibrate/calibrate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/machine/call_time.h"

enum { GPUS = 2, PATH_BYTES = 512 };

static machine simulated;
static uint32_t trainings, link_moments;

/* Every measured step has the times of one simulated iteration. */
static bool train(const calibration_run *run, arena *a, diag *d)
{
  rank_place places[GPUS] = { { .multiplicity = 1 }, { .gpu = 1, .multiplicity = 1 } };
  measured_ops times[GPUS];
  timeline t;
  const plan *p = run->steady;
  assert_true(run->ranks <= GPUS && p->rank_count <= run->ranks);
  if (p->rank_count == 1) places[0].multiplicity = run->ranks;
  assert_true(simulate(&t, p, &simulated, places, d));
  for (uint32_t r = 0; r < run->ranks; r++) {
    uint32_t of = r < p->rank_count ? r : 0, count = p->ranks[of].ops.count;
    int64_t *begin_ps = ARENA_ARRAY(a, int64_t, count), *end_ps = ARENA_ARRAY(a, int64_t, count);
    for (uint32_t i = 0; i < count; i++) {
      begin_ps[i] = op_start_ps(&t.ranks[of], i);
      end_ps[i] = op_end_ps(&t.ranks[of], i);
    }
    times[r] = (measured_ops){ begin_ps, end_ps };
  }
  uint32_t every = run->times_every > 0 ? run->times_every : 1;
  for (uint32_t step = run->times_from; step < run->steps; step += every)
    run->step_done(run, &(measured_step){ step, p, run->ranks, times, t.step_ps * (step + 1) });
  timeline_release(&t);
  trainings++;
  return true;
}

static bool sample_links(void *context, diag *d)
{
  (void)context;
  (void)d;
  link_moments++;
  return true;
}

static void show(void *context, const char *what, uint32_t at, uint32_t of)
{
  (void)context;
  assert_true(what[0] != '\0' && at < of);
}

typedef struct fixture {
  arena memory;
  diag d;
  calibration found;
  calibration_bench bench;
  sampled_calls calls;
} fixture;

static void open_fixture(fixture *f)
{
  *f = (fixture){ .d = { .quiet = true } };
  f->bench = (calibration_bench){ &f->found, train, sample_links, show, NULL };
  const machine *m = machine_load(&f->memory, "H200-SXM", &f->d);
  assert_non_null(m);
  simulated = *m;
  simulated.gpu.power_limit_w = 0;
  trainings = link_moments = 0;
}

static void close_fixture(fixture *f)
{
  assert_string_equal(f->d.message, "");
  assert_int_equal(trainings, link_moments);
  ARRAY_FREE(&f->calls);
  arena_release(&f->memory);
}

/* A call takes what it took, and what the GPU needed to start the next one. */
static void test_kernels(void **state)
{
  fixture f;
  (void)state;
  open_fixture(&f);
  assert_true(calibrate_kernels(&f.bench, &simulated, &f.calls, &f.memory, &f.d));
  assert_true(trainings > 5 && f.calls.count > 100);
  for (uint32_t i = 0; i < f.calls.count; i++) {
    int64_t alone_ps = call_time_of(&simulated, &f.calls.items[i].call).ps;
    assert_in_range(f.calls.items[i].ps, alone_ps, alone_ps + 5 * PS_PER_US);
  }
  assert_null(calibration_find(&f.found, "gpu", "power_slowdown_permille"));
  close_fixture(&f);
}

/* What is written reads back as a machine on which the calls take what they took; calls that print
 * alike share the time of one. */
static void test_machine_file(void **state)
{
  char path[PATH_BYTES];
  const char *folder = getenv("TMPDIR");
  fixture f;
  (void)state;
  open_fixture(&f);
  snprintf(path, sizeof path, "%s/offsim-machine-XXXXXX", folder != NULL ? folder : "/tmp");
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  assert_true(calibrate_kernels(&f.bench, &simulated, &f.calls, &f.memory, &f.d));
  calibration_put(&f.found, "link", "d2h_bytes_per_us", 12345);
  assert_true(calibration_write(path, "own", &f.found, &f.calls, &simulated, &f.d));
  const machine *own = machine_load(&f.memory, path, &f.d);
  assert_string_equal(f.d.message, "");
  assert_string_equal(own->name, "own");
  assert_int_equal(own->link.d2h_bytes_per_us, 12345);
  assert_int_equal(own->link.h2d_bytes_per_us, simulated.link.h2d_bytes_per_us);
  assert_int_equal(own->issue.framework_ns, 0);
  assert_int_equal(own->measured->count, f.calls.count);
  for (uint32_t i = 0; i < f.calls.count; i++) {
    int64_t ps = f.calls.items[i].ps, read_ps = call_time_of(own, &f.calls.items[i].call).ps;
    assert_in_range(read_ps, ps - ps / 100 - PS_PER_NS, ps + ps / 100 + PS_PER_NS);
  }
  remove(path);
  close_fixture(&f);
}

static void put_links(calibration *c, int64_t gpus)
{
  calibration_put(c, "link", "d2h_bytes_per_us", simulated.link.d2h_bytes_per_us);
  calibration_put(c, "link", "h2d_bytes_per_us", simulated.link.h2d_bytes_per_us);
  calibration_put(c, "link", "d2h_latency_ns", simulated.link.d2h_latency_ns);
  calibration_put(c, "link", "h2d_latency_ns", simulated.link.h2d_latency_ns);
  calibration_put(c, "host", "gpus", gpus);
}

static void assert_near(const calibration *c, const char *key, int64_t expected)
{
  const calibrated_value *v = calibration_find(c, "nvlink", key);
  assert_non_null(v);
  assert_in_range(v->value, expected - expected / 20, expected + expected / 20);
}

static void test_exchanges(void **state)
{
  fixture f;
  (void)state;
  open_fixture(&f);
  put_links(&f.found, GPUS);
  assert_true(calibrate_exchanges(&f.bench, &simulated, &f.calls, &f.memory, &f.d));
  assert_true(f.calls.count > 0);
  assert_near(&f.found, "bus_bytes_per_us", simulated.nvlink.bus_bytes_per_us);
  assert_near(&f.found, "all_to_all_bytes_per_us", simulated.nvlink.all_to_all_bytes_per_us);
  assert_near(&f.found, "one_way_bytes_per_us", simulated.nvlink.one_way_bytes_per_us);
  assert_non_null(calibration_find(&f.found, "link", "waiting_slowdown_d2h_permille"));
  close_fixture(&f);
}

static void test_one_gpu_exchanges_nothing(void **state)
{
  fixture f;
  (void)state;
  open_fixture(&f);
  put_links(&f.found, 1);
  assert_true(calibrate_exchanges(&f.bench, &simulated, &f.calls, &f.memory, &f.d));
  assert_int_equal(trainings, 0);
  close_fixture(&f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_kernels),
    cmocka_unit_test(test_machine_file),
    cmocka_unit_test(test_exchanges),
    cmocka_unit_test(test_one_gpu_exchanges_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
