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

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(available_memory_is_read),
    cmocka_unit_test(a_system_that_does_not_say_refuses_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
