/* Figures, tables and traces as text: what a value must look like, character by character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/base/units.h"
#include "sim/predict/curve.h"
#include "sim/report/text.h"
#include "sim/text/json_text.h"
#include "tests/unit/small_plan.h"
#include "traces/chrome.h"

/* What is written between open and close, as a text. */
typedef struct page {
  char *text;
  size_t length;
  FILE *out;
} page;

static void page_open(page *p)
{
  p->out = open_memstream(&p->text, &p->length);
  assert_non_null(p->out);
}

static void assert_page(page *p, const char *expected)
{
  fclose(p->out);
  assert_string_equal(p->text, expected);
  free(p->text);
}

/* ---- JSON ---- */

static void test_json_strings(void **state)
{
  static const struct {
    const char *text, *json;
  } rows[] = {
    { "", "\"\"" },
    { "a \"b\" \\c", "\"a \\\"b\\\" \\\\c\"" },
    { "tab\there", "\"tab\\u0009here\"" },
    { "gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\"" },
    { "bad\xff.", "\"bad\\ufffd.\"" },
    { "cut\xe2\x82", "\"cut\\ufffd\\ufffd\"" },
    { "\xc0\xaf", "\"\\ufffd\\ufffd\"" },
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    page p;
    page_open(&p);
    json_string(p.out, rows[i].text);
    assert_page(&p, rows[i].json);
  }
}

static void test_json_decimals(void **state)
{
  static const struct {
    int64_t value;
    int digits;
    const char *json;
  } rows[] = {
    { 1500, 3, "1.500" },
    { 0, 6, "0.000000" },
    { -1, 12, "-0.000000000001" },
    { 7, 0, "7" },
    { INT64_MAX, 12, "9223372.036854775807" },
    { INT64_MIN, 12, "-9223372.036854775808" },
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    page p;
    page_open(&p);
    json_decimal(p.out, rows[i].value, rows[i].digits);
    assert_page(&p, rows[i].json);
  }
}

/* ---- figures ---- */

static void test_figures_round_half_away(void **state)
{
  static const struct {
    int64_t value, unit;
    int decimals;
    const char *text;
  } rows[] = {
    { 1536, 1024, 2, "1.50" },
    { 5, 10, 0, "1" },
    { 4, 10, 0, "0" },
    { -5, 10, 0, "-1" },
    { -4, 10, 0, "0" },
    { 1, 2000, 3, "0.001" },
    { 15 * GIB, GIB, 3, "15.000" },
    { INT64_MAX / 4, 1, 0, "2305843009213693951" },
  };
  arena a = { 0 };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_string_equal(figure(&a, rows[i].value, rows[i].unit, rows[i].decimals), rows[i].text);
  arena_release(&a);
}

static void test_percent(void **state)
{
  arena a = { 0 };
  (void)state;
  assert_string_equal(figure_percent(&a, 1, 3, 2), "33.33");
  assert_string_equal(figure_percent(&a, -1, 3, 2), "-33.33");
  assert_string_equal(figure_percent(&a, 1, -3, 0), "-"); /* of nothing that is saved */
  assert_string_equal(figure_percent(&a, 3, 0, 2), "-");
  assert_string_equal(figure_percent(&a, 9975 * MIB, 10000 * MIB, 2), "99.75");
  arena_release(&a);
}

static void test_units(void **state)
{
  arena a = { 0 };
  (void)state;
  assert_string_equal(figure_with_unit(&a, 3 * MIB / 2, unit_of_bytes(GIB)), "1.5 MiB");
  assert_string_equal(figure_with_unit(&a, 41 * GIB, unit_of_bytes(41 * GIB)), "41.000 GiB");
  assert_string_equal(figure_with_unit(&a, PS_PER_MS, unit_of_time(PS_PER_MS)), "1000.0 us");
  assert_string_equal(figure_with_unit(&a, PS_PER_S, unit_of_time(PS_PER_S)), "1000.0 ms");
  assert_string_equal(figure_capacity(&a, 80 * GIB), "80 GiB");
  assert_string_equal(figure_capacity(&a, INT64_C(1) << 60), "without limit");
  assert_string_equal(figure_of_capacity(&a, 80 * GIB), " of 80 GiB");
  assert_string_equal(figure_of_capacity(&a, INT64_C(1) << 60), "");
  assert_string_equal(figure_count(&a, 1, "copy", "copies"), "1 copy");
  assert_string_equal(figure_count(&a, 0, "copy", "copies"), "0 copies");
  arena_release(&a);
}

/* ---- grid ---- */

static void test_grid_aligns_right_without_trailing_blanks(void **state)
{
  arena a = { 0 };
  page p;
  (void)state;
  grid g = grid_new(&a, 3, 2);
  g.head[0][1] = "peak:";
  g.head[1][0] = "rank";
  g.head[1][1] = "live";
  g.cells[0] = "0";
  g.cells[1] = "10.5";
  g.cells[3] = "1";
  g.cells[5] = "x";
  page_open(&p);
  grid_print(&g, p.out);
  assert_page(&p, "      peak:\n"
                  "rank   live\n"
                  "   0   10.5\n"
                  "   1         x\n");
  arena_release(&a);
}

/* ---- curve ---- */

/* Allocations before a kernel are drawn at its start; the highest of a run counts. */
static void test_curve_keeps_peaks(void **state)
{
  static const int64_t bytes[] = { 100, 100, 300, 200, 200, 50 };
  arena a = { 0 };
  (void)state;
  plan p = plan_new(1, &a);
  rank_plan *r = &p.ranks[0];
  add_op(r, OP_ALLOC, STREAM_COMPUTE, 0);
  add_kernel(&p, 0, STREAM_COMPUTE, 1000);
  add_op(r, OP_ALLOC, STREAM_COMPUTE, 1);
  add_op(r, OP_FREE, STREAM_COMPUTE, 0);
  add_kernel(&p, 0, STREAM_COMPUTE, 1000);
  add_op(r, OP_FREE, STREAM_COMPUTE, 1);
  op_time ran[] = { { 0, 0 }, { 10, 20 }, { 0, 0 }, { 0, 0 }, { 20, 35 }, { 0, 0 } };
  rank_timeline t = { .ops = { .rows = ran } };
  uint32_t count;
  const curve_point *points = curve_on_compute(r, &t, bytes, &count, &a);
  assert_int_equal(count, 3);
  assert_int_equal(points[0].at_ps, 10);
  assert_int_equal(points[0].bytes, 100);
  assert_int_equal(points[1].at_ps, 20);
  assert_int_equal(points[1].bytes, 300);
  assert_int_equal(points[2].at_ps, 35);
  assert_int_equal(points[2].bytes, 50);
  plan_release(&p);
  arena_release(&a);
}

/* ---- trace ---- */

static void test_chrome_events(void **state)
{
  page p;
  (void)state;
  page_open(&p);
  chrome_trace t = chrome_begin(p.out, 3, 4);
  chrome_process(&t, 1, "rank 1");
  const chrome_arg args[] = { { "layer", NULL, 3 }, { "module", "mlp", 0 } };
  chrome_slice(&t, 1, 2, "kernel", "gemm", 1500000, 4000001, args, 2);
  chrome_counter(&t, 1, "d2h GB/s", "GB/s", 0, 55400, 3);
  chrome_flow(&t, CHROME_FLOW_FROM, 1, 2, "offloaded", 9, 1);
  chrome_flow(&t, CHROME_FLOW_TO, 1, 3, "offloaded", 9, 2000000);
  chrome_end(&t);
  assert_page(
      &p,
      "{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3, "
      "\"world_size\": 4},\n\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n"
      "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"rank "
      "1\"}},\n"
      "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":"
      "1}},\n"
      "{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"cat\":\"kernel\",\"name\":\"gemm\",\"ts\":1.500000,"
      "\"dur\":2.500001,\"args\":{\"layer\":3,\"module\":\"mlp\"}},\n"
      "{\"ph\":\"C\",\"pid\":1,\"name\":\"d2h GB/s\",\"ts\":0.000000,\"args\":{\"GB/s\":55.400}},\n"
      "{\"ph\":\"s\",\"pid\":1,\"tid\":2,\"cat\":\"flow\",\"name\":\"offloaded\",\"id\":9,"
      "\"ts\":0.000001},\n"
      "{\"ph\":\"f\",\"pid\":1,\"tid\":3,\"cat\":\"flow\",\"name\":\"offloaded\",\"id\":9,"
      "\"ts\":2.000000,\"bp\":\"e\"}\n"
      "]}\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_json_strings),
    cmocka_unit_test(test_json_decimals),
    cmocka_unit_test(test_figures_round_half_away),
    cmocka_unit_test(test_percent),
    cmocka_unit_test(test_units),
    cmocka_unit_test(test_grid_aligns_right_without_trailing_blanks),
    cmocka_unit_test(test_curve_keeps_peaks),
    cmocka_unit_test(test_chrome_events),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
