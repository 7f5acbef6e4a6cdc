/*
 * "Did you mean": distances and the nearest name. Numbers as text.
 */
#include "sim/text/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sim/text/scalar.h"

static void distances(void **state)
{
  (void)state;
  static const struct {
    const char *a, *b;
    uint32_t distance;
  } cases[] = {
    { "", "", 0 },       { "abc", "", 3 },           { "abc", "abc", 0 },
    { "abc", "acb", 1 }, { "abc", "abd", 1 },        { "abc", "abcd", 1 },
    { "a-b", "A_B", 0 }, { "kitten", "sitting", 3 }, { "num_layres", "num-layers", 1 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(suggest_distance(cases[i].a, cases[i].b), cases[i].distance);
    assert_int_equal(suggest_distance(cases[i].b, cases[i].a), cases[i].distance);
  }
}

static void nearest(void **state)
{
  (void)state;
  static const char *const names[] = { "hidden_size", "num_layers", "num_layerz", "seq_length" };
  assert_string_equal(suggest_nearest("num-layer", names, 4), "num_layers");
  assert_string_equal(suggest_nearest("hiden_size", names, 4), "hidden_size");
  assert_null(suggest_nearest("bogus", names, 4));
  assert_null(suggest_nearest("xidden_size", names, 4)); /* another first letter */
  assert_string_equal(suggest_nearest("ihdden_size", names, 4), "hidden_size");
  assert_null(suggest_nearest("hidden_axis_x", names, 4)); /* too many letters */
  assert_null(suggest_nearest("hidden_size", names, 0));
}

static void numbers(void **state)
{
  (void)state;
  int64_t n = 0;
  double x = 0;
  assert_true(scalar_i64("-9223372036854775808", &n));
  assert_true(n == INT64_MIN);
  static const char *const no_i64[] = { "",    "-",   " 1",  "1 ",
                                        "0x1", "1.0", "1e3", "9223372036854775808" };
  for (size_t i = 0; i < sizeof no_i64 / sizeof *no_i64; i++) {
    assert_false(scalar_i64(no_i64[i], &n));
  }
  static const char *const doubles[] = { "0.5", ".5", "5e-1", "+0.50", "0.05E1" };
  for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
    assert_true(scalar_double(doubles[i], &x));
    assert_true(x == 0.5);
  }
  static const char *const no_double[] = {
    "", ".", "e1", "1e", "inf", "nan", "0x1p1", "1e999", "1f"
  };
  for (size_t i = 0; i < sizeof no_double / sizeof *no_double; i++) {
    assert_false(scalar_double(no_double[i], &x));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(distances),
    cmocka_unit_test(nearest),
    cmocka_unit_test(numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
