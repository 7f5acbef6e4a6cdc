/* Samples of copies at many moments, on GPUs that only say they copy. */
#include "cuda/calibrate/links.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "sim/base/array.h"
#include "sim/base/units.h"

enum { GPUS = 3, MANY_GPUS = 5, RATE = 50000, LATENCY_NS = 3000 };

static int64_t value_of(const calibration *c, const char *section, const char *key)
{
  const calibrated_value *v = calibration_find(c, section, key);
  assert_non_null(v);
  return v->value;
}

/* At `rate_bytes_per_us` for each GPU and direction. */
static void add_moment(link_samples *l, int64_t rate_bytes_per_us)
{
  for (uint32_t gpus = 1; gpus <= GPUS; gpus++)
    for (int i = 0; i < COPY_DIRECTIONS; i++)
      *ARRAY_PUSH(&l->rates_bytes_per_us[gpus - 1][i]) = rate_bytes_per_us * gpus + i;
  for (int i = 0; i < COPY_BOTH; i++)
    *ARRAY_PUSH(&l->small_ps[i]) =
        SMALL_COPY_BYTES * PS_PER_US / (RATE + i) + LATENCY_NS * PS_PER_NS;
}

/* Others use the host at two moments of five. */
static void test_the_middle_moment_counts(void **state)
{
  (void)state;
  link_samples l = { .copies = { .gpus = GPUS } };
  calibration c = { .count = 0 };
  const int64_t moments[] = { RATE, RATE / 3, RATE, RATE / 2, RATE };
  for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
    add_moment(&l, moments[i]);
    link_samples_put(&l, &c);
  }
  assert_int_equal(value_of(&c, "link", "d2h_bytes_per_us"), RATE);
  assert_int_equal(value_of(&c, "link", "h2d_bytes_per_us"), RATE + 1);
  assert_int_equal(value_of(&c, "link", "duplex_bytes_per_us"), RATE + 2);
  assert_in_range(value_of(&c, "link", "d2h_latency_ns"), LATENCY_NS - 1, LATENCY_NS);
  assert_in_range(value_of(&c, "link", "h2d_latency_ns"), LATENCY_NS - 1, LATENCY_NS);
  assert_int_equal(value_of(&c, "host", "gpus"), GPUS);
  assert_int_equal(value_of(&c, "host", "gpus_per_group"), GPUS);
  assert_int_equal(value_of(&c, "host", "d2h_bytes_per_us"), 3 * RATE);
  assert_int_equal(value_of(&c, "host", "duplex_bytes_per_us"), 3 * RATE + 2);
  assert_int_equal(calibration_find(&c, "host", "d2h_bytes_per_us")->least, 3 * (RATE / 3));
  assert_int_equal(calibration_find(&c, "host", "d2h_bytes_per_us")->most, 3 * RATE);
  assert_int_equal(c.at_once_count, 1);
  assert_int_equal(c.at_once[0].gpus, 2);
  assert_int_equal(c.at_once[0].h2d_bytes_per_us, 2 * RATE + 1);
  link_samples_close(&l);
}

/* ---- on such GPUs ---------------------------------------------------------------------------- */

static char memory[1];
static atomic_int held;

static const char *take(void **to, int64_t bytes)
{
  (void)bytes;
  atomic_fetch_add(&held, 1);
  *to = memory;
  return NULL;
}

static const char *give(void *from)
{
  assert_ptr_equal(from, memory);
  atomic_fetch_sub(&held, 1);
  return NULL;
}

static const char *use(uint32_t device)
{
  (void)device;
  return NULL;
}

static const char *stream_new(gpu_stream **s)
{
  return take((void **)s, 0);
}

static void stream_delete(gpu_stream *s)
{
  give(s);
}

static const char *stream_synchronize(gpu_stream *s)
{
  (void)s;
  return NULL;
}

static const char *copy(void *to, const void *from, int64_t bytes, gpu_copy_kind kind,
                        gpu_stream *stream)
{
  (void)to;
  (void)from;
  (void)bytes;
  (void)kind;
  (void)stream;
  return NULL;
}

static const gpu_driver idle_driver = { .use = use,
                                        .allocate = take,
                                        .release = give,
                                        .allocate_pinned = take,
                                        .release_pinned = give,
                                        .stream_new = stream_new,
                                        .stream_delete = stream_delete,
                                        .stream_synchronize = stream_synchronize,
                                        .copy = copy };

/* All at first; then one GPU, all of them, and one number between in turn. */
static void test_moments(void **state)
{
  static const uint32_t expected[][MANY_GPUS] = {
    { 1, 1, 1, 1, 1 }, { 2, 1, 2, 1, 2 }, { 3, 1, 2, 2, 3 }, { 4, 2, 2, 2, 4 }
  };
  (void)state;
  link_samples l = { .copies = { .gpus = 0 } };
  calibration c = { .count = 0 };
  diag d = { 0 };
  assert_true(link_samples_open(&l, &idle_driver, MANY_GPUS, &d));
  for (size_t moment = 0; moment < sizeof expected / sizeof *expected; moment++) {
    assert_true(link_samples_take(&l, &c, &d));
    for (uint32_t gpus = 1; gpus <= MANY_GPUS; gpus++)
      for (int i = 0; i < COPY_DIRECTIONS; i++)
        assert_int_equal(l.rates_bytes_per_us[gpus - 1][i].count, expected[moment][gpus - 1]);
    assert_int_equal(l.small_ps[COPY_IN].count, moment + 1);
    assert_int_equal(c.at_once_count, MANY_GPUS - 2);
    assert_true(value_of(&c, "host", "h2d_bytes_per_us") > 0);
  }
  link_samples_close(&l);
  assert_int_equal(atomic_load(&held), 0);
}

static void test_few_gpus(void **state)
{
  (void)state;
  for (uint32_t gpus = 1; gpus <= 2; gpus++) {
    link_samples l = { .copies = { .gpus = 0 } };
    calibration c = { .count = 0 };
    diag d = { 0 };
    assert_true(link_samples_open(&l, &idle_driver, gpus, &d));
    for (int moment = 0; moment < 3; moment++)
      assert_true(link_samples_take(&l, &c, &d));
    assert_int_equal(l.rates_bytes_per_us[gpus - 1][COPY_BOTH].count, 3);
    assert_int_equal(c.at_once_count, 0);
    assert_int_equal(value_of(&c, "host", "gpus"), gpus);
    link_samples_close(&l);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_middle_moment_counts),
    cmocka_unit_test(test_moments),
    cmocka_unit_test(test_few_gpus),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
