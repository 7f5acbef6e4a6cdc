/* Machine files and their messages, and the roofline against measured kernels. */
#include "sim/machine/call_time.h"
#include "sim/machine/host_work.h"
#include "sim/machine/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/file.h"
#include "sim/base/units.h"
#include "sim/machine/error.h"
#include "sim/machine/roofline.h"

static const machine *load(arena *a, const char *name)
{
  diag d = { 0 };
  const machine *m = machine_load(a, name, &d);

  if (m == NULL) fail_msg("%s", d.message);
  return m;
}

/* The file of a shipped machine. */
static const char *preset_text(arena *a)
{
  diag d = { 0 };
  size_t length;
  const char *text =
      file_read(a, "sim/machine/presets/A100-SXM-PCIe4.yaml", FILE_TEXT_LIMIT_BYTES, &length, &d);

  if (text == NULL) fail_msg("%s", d.message);
  return text;
}

static void test_products(void **state)
{
  (void)state;
  assert_int_equal(muldiv_i64(7, 9, 10), 6);
  assert_int_equal(muldiv_up_i64(7, 9, 10), 7);
  assert_int_equal(muldiv_up_i64(70, 9, 10), 63);
  assert_int_equal(muldiv_i64(INT64_MAX, INT64_MAX, INT64_MAX), INT64_MAX);
  assert_int_equal(muldiv_up_i64(INT64_MAX, 3, 3), INT64_MAX);
  assert_int_equal(muldiv_i64(INT64_C(4000000000) * 1000, 1000000000, 5000),
                   INT64_C(800000000000000000));
}

/* ---- files ---- */

static void test_every_preset_is_complete(void **state)
{
  uint32_t count = 0;
  (void)state;

  for (const machine_preset *p = machine_presets; p->name != NULL; p++, count++) {
    arena a = { 0 };
    const machine *m = load(&a, p->name);
    assert_string_equal(m->name, p->name);
    assert_int_equal(m->host.gpus % m->host.gpus_per_group, 0);
    assert_true(machine_usable_bytes(m) > 0);
    arena_release(&a);
  }
  assert_int_equal(count, 13);
}

/* A shipped file with `from` replaced by `to` gives this message. */
static void expect_message(const char *from, const char *to, const char *message)
{
  arena a = { 0 };
  diag d = { 0 };
  const char *text = preset_text(&a);
  const char *at = strstr(text, from);

  assert_non_null(at);
  const char *changed = arena_printf(&a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  assert_null(machine_parse(&a, "my.yaml", changed, strlen(changed), &d));
  assert_int_equal(d.exit_status, 2);
  if (strstr(d.message, message) == NULL) fail_msg("got: %s", d.message);
  assert_non_null(strstr(d.message, "my.yaml:"));
  arena_release(&a);
}

static void test_messages(void **state)
{
  (void)state;
  expect_message(
      "kernel_ns:", "kernel_nss:", "unknown key 'kernel_nss' in issue; did you mean 'kernel_ns'?");
  expect_message("nvlink:", "nvlinc:", "did you mean 'nvlink'?");
  expect_message("sm_count: 108", "sm_count: 0", "gpu.sm_count is 0; it must be from 1 to");
  expect_message("sm_count: 108", "sm_count: 1000001",
                 "gpu.sm_count is 1000001; it must be from 1 to 1000000");
  expect_message("sm_count: 108", "sm_count: many", "many");
  expect_message(
      "sm_count: 108 published", "sm_count: 108 guessed",
      "'guessed': a value's source is assumed, published, measured, calibrated or exact");
  expect_message("  sm_count: 108", "  # ", "'sm_count' is missing in gpu of a machine");
  expect_message("format_version: 1", "format_version: 2",
                 "format_version is 2; this program reads version 1");
  expect_message("reserved_by_system_bytes: 800000000", "reserved_by_system_bytes: 99000000000",
                 "it must be less than gpu.memory_bytes");
  expect_message("hbm_reached_permille: 760", "hbm_reached_permille: 1001",
                 "it must be at most 1000");
  expect_message("hbm_reached_permille: 760 assumed", "hbm_reached_permille: [760]",
                 "hbm_reached_permille");
  expect_message("issue:", "at_once:\n  - 2 GPUs = 70000 out, 0 back, 90000 both ways\n\nissue:",
                 "expected \"2 GPUs = 105100 out, 100200 back, 151700 both ways\"");
  expect_message(
      "issue:", "at_once:\n  - 2 GPUs = 7 out, 7 back, 9 both ways.\n\nissue:", "expected");
  expect_message("issue:", "at_once:\n  - 8 GPUs = 7 out, 7 back, 9 both ways\n\nissue:",
                 "8 GPUs: expected ascending numbers below host.gpus (8)");
  expect_message("domain_gpus: 0", "domain_gpus: 12",
                 "nvlink.domain_gpus is 12; it must be 0 or a multiple of host.gpus (8)");
  expect_message("issue:", "at_once: 2\n\nissue:", "at_once");
}

static int64_t value_of(const machine *m, const machine_key *key)
{
  int64_t value;

  memcpy(&value, (const char *)m + key->offset, sizeof value);
  return value;
}

/* The text without the line of that key in its section. */
static const char *without(arena *a, const char *text, const machine_key *key)
{
  const char *section = strstr(text, arena_printf(a, "\n%s:\n", key->section));
  const char *line = strstr(section, arena_printf(a, "\n  %s:", key->key));

  assert_non_null(line);
  return arena_printf(a, "%.*s%s", (int)(line - text), text, line + 1 + strcspn(line + 1, "\n"));
}

/* Files of version 0.1.0 do not have the keys that came later. */
static void test_files_without_later_keys(void **state)
{
  arena a = { 0 };
  diag d = { 0 };
  const char *text = preset_text(&a);
  uint32_t later = 0;
  (void)state;

  for (uint32_t k = 0; k < MACHINE_KEYS; k++)
    if (machine_keys[k].otherwise != NEEDED) {
      text = without(&a, text, &machine_keys[k]);
      later++;
    }
  const machine *m = machine_parse(&a, "my.yaml", text, strlen(text), &d);
  if (m == NULL) fail_msg("%s", d.message);
  assert_int_equal(later, 54);
  for (uint32_t k = 0; k < MACHINE_KEYS; k++)
    if (machine_keys[k].otherwise != NEEDED)
      assert_int_equal(value_of(m, &machine_keys[k]), machine_keys[k].otherwise);
  assert_int_equal(m->issue.eager_ns, 20000);
  assert_int_equal(m->gpu.power_limit_w, 0);
  arena_release(&a);
}

/* An error changes the rates of its class alone, each by the width of its source. */
static void test_errors(void **state)
{
  arena a = { 0 };
  const machine *m = load(&a, "H200-SXM"), *ideal = load(&a, "ideal");
  (void)state;
  for (rate_class c = 1; c < RATE_CLASSES; c++)
    for (int slower = 0; slower < 2; slower++) {
      machine other = machine_erring(m, c, slower), same = machine_erring(ideal, c, slower);
      assert_memory_equal(&same, ideal, sizeof same);
      uint32_t changed = 0;
      for (uint32_t k = 0; k < MACHINE_KEYS; k++) {
        int64_t before = value_of(m, &machine_keys[k]), after = value_of(&other, &machine_keys[k]);
        if (abs(machine_keys[k].rate) != (int)c) assert_int_equal(after, before);
        if (after != before) assert_int_equal(after > before, (machine_keys[k].rate > 0) != slower);
        changed += after != before;
      }
      assert_true(changed > 0);
    }
  arena_release(&a);
}

static uint8_t source_of(const machine *m, const void *value)
{
  for (uint32_t k = 0; k < MACHINE_KEYS; k++)
    if ((const char *)m + machine_keys[k].offset == value) return m->sources[k];
  fail_msg("no key");
  return VALUE_SOURCES;
}

static void test_sources(void **state)
{
  arena a = { 0 };
  diag d = { 0 };
  const machine *m = load(&a, "H200-SXM");
  (void)state;
  assert_int_equal(source_of(m, &m->link.d2h_bytes_per_us), SOURCE_MEASURED);
  assert_int_equal(source_of(m, &m->nvlink.bus_bytes_per_us), SOURCE_PUBLISHED);
  assert_int_equal(source_of(m, &m->nvlink.latency_ns), SOURCE_ASSUMED);
  const char *text = preset_text(&a), *word = " published";
  const char *at = strstr(text, word);
  assert_non_null(at);
  const char *without_word = arena_printf(&a, "%.*s%s", (int)(at - text), text, at + strlen(word));
  m = machine_parse(&a, "my.yaml", without_word, strlen(without_word), &d);
  assert_non_null(m);
  assert_int_equal(source_of(m, &m->gpu.compute_capability), SOURCE_ASSUMED);
  assert_int_equal(source_of(m, &m->gpu.sm_count), SOURCE_PUBLISHED);
  arena_release(&a);
}

/* Counts of host work, on a machine whose kinds of work cost powers of ten. */
static void test_host_work(void **state)
{
  machine m = { 0 };
  (void)state;

  m.issue.kernel_ns = 1;
  m.issue.operator_ns = 10;
  m.issue.check_ns = 1000;
  m.issue.expert_ns = 100000;
  m.issue.product_ns = 10000000;
  m.issue.parameter_ns = 1000000000;
  plan_call forward = { .kind = KERNEL_GEMM, .dims = { 128, 128, 128, 1 } };
  assert_int_equal(host_call_ns(&m, &forward), 10001001);
  plan_call of_weight = forward;
  of_weight.scalars[GEMM_LAYOUT] = GEMM_TN;
  assert_int_equal(host_call_ns(&m, &of_weight), 1010000021);
  plan_call batched = of_weight; /* no module, no parameter */
  batched.dims[3] = 8;
  assert_int_equal(host_call_ns(&m, &batched), 10000021);
  plan_call grouped = { .kind = KERNEL_GROUPED_GEMM, .dims = { 128, 128, 128, 1, 7 } };
  assert_int_equal(host_call_ns(&m, &grouped), 701001);
  /* Of 1024 rows an expert, 63.2 % are new after 1024 experts had theirs, 1 - exp(-1); then 26.4 % are
   * not kept, exp(-1365 / 1024). Of fp8, 64 sizes are kept. */
  m.issue.search_ns = 1000000;
  plan_call rows = { .kind = KERNEL_GROUPED_GEMM,
                     .dtype = DTYPE_BF16,
                     .dims = { 8 * 1024, 128, 128, 1, 8 } };
  int64_t known_ns = host_call_ns(&m, &rows);
  assert_int_equal(known_ns, 801001);
  m.routings = 128;
  assert_in_range(host_call_ns(&m, &rows) - known_ns, 8 * 632000, 8 * 632500);
  m.routings = 1000000;
  assert_in_range(host_call_ns(&m, &rows) - known_ns, 8 * 263000, 8 * 263900);
  rows.dtype = DTYPE_FP8;
  assert_in_range(host_call_ns(&m, &rows) - known_ns, 0, 8 * 100);
  m.routings = 0;
  m.issue.search_ns = 0;
  plan_call add = { .kind = KERNEL_ADD };
  assert_int_equal(host_call_ns(&m, &add), 11);
  m.issue.tensor_ns = 100;
  plan_call step = { .kind = KERNEL_OPTIMIZER_STEP, .dims = { 1024, 30 } };
  assert_int_equal(host_call_ns(&m, &step), 3001);
  m.issue.eager_ns = 5;
  m.issue.module_ns = m.issue.step_ns = 1;
  machine plain = host_without_megatron(&m);
  assert_int_equal(host_call_ns(&plain, &grouped), 6);
  assert_int_equal(host_call_ns(&plain, &step), 6);
  assert_int_equal(host_entry_ns(&plain, MARK_FORWARD), 0);
  assert_int_equal(host_phase_ns(&plain, MARK_OPTIMIZER), 0);
  machine bare = host_without_framework(&m);
  assert_int_equal(host_call_ns(&bare, &grouped), 1);
  assert_int_equal(bare.issue.eager_ns, 0);
  assert_int_equal(host_entry_ns(&m, MARK_FORWARD), 1);
  assert_int_equal(host_entry_ns(&m, MARK_OPTIMIZER), 0);
}

/* Measured on H200s: 0.9 and 1.0 times as long. */
static void test_attention_is_issued_like_a_norm_and_its_product(void **state)
{
  arena a = { 0 };
  diag d = { 0 };
  (void)state;

  const machine *m = machine_load(&a, "H200-SXM", &d);
  assert_non_null(m);
  plan_call attention = { .kind = KERNEL_ATTENTION_FORWARD };
  plan_call norm = { .kind = KERNEL_RMSNORM_FORWARD };
  plan_call product = { .kind = KERNEL_GEMM, .dims = { 128, 128, 128, 1 } };
  int64_t both_ns = host_call_ns(m, &norm) + host_call_ns(m, &product);
  assert_in_range(host_call_ns(m, &attention), both_ns * 9 / 10, both_ns * 11 / 10);
  arena_release(&a);
}

static void test_unknown_machine_lists_the_known(void **state)
{
  arena a = { 0 };
  diag d = { 0 };
  (void)state;

  assert_null(machine_load(&a, "H300", &d));
  assert_non_null(strstr(d.message, "unknown machine 'H300'; shipped are A100-SXM-PCIe4, "));
  d = (diag){ 0 };
  assert_null(machine_load(&a, "no/such/file.yaml", &d));
  assert_int_equal(d.exit_status, 2);
  arena_release(&a);
}

/* The shipped machine with one change; NULL after an error, which is in *d. */
static const machine *changed(arena *a, const char *change, diag *d)
{
  const machine_changes changes = { &change, 1 };
  *d = (diag){ 0 };
  return machine_load_at(a, "H100-SXM", (source_pos){ 0 }, &changes, d);
}

static void test_changes(void **state)
{
  arena a = { 0 };
  diag d;
  static const char *const wrong[][2] = {
    { "d2h", "\"d2h\" is not of the form SECTION.KEY=VALUE" },
    { "link.d2h", "\"link.d2h\" is not of the form" },
    { "links.d2h_bytes_per_us=1", "a machine has no section 'links'" },
    { "link.d2h_bytes_per_ms=1", "did you mean 'd2h_bytes_per_us'?" },
    { "link.d2h_bytes_per_us=0", "link.d2h_bytes_per_us is 0; it must be from 1" },
    { "host.gpus=100000", "host.gpus is 100000; it must be at most" },
    { "gpu.memory_bytes=1", "reserved_by_system_bytes is 800000000; it must be less" },
  };
  (void)state;
  const machine *m = changed(&a, "link.d2h_bytes_per_us=25000 published", &d),
                *as_shipped = load(&a, "H100-SXM");
  assert_non_null(m);
  assert_string_equal(m->name, "H100-SXM, link.d2h_bytes_per_us=25000 published");
  assert_int_equal(source_of(m, &m->link.d2h_bytes_per_us), SOURCE_PUBLISHED);
  for (uint32_t k = 0; k < MACHINE_KEYS; k++)
    assert_int_equal(value_of(m, &machine_keys[k]),
                     strcmp(machine_keys[k].key, "d2h_bytes_per_us") == 0 &&
                             strcmp(machine_keys[k].section, "link") == 0
                         ? 25000
                         : value_of(as_shipped, &machine_keys[k]));
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_null(changed(&a, wrong[i][0], &d));
    if (strstr(d.message, wrong[i][1]) == NULL) fail_msg("got: %s", d.message);
  }
  arena_release(&a);
}

/* ---- kernels ---- */

static void assert_within(int64_t got, int64_t expected, int64_t percent, const char *what)
{
  int64_t off = got > expected ? got - expected : expected - got;

  printf("%s: %lld, measured %lld\n", what, (long long)got, (long long)expected);
  assert_true(off * 100 <= expected * percent);
}

/* TFLOP/s of cuBLAS on one H200, bf16, random data, measured 2026-11. */
static void test_measured_gemms(void **state)
{
  static const struct {
    int64_t m, n, k, tflops;
  } rows[] = { { 8192, 8192, 8192, 798 },  { 4096, 4096, 4096, 773 },  { 4096, 7168, 2048, 748 },
               { 16384, 4096, 4096, 785 }, { 4096, 18432, 7168, 811 }, { 2048, 2048, 7168, 735 },
               { 512, 4096, 7168, 646 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  (void)state;

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    int64_t flops = 2 * rows[i].m * rows[i].n * rows[i].k;
    int64_t ps = roofline_gemm_ps(mc, ROOFLINE_BF16,
                                  &(gemm_shape){ rows[i].m, rows[i].n, rows[i].k, .batch = 1 });
    assert_within(flops / ps, rows[i].tflops, 5, "GEMM TFLOP/s");
  }
  arena_release(&a);
}

typedef struct gemm_row {
  gemm_shape shape;
  int64_t us, percent;
} gemm_row;

static void assert_gemms(const machine *mc, const gemm_row *rows, size_t count, const char *what)
{
  for (size_t i = 0; i < count; i++)
    assert_within(roofline_gemm_ps(mc, ROOFLINE_BF16, &rows[i].shape) / PS_PER_US, rows[i].us,
                  rows[i].percent, what);
}

/* Gradients of weights that are added in fp32: what is read and written counts where there are few
 * tokens. cuBLAS on one H200, 2048 to 16384 tokens, us, measured 2026-11. */
static void test_measured_additions(void **state)
{
  static const gemm_row rows[] = {
    { { 28672, 4096, 2048, .batch = 1, .adds = true }, 796, 5 },
    { { 28672, 4096, 4096, .batch = 1, .adds = true }, 1312, 5 },
    { { 28672, 4096, 8192, .batch = 1, .adds = true }, 2484, 5 },
    { { 28672, 4096, 16384, .batch = 1, .adds = true }, 4894, 5 },
    { { 28672, 4096, 4096, .batch = 1 }, 1231, 5 },
    { { 32000, 4096, 2048, .batch = 1, .adds = true }, 845, 9 },
    { { 16384, 2048, 4096, .batch = 1, .adds = true }, 381, 5 },
    { { 32000, 2048, 4096, .batch = 1, .adds = true }, 733, 5 },
  };
  arena a = { 0 };
  (void)state;
  assert_gemms(load(&a, "H200-SXM"), rows, sizeof rows / sizeof *rows, "adding GEMM");
  arena_release(&a);
}

/* Parts of a product fill each other's last waves. cuBLAS on four H100s, a quarter of the rows each, on three
 * streams in turn, us for all four, measured 2026-11; whole products take 428, 2421, 387 and 1226. */
static void test_measured_parts(void **state)
{
  enum { PARTS = 4 };
  static const struct {
    int64_t n, k, us;
  } rows[] = {
    { 2560, 8192, 438 }, { 14336, 8192, 2449 }, { 8192, 2048, 375 }, { 8192, 7168, 1228 }
  };
  arena a = { 0 };
  const machine *mc = load(&a, "H100-SXM");
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    gemm_shape part = { 8192 / PARTS, rows[i].n, rows[i].k, .batch = 1, .parts = PARTS };
    int64_t ps = PARTS * roofline_gemm_ps(mc, ROOFLINE_BF16, &part);
    assert_within(ps / PS_PER_US, rows[i].us, 9, "products in parts");
  }
  gemm_shape alone = { 2048, 2560, 8192, .batch = 1 }, part = alone;
  part.parts = PARTS;
  assert_true(roofline_gemm_ps(mc, ROOFLINE_BF16, &part) <
              roofline_gemm_ps(mc, ROOFLINE_BF16, &alone));
  arena_release(&a);
}

/* Copy engines send a part to the next of four H100s: 90 to 123 us for 33.5 MB, 2026-11. */
static void test_measured_shifts(void **state)
{
  enum { BYTES = 33554432, RANKS = 4 };
  arena a = { 0 };
  const machine *mc = load(&a, "H100-SXM");
  (void)state;
  int64_t us = collective_ps(mc, COLLECTIVE_SHIFT, BYTES, RANKS, RANKS) / PS_PER_US;
  assert_within(us, 98, 8, "shift");
  assert_true(collective_ps(mc, COLLECTIVE_SHIFT, BYTES, RANKS, 1) / PS_PER_US > 4 * us);
  plan_call call = { .is_collective = 1,
                     .kind = COLLECTIVE_SHIFT,
                     .group_size = RANKS,
                     .group_stride = 1,
                     .bytes = BYTES };
  assert_false(call_is_joined(mc, &call));
  call.kind = COLLECTIVE_ALL_GATHER;
  assert_true(call_is_joined(mc, &call));
  arena_release(&a);
}

/* Experts' products of offsim's own kernels on one H200, us, at the rate that they reach. */
static void test_measured_grouped_gemms(void **state)
{
  static const gemm_row rows[] = {
    { { 16384, 2816, 2048, .batch = 1, .experts = 32 }, 443, 12 },
    { { 16384, 2816, 2048, .batch = 1, .experts = 16 }, 379, 12 },
    { { 32768, 2816, 2048, .batch = 1, .experts = 32 }, 787, 12 },
    { { 65536, 2816, 2048, .batch = 1, .experts = 32 }, 1483, 12 },
    { { 2816, 2048, 16384, .batch = 1, .experts = 32, .splits_k = true, .adds = true }, 730, 12 },
    { { 2816, 2048, 16384, .batch = 1, .experts = 16, .splits_k = true, .adds = true }, 487, 12 },
    { { 2816, 2048, 32768, .batch = 1, .experts = 32, .splits_k = true, .adds = true }, 972, 12 },
    { { 2816, 2048, 65536, .batch = 1, .experts = 32, .splits_k = true, .adds = true }, 1512, 12 },
  };
  arena a = { 0 };
  machine mc = *load(&a, "H200-SXM");
  (void)state;
  mc.compute.gemm_grouped_permille = 680;
  assert_gemms(&mc, rows, sizeof rows / sizeof *rows, "grouped GEMM");
  arena_release(&a);
}

/* Transformer Engine 2.7 and 2.8 on an H100, published with its pull request 2045: TFLOP/s of 32768
 * rows of equal parts. */
static void test_published_grouped_gemms(void **state)
{
  static const struct {
    int64_t experts, several_streams, one_kernel;
  } rows[] = { { 8, 628, 651 }, { 16, 554, 637 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H100-SXM");
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    gemm_shape s = { 32768, 768, 2048, .batch = 1, .experts = rows[i].experts };
    int64_t tflops = 2 * s.m * s.n * s.k / roofline_gemm_ps(mc, ROOFLINE_BF16, &s);
    assert_within(tflops, rows[i].several_streams, 16, "grouped GEMM TFLOP/s");
    assert_within(tflops, rows[i].one_kernel, 10, "grouped GEMM TFLOP/s");
  }
  arena_release(&a);
}

/* cuDNN, bf16, causal, published for H200: TFLOP/s at a sequence length, 32 heads of 128. */
static void test_published_attention(void **state)
{
  static const struct {
    int64_t length, forward, backward;
  } rows[] = { { 2048, 484, 370 }, { 4096, 591, 474 }, { 8192, 644, 541 }, { 16384, 673, 579 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  (void)state;

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    attention_shape s = { .batch = 16384 / rows[i].length,
                          .heads = 32,
                          .q_len = rows[i].length,
                          .kv_len = rows[i].length,
                          .qk_dim = 128,
                          .v_dim = 128,
                          .causal = true };
    assert_within(attention_flops(&s) / roofline_attention_ps(mc, ROOFLINE_BF16, &s),
                  rows[i].forward, 5, "attention forward TFLOP/s");
    s.backward = true;
    assert_within(attention_flops(&s) / roofline_attention_ps(mc, ROOFLINE_BF16, &s),
                  rows[i].backward, 5, "attention backward TFLOP/s");
  }
  arena_release(&a);
}

/* The same with heads of 64 and a window of 1024, published: 355 and 303 TFLOP/s. Tiles of 128 x 128 at the
 * window's two edges are half empty. */
static void test_published_attention_in_a_window(void **state)
{
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  (void)state;
  attention_shape s = { .batch = 2,
                        .heads = 64,
                        .q_len = 16384,
                        .kv_len = 16384,
                        .qk_dim = 64,
                        .v_dim = 64,
                        .causal = true,
                        .window = 1024 };
  assert_within(attention_flops(&s) / roofline_attention_ps(mc, ROOFLINE_BF16, &s), 355, 5,
                "attention forward TFLOP/s");
  s.backward = true;
  assert_within(attention_flops(&s) / roofline_attention_ps(mc, ROOFLINE_BF16, &s), 303, 5,
                "attention backward TFLOP/s");
  arena_release(&a);
}

/* cuDNN, bf16, causal, heads of 128, microseconds: measured on an H100 at full clock, a few calls after a
 * pause. Of few heads, each takes longer. */
static void test_attention_of_few_heads(void **state)
{
  static const struct {
    int64_t length, heads, forward_us, backward_us;
  } measured[] = { { 4096, 8, 94, 277 },      { 4096, 16, 152, 447 },   { 4096, 32, 259, 780 },
                   { 4096, 64, 476, 1453 },   { 4096, 128, 917, 2808 }, { 8192, 8, 278, 770 },
                   { 8192, 16, 478, 1376 },   { 8192, 32, 894, 2593 },  { 8192, 64, 1725, 5050 },
                   { 16384, 16, 1720, 4702 }, { 16384, 32, 3335, 9387 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H100-SXM");
  (void)state;

  for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
    attention_shape s = { .batch = 1,
                          .heads = measured[i].heads,
                          .q_len = measured[i].length,
                          .kv_len = measured[i].length,
                          .qk_dim = 128,
                          .v_dim = 128,
                          .causal = true };
    assert_within(roofline_attention_ps(mc, ROOFLINE_BF16, &s) / PS_PER_US, measured[i].forward_us,
                  8, "us, attention forward");
    s.backward = true;
    assert_within(roofline_attention_ps(mc, ROOFLINE_BF16, &s) / PS_PER_US, measured[i].backward_us,
                  8, "us, attention backward");
  }
  arena_release(&a);
}

/* What a dropout of 0.1 adds to them: cuDNN, bf16, causal, on an H100. */
static void test_attention_with_dropout(void **state)
{
  static const struct {
    int64_t batch, heads, length, dim, forward_us, backward_us;
  } added[] = { { 1, 32, 8192, 128, 1062, 570 },
                { 1, 32, 4096, 128, 296, 179 },
                { 4, 16, 2048, 64, 139, 85 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H100-SXM");
  (void)state;

  for (size_t i = 0; i < sizeof added / sizeof added[0]; i++)
    for (int backward = 0; backward < 2; backward++) {
      attention_shape s = { .batch = added[i].batch,
                            .heads = added[i].heads,
                            .q_len = added[i].length,
                            .kv_len = added[i].length,
                            .qk_dim = added[i].dim,
                            .v_dim = added[i].dim,
                            .causal = true,
                            .backward = backward };
      int64_t without_ps = roofline_attention_ps(mc, ROOFLINE_BF16, &s);
      s.drops = true;
      assert_within((roofline_attention_ps(mc, ROOFLINE_BF16, &s) - without_ps) / PS_PER_US,
                    backward ? added[i].backward_us : added[i].forward_us, 13, "us, dropout");
    }
  arena_release(&a);
}

/* Elementwise kernels of PyTorch 2.11 on 8192 x 4096 elements, H200, microseconds: operands that a
 * thread has to look for one by one. */
static void test_measured_strided_kernels(void **state)
{
  static const struct {
    const char *what;
    int64_t bytes_per_element, us;
  } rows[] = { { "bf16 to fp32", 6, 111 },       { "fp32 times a number for each row", 8, 109 },
               { "bf16 times a row", 4, 90 },    { "SiLU of half of each row", 4, 97 },
               { "heads times cosine", 4, 101 }, { "transposing copy", 4, 92 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  const int64_t elements = 8192 * 4096;
  (void)state;

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    assert_within(roofline_elements_ps(mc, mc->compute.strided_elements_per_us, elements,
                                       elements * rows[i].bytes_per_element) /
                      PS_PER_US,
                  rows[i].us, 15, rows[i].what);
  arena_release(&a);
}

/* Casts of a row to fp8 by Transformer Engine 2.13 in a trace of an H200, microseconds. */
static void test_measured_row_casts(void **state)
{
  static const struct {
    int64_t elements, us;
  } rows[] = { { 20971520, 1529 }, { 29360128, 2139 }, { 58720256, 4277 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  (void)state;

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    plan_call call = { .kind = KERNEL_CAST_TRANSPOSE_ROW,
                       .dtype = DTYPE_BF16,
                       .bytes = 4 * rows[i].elements,
                       .dims = { rows[i].elements } };
    assert_within(call_roofline_ps(mc, &call) / PS_PER_US, rows[i].us, 1, "a row");
  }
  arena_release(&a);
}

/* Both kernels of RMSNorm's backward by Transformer Engine 2.13 in traces of H200s, microseconds. */
static void test_measured_norms(void **state)
{
  static const struct {
    int64_t rows, width;
    bool general;
    int64_t us;
  } norms[] = { { 262144, 128, true, 141 },
                { 32768, 128, true, 86 },
                { 4096, 1536, true, 50 },
                { 8192, 2048, false, 32 },
                { 8192, 4096, false, 58 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  (void)state;

  for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
    plan_call call = { .kind = KERNEL_RMSNORM_BACKWARD,
                       .dtype = DTYPE_BF16,
                       .bytes = 6 * norms[i].rows * norms[i].width,
                       .dims = { norms[i].rows, norms[i].width },
                       .scalars = { 0, norms[i].general } };
    assert_within(call_roofline_ps(mc, &call) / PS_PER_US, norms[i].us, 12, "a norm's backward");
  }
  arena_release(&a);
}

/* Megatron-LM's loss of 8192 tokens and 32000 words in a trace of an H200, microseconds of its large
 * kernels: logits in fp32, maxima; difference, exponentials, sums; quotient; product. Compiled, a part is
 * one kernel, bound by its bytes. */
static void test_measured_eager_loss(void **state)
{
  static const struct {
    kernel_kind kind;
    int64_t bytes_per_element, us;
  } rows[] = { { KERNEL_CROSS_ENTROPY_MAXIMA, 10, 836 + 368 },
               { KERNEL_CROSS_ENTROPY_SUMS, 20, 867 + 495 + 260 },
               { KERNEL_CROSS_ENTROPY_LOSS, 8, 867 },
               { KERNEL_CROSS_ENTROPY_BACKWARD, 8, 851 } };
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  (void)state;

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    plan_call c = { .kind = (uint8_t)rows[i].kind,
                    .dtype = DTYPE_FP32,
                    .dims = { 8192, 32000 },
                    .bytes = 8192 * 32000 * rows[i].bytes_per_element };
    assert_int_equal(call_roofline_ps(mc, &c), roofline_memory_ps(mc, c.bytes));
    c.scalars[CROSS_ENTROPY_EAGER] = 1;
    assert_within(call_roofline_ps(mc, &c) / PS_PER_US, rows[i].us, 7, "eager loss");
  }
  arena_release(&a);
}

/* Rotary kernels in three traces of an H200, 8192 tokens, microseconds. */
static void test_measured_rotary_kernels(void **state)
{
  static const int64_t rows[][2] = { { 32, 71 }, { 8, 21 }, { 4, 13 } }; /* heads, us */
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  (void)state;

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    plan_call c = { .kind = KERNEL_ROPE_FORWARD,
                    .dtype = DTYPE_BF16,
                    .dims = { 8192, rows[i][0], 128 },
                    .bytes = 8192 * rows[i][0] * 128 * 4 };
    assert_within(call_roofline_ps(mc, &c) / PS_PER_US, rows[i][1], 25, "forward");
    c.kind = KERNEL_ROPE_BACKWARD;
    assert_within(call_roofline_ps(mc, &c) / PS_PER_US, rows[i][1], 25, "backward");
    c.bytes *= 100;
    assert_within(call_roofline_ps(mc, &c), roofline_memory_ps(mc, c.bytes), 1, "bound by memory");
  }
  arena_release(&a);
}

/* Gradients of 8 heads' keys and values, added up of those of 32: two kernels of 22.6 us in traces of an
 * H200. */
static void test_gradients_of_grouped_queries(void **state)
{
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  attention_shape s = { .batch = 1,
                        .heads = 32,
                        .kv_heads = 32,
                        .q_len = 8192,
                        .kv_len = 8192,
                        .qk_dim = 128,
                        .v_dim = 128,
                        .causal = true };
  (void)state;

  for (int backward = 0; backward < 2; backward++) {
    attention_shape grouped = s;
    s.backward = grouped.backward = backward != 0;
    grouped.kv_heads = 8;
    int64_t more_ps = roofline_attention_ps(mc, ROOFLINE_BF16, &grouped) -
                      roofline_attention_ps(mc, ROOFLINE_BF16, &s);
    if (backward)
      assert_within(more_ps / PS_PER_US, 45, 5, "sums of a group");
    else
      assert_int_equal(more_ps, 0);
  }
  arena_release(&a);
}

/* Two products forward, five backward; the causal half keeps the diagonal. */
static void test_attention_flops(void **state)
{
  attention_shape s = { .batch = 2, .heads = 3, .q_len = 4, .kv_len = 4, .qk_dim = 5, .v_dim = 7 };
  (void)state;

  assert_int_equal(attention_flops(&s), 2 * 3 * 16 * 2 * 12);
  s.causal = true;
  assert_int_equal(attention_flops(&s), 2 * 3 * 10 * 2 * 12);
  s.backward = true;
  assert_int_equal(attention_flops(&s), 2 * 3 * 10 * 2 * (3 * 5 + 2 * 7));
}

/* Query i sees the last `window` of kv_len - q_len + i + 1 keys. */
static void test_attention_flops_in_a_window(void **state)
{
  (void)state;
  for (int64_t q = 1; q <= 5; q++)
    for (int64_t kv = q; kv <= 7; kv++)
      for (int64_t window = 1; window <= 8; window++) {
        attention_shape s = { .batch = 1,
                              .heads = 1,
                              .q_len = q,
                              .kv_len = kv,
                              .qk_dim = 1,
                              .v_dim = 1,
                              .causal = true,
                              .window = window };
        int64_t seen = 0;
        for (int64_t i = 0; i < q; i++)
          seen += min_i64(window, kv - q + i + 1);
        assert_int_equal(attention_flops(&s), 2 * 2 * seen);
      }
}

/* Kernels compute whole blocks: as many for each window that begins in one block, never more than without
 * a window. Below 1024 keys bytes take the time. Without blocks the time follows the scores. */
static void test_time_of_windows(void **state)
{
  arena a = { 0 };
  const machine *mc = load(&a, "H100-SXM"), *ideal = load(&a, "ideal");
  attention_shape s = { .batch = 1,
                        .heads = 32,
                        .q_len = 8192,
                        .kv_len = 8192,
                        .qk_dim = 128,
                        .v_dim = 128,
                        .causal = true };
  int64_t rows = mc->compute.attention_block_rows, before_ps = 0;
  int64_t causal_ps = roofline_attention_ps(mc, ROOFLINE_BF16, &s), flops = attention_flops(&s);
  int64_t ideal_ps = roofline_attention_ps(ideal, ROOFLINE_BF16, &s);
  (void)state;

  for (s.window = 1024 + 1; s.window <= s.kv_len; s.window += rows) {
    int64_t ps = roofline_attention_ps(mc, ROOFLINE_BF16, &s);
    attention_shape same = s;
    same.window = s.window - rows + 1;
    assert_int_equal(ps, roofline_attention_ps(mc, ROOFLINE_BF16, &same));
    assert_true(ps > before_ps && ps <= causal_ps);
    before_ps = ps;
  }
  s.window = 1024;
  assert_within(roofline_attention_ps(ideal, ROOFLINE_BF16, &s),
                muldiv_i64(ideal_ps, attention_flops(&s), flops), 1, "ps, on the ideal machine");
  arena_release(&a);
}

/* On `ideal` times are plain quotients. */
static void test_ideal_closed_forms(void **state)
{
  arena a = { 0 };
  const machine *mc = load(&a, "ideal");
  (void)state;

  assert_int_equal(roofline_memory_ps(mc, 4000), 1000);
  assert_int_equal(roofline_elements_ps(mc, mc->compute.strided_elements_per_us, 1 << 30, 4000),
                   1000);
  assert_int_equal(
      roofline_gemm_ps(mc, ROOFLINE_BF16, &(gemm_shape){ 4096, 4096, 4096, .batch = 1 }),
      ceil_div(2 * INT64_C(4096) * 4096 * 4096, 1000));
  assert_int_equal(transfer_ps(mc, 400000, true), PS_PER_US);
  assert_int_equal(collective_ps(mc, COLLECTIVE_ALL_REDUCE, 800000, 4, 4), 3 * PS_PER_US);
  assert_int_equal(collective_ps(mc, COLLECTIVE_ALL_GATHER, 400000, 4, 4), 3 * PS_PER_US);
  assert_int_equal(collective_ps(mc, COLLECTIVE_ALL_REDUCE, 800000, 4, 1), 24 * PS_PER_US);
  assert_int_equal(collective_ps(mc, COLLECTIVE_ALL_TO_ALL, 1 << 30, 1, 1), 0);
  assert_int_equal(collective_sent_bytes(COLLECTIVE_ALL_REDUCE, 800000, 4), 1200000);
  assert_int_equal(collective_sent_bytes(COLLECTIVE_ALL_GATHER, 400000, 4), 1200000);
  assert_int_equal(collective_sent_bytes(COLLECTIVE_ALL_TO_ALL, 800000, 4), 600000);
  assert_int_equal(collective_sent_bytes(COLLECTIVE_REDUCE_SCATTER, 800000, 1), 0);
  arena_release(&a);
}

/* Sizes of 0, one row, and the largest that a scenario can ask for. */
/* A group of ranks that are `stride` apart. */
static int64_t group_exchange_ps(const machine *m, int64_t size, int64_t stride)
{
  plan_call c = { .is_collective = true,
                  .kind = COLLECTIVE_ALL_TO_ALL,
                  .bytes = INT64_C(1) << 30,
                  .group_size = (uint32_t)size,
                  .group_stride = (uint32_t)stride };
  return call_roofline_ps(m, &c);
}

/* NVLink joins the 72 GPUs of 18 trays. A job of 256 GPUs has 64 in each of four racks. */
static void test_domain_of_several_hosts(void **state)
{
  arena a = { 0 };
  machine wide = *load(&a, "GB200"), narrow = wide;
  (void)state;

  narrow.nvlink.domain_gpus = 0;
  assert_int_equal(machine_domain_gpus(&wide), 72);
  assert_int_equal(machine_domain_gpus(&narrow), 4);
  assert_int_equal(machine_segment_gpus(&wide, 8), 8);
  assert_int_equal(machine_segment_gpus(&wide, 72), 72);
  assert_int_equal(machine_segment_gpus(&wide, 128), 64);
  assert_int_equal(machine_segment_gpus(&wide, 256), 64);
  assert_int_equal(machine_segment_gpus(&wide, 6), 8);
  assert_int_equal(machine_segment_gpus(&narrow, 256), 4);
  assert_int_equal(group_exchange_ps(&wide, 4, 1), group_exchange_ps(&narrow, 4, 1));
  assert_true(8 * group_exchange_ps(&wide, 64, 1) < group_exchange_ps(&narrow, 64, 1));
  assert_true(7 * group_exchange_ps(&wide, 64, 1) < group_exchange_ps(&wide, 64, 4));
  arena_release(&a);
}

/* All-reduce of 8 H100 in one host: nccl-tests listings show 13 to 20 us for small sizes, and the bus
 * bandwidth of a ring for large ones. What NCCL's constants give: 14 steps of LL. */
static void test_collectives_by_size(void **state)
{
  arena a = { 0 };
  const machine *m = load(&a, "H100-SXM");
  (void)state;

  assert_int_equal(collective_ps(m, COLLECTIVE_ALL_REDUCE, 0, 8, 8), 15000 * PS_PER_NS);
  assert_int_equal(collective_ps(m, COLLECTIVE_ALL_GATHER, 0, 2, 2), 7200 * PS_PER_NS);
  int64_t large = INT64_C(1) << 32, ps = collective_ps(m, COLLECTIVE_ALL_REDUCE, large, 8, 8);
  /* 361 through PyTorch, 1 GiB */
  assert_within(muldiv_i64(large * 7 / 4, PS_PER_US, ps) / 1000, 361, 1, "GB/s, 4 GiB");
  /* a tree of 64 hosts is faster than a ring of 126 steps by network */
  assert_true(collective_ps(m, COLLECTIVE_ALL_REDUCE, 1024, 64, 1) < 126 * 2700 * PS_PER_NS / 2);
  for (int64_t bytes = 1024; bytes < large; bytes *= 2)
    assert_true(collective_ps(m, COLLECTIVE_ALL_REDUCE, bytes, 8, 8) <=
                collective_ps(m, COLLECTIVE_ALL_REDUCE, 2 * bytes, 8, 8));
  arena_release(&a);
}

/* Collectives and messages on two H100s, microseconds: NCCL 2.28 through PyTorch, NVLink SHARP off.
 * `mib` are one rank's whole buffer, the sum of both parts for an all-gather. Smaller ones take the 40
 * us of their calls. */
static void test_collectives_of_two_ranks(void **state)
{
  static const struct {
    int64_t mib, gather_us, scatter_us, reduce_us, exchange_us, message_us;
  } measured[] = { { 64, 178, 185, 260, 159, 209 },
                   { 128, 307, 328, 475, 282, 393 },
                   { 256, 562, 608, 898, 514, 757 },
                   { 512, 1065, 1104, 1690, 977, 1473 },
                   { 1024, 2006, 2061, 3231, 1723, 2902 } };
  arena a = { 0 };
  const machine *m = load(&a, "H100-SXM");
  (void)state;
  for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
    int64_t bytes = measured[i].mib << 20;
    assert_within(collective_ps(m, COLLECTIVE_ALL_GATHER, bytes / 2, 2, 2) / PS_PER_US,
                  measured[i].gather_us, 6, "us, all-gather");
    assert_within(collective_ps(m, COLLECTIVE_REDUCE_SCATTER, bytes, 2, 2) / PS_PER_US,
                  measured[i].scatter_us, 10, "us, reduce-scatter");
    assert_within(collective_ps(m, COLLECTIVE_ALL_REDUCE, bytes, 2, 2) / PS_PER_US,
                  measured[i].reduce_us, 5, "us, all-reduce");
    assert_within(collective_ps(m, COLLECTIVE_ALL_TO_ALL, bytes, 2, 2) / PS_PER_US,
                  measured[i].exchange_us, 10, "us, all-to-all");
    assert_within(transfer_ps(m, bytes, true) / PS_PER_US, measured[i].message_us, 6,
                  "us, message");
  }
  arena_release(&a);
}

/* Tokens that go once to each rank. HybridEP on 8 B200: 4096 tokens of 7168 bf16 values, top 8, go
 * to 5.25 ranks each (8 (1 - (7/8)^8)), 7/8 of them by NVLink at the published 530 GB/s. DeepEP
 * sends a token once to each host. */
static void test_token_exchanges(void **state)
{
  arena a = { 0 };
  const machine *nvlink = load(&a, "B200"), *hosts = load(&a, "H100-SXM");
  int64_t once = INT64_C(4096) * 7168 * 2, copies = once * 525 / 100;
  (void)state;

  /* NCCL's kernels copy the own part, too, and start slowly */
  assert_within(exchange_ps(nvlink, copies, 0, 8, 8) / PS_PER_US, 566, 1, "us, NCCL");
  assert_within(exchange_ps(nvlink, copies, once, 8, 8) / PS_PER_US, 517, 2, "us, 8 B200");
  /* 6.4 of 16 ranks on two hosts: each token to 1.98 hosts, not 3.2 of its copies to the other */
  assert_within(exchange_ps(hosts, once * 64 / 10, once, 16, 8) / PS_PER_US, 2600, 3,
                "us, 16 H100");
  assert_true(exchange_ps(hosts, once * 64 / 10, 0, 16, 8) >
              exchange_ps(hosts, once * 64 / 10, once, 16, 8));
  arena_release(&a);
}

static void test_extreme_sizes(void **state)
{
  arena a = { 0 };
  const machine *mc = load(&a, "H200-SXM");
  int64_t fixed_ps = mc->compute.gemm_fixed_ns * PS_PER_NS;
  (void)state;

  assert_int_equal(roofline_gemm_ps(mc, ROOFLINE_BF16, &(gemm_shape){ 0, 4096, 4096, .batch = 1 }),
                   fixed_ps);
  assert_true(roofline_gemm_ps(mc, ROOFLINE_BF16, &(gemm_shape){ 1, 1, 1, .batch = 1 }) > fixed_ps);
  /* One row of a large weight is bound by reading the weight. */
  assert_true(roofline_gemm_ps(mc, ROOFLINE_BF16, &(gemm_shape){ 1, 16384, 16384, .batch = 1 }) >
              roofline_memory_ps(mc, 2 * 16384 * 16384));
  assert_true(roofline_gemm_ps(mc, ROOFLINE_BF16,
                               &(gemm_shape){ 1 << 20, 1 << 18, 1 << 14, .batch = 1 }) > PS_PER_S);
  assert_true(roofline_memory_ps(mc, INT64_C(1) << 45) > 5 * PS_PER_S);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_products),
    cmocka_unit_test(test_every_preset_is_complete),
    cmocka_unit_test(test_messages),
    cmocka_unit_test(test_files_without_later_keys),
    cmocka_unit_test(test_errors),
    cmocka_unit_test(test_sources),
    cmocka_unit_test(test_host_work),
    cmocka_unit_test(test_attention_is_issued_like_a_norm_and_its_product),
    cmocka_unit_test(test_unknown_machine_lists_the_known),
    cmocka_unit_test(test_changes),
    cmocka_unit_test(test_measured_gemms),
    cmocka_unit_test(test_measured_additions),
    cmocka_unit_test(test_measured_parts),
    cmocka_unit_test(test_measured_shifts),
    cmocka_unit_test(test_measured_grouped_gemms),
    cmocka_unit_test(test_published_grouped_gemms),
    cmocka_unit_test(test_published_attention),
    cmocka_unit_test(test_published_attention_in_a_window),
    cmocka_unit_test(test_attention_of_few_heads),
    cmocka_unit_test(test_attention_with_dropout),
    cmocka_unit_test(test_measured_strided_kernels),
    cmocka_unit_test(test_measured_row_casts),
    cmocka_unit_test(test_measured_norms),
    cmocka_unit_test(test_measured_eager_loss),
    cmocka_unit_test(test_measured_rotary_kernels),
    cmocka_unit_test(test_gradients_of_grouped_queries),
    cmocka_unit_test(test_attention_flops),
    cmocka_unit_test(test_attention_flops_in_a_window),
    cmocka_unit_test(test_time_of_windows),
    cmocka_unit_test(test_ideal_closed_forms),
    cmocka_unit_test(test_domain_of_several_hosts),
    cmocka_unit_test(test_collectives_by_size),
    cmocka_unit_test(test_collectives_of_two_ranks),
    cmocka_unit_test(test_token_exchanges),
    cmocka_unit_test(test_extreme_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
