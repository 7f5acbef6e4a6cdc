/* Max-min fair sharing: measured tables, properties of random cases, and the links of a host. */
#include "sim/machine/link_share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "sim/base/units.h"

/* ---- measured hosts ---- */

static const machine *load(arena *a, const char *name)
{
  diag d = { 0 };
  const machine *m = machine_load(a, name, &d);

  if (m == NULL) fail_msg("%s", d.message);
  return m;
}

enum { BOTH = 2 };

/* Rate of the slowest flow when `gpus` GPUs copy in `direction`. */
static int64_t slowest(const machine *m, uint32_t gpus, int direction)
{
  host_flow flows[LINK_SHARE_FLOWS];
  uint32_t count = 0;
  int64_t rate = LINK_UNLIMITED;

  for (uint32_t g = 0; g < gpus; g++)
    for (int way = LINK_D2H; way <= LINK_H2D; way++)
      if (direction == way || direction == BOTH)
        flows[count++] = (host_flow){ .gpu = g,
                                      .group = g / (uint32_t)m->host.gpus_per_group,
                                      .direction = (link_direction)way,
                                      .multiplicity = 1 };
  link_share_host(m, flows, count);
  for (uint32_t i = 0; i < count; i++)
    rate = min_i64(rate, flows[i].rate_bytes_per_us);
  return rate;
}

static void assert_near(int64_t got, int64_t measured, int64_t percent, const char *what,
                        uint32_t gpus)
{
  int64_t off = got > measured ? got - measured : measured - got;

  printf("%s, %u GPUs: %lld of measured %lld\n", what, gpus, (long long)got, (long long)measured);
  assert_true(off * 100 <= measured * percent);
}

/* MB/s per GPU and direction, measured on 8 H200 in a cloud virtual machine, 2026-11. */
static void test_measured_h200_vm(void **state)
{
  static const struct {
    uint32_t gpus;
    int64_t d2h, h2d, both;
  } rows[] = { { 1, 55200, 53900, 48100 },
               { 2, 42500, 54700, 33100 },
               { 4, 20400, 32700, 15000 },
               { 8, 12700, 22500, 8200 } };
  arena a = { 0 };
  const machine *m = load(&a, "H200-SXM-vm");
  (void)state;

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    assert_near(slowest(m, rows[i].gpus, LINK_D2H), rows[i].d2h, 3, "D2H", rows[i].gpus);
    assert_near(slowest(m, rows[i].gpus, LINK_H2D), rows[i].h2d, 4, "H2D", rows[i].gpus);
    assert_near(slowest(m, rows[i].gpus, BOTH), rows[i].both, 5, "both", rows[i].gpus);
  }
  arena_release(&a);
}

/* The published listing of a bare-metal host: 8 x 45, 8 x 55, 8 x 22.5 each way. */
static void test_bare_metal_host(void **state)
{
  arena a = { 0 };
  const machine *m = load(&a, "H100-SXM");
  (void)state;

  assert_near(slowest(m, 8, LINK_D2H), 45000, 1, "D2H", 8);
  assert_near(slowest(m, 8, LINK_H2D), 55200, 1, "H2D", 8);
  assert_near(slowest(m, 8, BOTH), 22500, 1, "both", 8);
  assert_int_equal(slowest(m, 1, LINK_D2H), m->link.d2h_bytes_per_us);
  arena_release(&a);
}

static void test_ideal_host_shares_nothing(void **state)
{
  arena a = { 0 };
  const machine *m = load(&a, "ideal");
  (void)state;

  for (uint32_t gpus = 1; gpus <= 8; gpus++)
    assert_int_equal(slowest(m, gpus, BOTH), m->link.d2h_bytes_per_us);
  arena_release(&a);
}

/* One flow that represents four GPUs gets what each of four flows gets. */
static void test_multiplicity_equals_repetition(void **state)
{
  arena a = { 0 };
  const machine *m = load(&a, "H200-SXM-vm");
  host_flow flow = { .gpu = 0, .direction = LINK_D2H, .multiplicity = 4 };
  (void)state;

  link_share_host(m, &flow, 1);
  assert_int_equal(flow.rate_bytes_per_us, slowest(m, 4, LINK_D2H));
  arena_release(&a);
}

/* Memory of another socket has a rate of its own; both GPUs of a pair get it. */
static void test_memory_of_another_socket(void **state)
{
  arena a = { 0 };
  const machine *m = load(&a, "GB200");
  host_flow flows[] = { { .gpu = 0, .direction = LINK_D2H, .multiplicity = 1, .far = true },
                        { .gpu = 1, .direction = LINK_D2H, .multiplicity = 1 } };
  (void)state;

  link_share_host(m, flows, 2);
  assert_int_equal(flows[0].rate_bytes_per_us, 115000);
  assert_int_equal(flows[1].rate_bytes_per_us, 194000);
  arena_release(&a);
}

/* Two and three GPUs of four have limits; numbers between them are interpolated. */
static void test_some_of_the_gpus(void **state)
{
  arena a = { 0 };
  machine m = *load(&a, "ideal");
  const contention some[] = { { 2, 100000, 90000, 160000 }, { 3, 120000, 120000, 190000 } };
  (void)state;

  m.link.d2h_bytes_per_us = m.link.h2d_bytes_per_us = 55000;
  m.link.duplex_bytes_per_us = 100000;
  m.host.gpus = m.host.gpus_per_group = 4;
  m.host.d2h_bytes_per_us = m.host.h2d_bytes_per_us = 140000;
  m.host.duplex_bytes_per_us = 200000;
  m.at_once = (contention_list){ some, 2 };
  assert_int_equal(slowest(&m, 1, LINK_D2H), 55000);
  assert_int_equal(slowest(&m, 1, BOTH), 50000);
  assert_int_equal(slowest(&m, 2, LINK_D2H), 50000);
  assert_int_equal(slowest(&m, 2, LINK_H2D), 45000);
  assert_int_equal(slowest(&m, 2, BOTH), 40000);
  assert_int_equal(slowest(&m, 3, LINK_D2H), 40000);
  assert_int_equal(slowest(&m, 4, LINK_D2H), 35000);
  assert_int_equal(slowest(&m, 4, BOTH), 25000);
  host_flow flows[] = { { .gpu = 0, .direction = LINK_D2H, .multiplicity = 1 },
                        { .gpu = 0, .direction = LINK_H2D, .multiplicity = 1 },
                        { .gpu = 1, .direction = LINK_D2H, .multiplicity = 3 } };
  link_share_host(&m, flows, 3); /* five halves: 175000; four go out: 140000 */
  assert_int_equal(flows[2].rate_bytes_per_us, 35000);
  arena_release(&a);
}

/* ---- random cases ---- */

enum { CASES = 3000 };

typedef struct share_case {
  int64_t capacity[12];
  uint32_t resource_count;
  link_flow flows[LINK_SHARE_FLOWS];
  uint32_t flow_count;
} share_case;

static uint32_t next_random(uint64_t *seed)
{
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*seed >> 33);
}

static void make_case(share_case *c, uint64_t *seed)
{
  c->resource_count = 1 + next_random(seed) % 12;
  c->flow_count = 1 + next_random(seed) % (next_random(seed) % 4 ? 8 : LINK_SHARE_FLOWS);
  for (uint32_t r = 0; r < c->resource_count; r++)
    c->capacity[r] = next_random(seed) % 5 ? 1 + next_random(seed) % 100000 : LINK_UNLIMITED;
  for (uint32_t f = 0; f < c->flow_count; f++) {
    link_flow *flow = &c->flows[f];
    uint32_t first = next_random(seed) % c->resource_count;
    flow->use_count =
        1 + next_random(seed) %
                (c->resource_count < LINK_SHARE_USES ? c->resource_count : LINK_SHARE_USES);
    for (uint32_t u = 0; u < flow->use_count; u++)
      flow->uses[u] = (link_use){ (first + u) % c->resource_count, 1 + next_random(seed) % 4 };
  }
}

typedef struct resource_sum {
  int64_t used, weight, fastest;
} resource_sum;

static void sum_up(const share_case *c, resource_sum *sums)
{
  for (uint32_t r = 0; r < c->resource_count; r++)
    sums[r] = (resource_sum){ 0 };
  for (uint32_t f = 0; f < c->flow_count; f++)
    for (uint32_t u = 0; u < c->flows[f].use_count; u++) {
      resource_sum *s = &sums[c->flows[f].uses[u].resource];
      if (c->capacity[c->flows[f].uses[u].resource] == LINK_UNLIMITED) continue;
      s->used += c->flows[f].rate_bytes_per_us * c->flows[f].uses[u].weight;
      s->weight += c->flows[f].uses[u].weight;
      s->fastest = max_i64(s->fastest, c->flows[f].rate_bytes_per_us);
    }
}

/* Full (but for less than a unit per flow), and no flow on it is faster. This is max-min
 * fairness. */
static bool is_bottleneck(const share_case *c, const resource_sum *sums, uint32_t r,
                          const link_flow *f)
{
  return c->capacity[r] != LINK_UNLIMITED && c->capacity[r] - sums[r].used < sums[r].weight &&
         sums[r].fastest == f->rate_bytes_per_us;
}

static void check_case(const share_case *c)
{
  resource_sum sums[12];

  sum_up(c, sums);
  for (uint32_t r = 0; r < c->resource_count; r++)
    assert_true(sums[r].used <= c->capacity[r]);
  for (uint32_t f = 0; f < c->flow_count; f++) {
    const link_flow *flow = &c->flows[f];
    bool bound = flow->rate_bytes_per_us == LINK_UNLIMITED;
    for (uint32_t u = 0; u < flow->use_count; u++)
      bound |= is_bottleneck(c, sums, flow->uses[u].resource, flow);
    assert_true(bound);
  }
}

static int64_t share_minimum(share_case *c)
{
  int64_t minimum = LINK_UNLIMITED;

  link_share(c->capacity, c->resource_count, c->flows, c->flow_count);
  for (uint32_t f = 0; f < c->flow_count; f++)
    minimum = min_i64(minimum, c->flows[f].rate_bytes_per_us);
  return minimum;
}

static void test_random_cases_are_max_min_fair(void **state)
{
  uint64_t seed = 20261121;
  share_case c;
  (void)state;

  for (int i = 0; i < CASES; i++) {
    make_case(&c, &seed);
    int64_t minimum = share_minimum(&c);
    check_case(&c);
    uint32_t r = next_random(&seed) % c.resource_count;
    if (c.capacity[r] != LINK_UNLIMITED) c.capacity[r] += next_random(&seed) % 50000;
    assert_true(share_minimum(&c) >= minimum);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_measured_h200_vm),
    cmocka_unit_test(test_bare_metal_host),
    cmocka_unit_test(test_ideal_host_shares_nothing),
    cmocka_unit_test(test_multiplicity_equals_repetition),
    cmocka_unit_test(test_memory_of_another_socket),
    cmocka_unit_test(test_some_of_the_gpus),
    cmocka_unit_test(test_random_cases_are_max_min_fair),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
