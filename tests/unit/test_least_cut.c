/* The flow of small networks, against all cuts. */
#include "sim/predict/least_cut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/base/units.h"

enum { MOST_NODES = 9, MOST_EDGES = 24, NETWORKS = 2000 };

typedef struct drawn_edge {
  uint32_t from, to;
  int64_t capacity;
} drawn_edge;

static uint32_t draw(uint32_t *state, uint32_t below)
{
  *state = *state * 1664525 + 1013904223;
  return (*state >> 8) % below;
}

/* Bit of a node: it is on the source's side. */
static int64_t least_cut(const drawn_edge *edges, uint32_t edge_count, uint32_t node_count)
{
  int64_t least = INT64_MAX;
  for (uint32_t side = 0; side < UINT32_C(1) << node_count; side++) {
    int64_t sum = 0;
    if ((side >> NETWORK_SOURCE & 1) == 0 || (side >> NETWORK_SINK & 1) == 1) continue;
    for (uint32_t i = 0; i < edge_count; i++)
      if ((side >> edges[i].from & 1) && !(side >> edges[i].to & 1)) sum += edges[i].capacity;
    least = min_i64(least, sum);
  }
  return least;
}

static void test_all_cuts(void **state)
{
  (void)state;
  uint32_t seed = 1;
  drawn_edge edges[MOST_EDGES];
  for (int i = 0; i < NETWORKS; i++) {
    network n = { 0 };
    uint32_t nodes = NETWORK_NODES + 1 + draw(&seed, MOST_NODES - NETWORK_NODES);
    uint32_t count = draw(&seed, MOST_EDGES + 1);
    for (uint32_t k = NETWORK_NODES; k < nodes; k++)
      assert_int_equal(network_node(&n), k);
    for (uint32_t k = 0; k < count; k++) {
      edges[k] = (drawn_edge){ draw(&seed, nodes), draw(&seed, nodes), draw(&seed, 20) };
      network_edge(&n, edges[k].from, edges[k].to, edges[k].capacity);
    }
    assert_true(network_flow(&n) == least_cut(edges, count, nodes));
    network_free(&n);
  }
}

static void test_no_limit(void **state)
{
  (void)state;
  network n = { 0 };
  uint32_t a = network_node(&n);
  network_edge(&n, NETWORK_SOURCE, a, CAP);
  network_edge(&n, a, NETWORK_SINK, 5);
  assert_int_equal(network_flow(&n), 5);
  network_edge(&n, a, NETWORK_SINK, 7);
  assert_int_equal(network_flow(&n), 7);
  network_free(&n);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all_cuts),
    cmocka_unit_test(test_no_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
