/* Libraries that are opened when they are asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cuda/libraries/library.h"

#define MATHS(X) X(cos) X(atan2)

typedef struct maths_functions {
  MATHS(LIBRARY_FUNCTION)
} maths_functions;

static const library maths = { .name = "libm",
                               .files = { "libmaths_of_tomorrow.so.9", "libm.so.6" },
                               .advice = "install a C library",
                               .functions = { MATHS(LIBRARY_NAME) } };

static void functions_are_found_in_order(void **state)
{
  maths_functions f;
  diag d = { 0 };
  (void)state;
  assert_true(library_open(&maths, &f, &d));
  assert_true(diag_ok(&d));
  assert_true(f.cos(0) == 1);
  assert_true(f.atan2(0, 1) == 0);
}

static void a_missing_library_is_refused(void **state)
{
  maths_functions f;
  diag d = { 0 };
  library none = maths;
  (void)state;
  none.files[1] = NULL;
  assert_false(library_open(&none, &f, &d));
  assert_int_equal(d.exit_status, 3);
  assert_non_null(
      strstr(d.message, "libm is required and was not found (tried libmaths_of_tomorrow"));
  assert_non_null(strstr(d.message, "install a C library"));
  assert_false(library_open(&none, &f, NULL));
}

static void a_missing_function_is_refused(void **state)
{
  void *functions[2];
  diag d = { 0 };
  library old = maths;
  (void)state;
  old.functions[1] = "cosine_of_tomorrow";
  assert_false(library_open(&old, functions, &d));
  assert_int_equal(d.exit_status, 3);
  assert_non_null(strstr(d.message, "has no cosine_of_tomorrow"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(functions_are_found_in_order),
    cmocka_unit_test(a_missing_library_is_refused),
    cmocka_unit_test(a_missing_function_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
