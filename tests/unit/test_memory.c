/* Requests that the system cannot meet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>

#include "sim/base/memory.h"

static void available_memory_is_read(void **state)
{
  (void)state;
  assert_int_equal(
      memory_available("MemTotal:  100 kB\nMemFree: 7 kB\nMemAvailable:    9 kB\nBuffers: 1 kB\n"),
      9 * 1024);
}

static void a_system_that_does_not_say_refuses_nothing(void **state)
{
  (void)state;
  assert_true(memory_available("MemTotal:  100 kB\nMemFree: 7 kB\n") == SIZE_MAX);
  assert_true(memory_available("MemAvailable: ? kB\n") == SIZE_MAX);
  assert_true(memory_available("") == SIZE_MAX);
}

/* Pages of files are taken back before the group is out of memory. */
static void a_container_limits_it(void **state)
{
  (void)state;
  assert_int_equal(memory_left_of_group("1000\n", "700\n", "anon 1\ninactive_file 100\nx 2\n"),
                   400);
  assert_int_equal(memory_left_of_group("1000\n", "700\n",
                                        "cache 9\ninactive_file 100\ntotal_inactive_file 200\n"),
                   500);
  assert_int_equal(memory_left_of_group("1000\n", "1200\n", ""), 0);
  assert_int_equal(memory_left_of_group("1000\n", "50\n", "anon 1\ninactive_file 60\n"), 1000);
}

static void a_group_without_limit_refuses_nothing(void **state)
{
  (void)state;
  assert_true(memory_left_of_group("max\n", "700\n", "") == SIZE_MAX);
  assert_true(memory_left_of_group("", "", "") == SIZE_MAX);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(available_memory_is_read),
    cmocka_unit_test(a_system_that_does_not_say_refuses_nothing),
    cmocka_unit_test(a_container_limits_it),
    cmocka_unit_test(a_group_without_limit_refuses_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
