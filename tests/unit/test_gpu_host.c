/* The host driver does what cuda/device/device.h promises, and its own functions work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/gpu_checks.h"

static void test_promises(void **state)
{
  (void)state;
  host_set_devices(2, (int64_t)1 << 36);
  for (uint32_t i = 0; i < gpu_check_count; i++) {
    const char *wrong = gpu_checks[i].run(&gpu_driver_host);
    if (wrong != NULL) fail_msg("%s: %s", gpu_checks[i].name, wrong);
  }
}

/* Unwritten memory is recognisable. */
static void test_unwritten(void **state)
{
  (void)state;
  const gpu_driver *g = &gpu_driver_host;
  gpu_space space;
  void *memory;
  assert_null(g->space_new(0, 8 << 20, &space));
  assert_null(g->space_map(&space, 2 << 20, 2 << 20));
  unsigned char *bytes = (unsigned char *)space.base + (2 << 20);
  assert_int_equal(bytes[0], 0xA5);
  bytes[0] = 1;
  assert_null(g->space_unmap(&space, 2 << 20, 2 << 20));
  assert_null(g->space_map(&space, 2 << 20, 2 << 20));
  assert_int_equal(bytes[0], 0xA5);
  g->space_delete(&space);
  assert_null(g->allocate(&memory, 100));
  assert_int_equal(((unsigned char *)memory)[99], 0xA5);
  assert_null(g->release(memory));
}

/* All kinds of allocation share a device's capacity. */
static void test_full_device(void **state)
{
  (void)state;
  const gpu_driver *g = &gpu_driver_host;
  gpu_space space;
  void *half, *more;
  host_set_devices(1, 8 << 20);
  assert_null(g->allocate(&half, 4 << 20));
  assert_null(g->space_new(0, 1 << 30, &space));
  assert_null(g->space_map(&space, 0, 2 << 20));
  assert_string_equal(g->space_map(&space, 2 << 20, 4 << 20),
                      "mapped memory of 4194304 bytes: out of memory");
  assert_string_equal(g->allocate(&more, (2 << 20) + 1),
                      "device memory of 2097153 bytes: out of memory");
  assert_null(g->release(half));
  assert_null(g->space_map(&space, 2 << 20, 4 << 20));
  g->space_delete(&space);
  assert_null(g->allocate(&more, 8 << 20));
  assert_null(g->release(more));
}

/* The context of what a stream runs is copied. */
static void add_up(void *context)
{
  int64_t *const *operands = context;
  **operands += 1;
}

static void test_run(void **state)
{
  (void)state;
  const gpu_driver *g = &gpu_driver_host;
  gpu_stream *s;
  int64_t sum = 0;
  assert_null(g->stream_new(&s));
  for (int i = 0; i < 10; i++) {
    int64_t *at = &sum;
    host_stream_run(s, add_up, &at, sizeof at);
    at = NULL;
  }
  assert_null(g->stream_synchronize(s));
  assert_int_equal(sum, 10);
  g->stream_delete(s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_promises),
    cmocka_unit_test(test_unwritten),
    cmocka_unit_test(test_run),
    cmocka_unit_test(test_full_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
