/* The graph builder: tensors, views, sites, markers, in the order in which they were added. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sim/graph/graph.h"
#include "sim/graph/node.h"
#include "sim/operators/operators.h"

typedef struct fixture {
  arena memory;
  graph *g;
} fixture;

static int set_up(void **state)
{
  static fixture f;
  f.memory = (arena){ 0 };
  f.g = graph_new(&f.memory);
  *state = &f;
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  graph_release(f->g);
  arena_release(&f->memory);
  return 0;
}

static void a_view_shares_the_storage_and_names_what_it_views(void **state)
{
  graph *g = ((fixture *)*state)->g;
  tensor_id x = graph_tensor_new(g, "x", DTYPE_BF16, 4, 2, 8, 0);
  tensor_id rows = graph_view(g, "rows", x, true, 8, 8, 0, 0);
  tensor_id part = graph_view(g, "part", rows, false, 8, 2, 0, 0);
  assert_int_equal(tensor_storage(g, part), x);
  assert_int_equal(g->tensors.items[part].parent, rows);
  assert_int_equal(g->tensors.items[part].rank, 2);
  assert_int_equal(tensor_bytes(g, x), 128);
  assert_int_equal(tensor_bytes(g, part), 32);
  assert_false(g->tensors.items[part].contiguous);
}

static void a_tensor_of_no_rows_is_empty(void **state)
{
  graph *g = ((fixture *)*state)->g;
  tensor_id none = graph_tensor_new(g, "none", DTYPE_FP32, 0, 0, 0, 0);
  tensor_id rows = graph_tensor_new(g, "rows", DTYPE_BF16, 0, 64, 0, 0);
  tensor_id inside = graph_tensor_new(g, "inside", DTYPE_BF16, 3, 0, 2, 0);
  assert_int_equal(g->tensors.items[none].rank, 1);
  assert_int_equal(g->tensors.items[rows].rank, 2);
  assert_int_equal(g->tensors.items[inside].rank, 3);
  assert_int_equal(tensor_bytes(g, none), 0);
  assert_int_equal(tensor_bytes(g, rows), 0);
  assert_int_equal(tensor_bytes(g, inside), 0);
}

static void parameters_are_never_offloaded(void **state)
{
  graph *g = ((fixture *)*state)->g;
  tensor_id w = graph_parameter(g, "weight", DTYPE_BF16, 16, 8);
  assert_true(g->tensors.items[w].parameter);
  assert_true(g->tensors.items[w].not_offloadable);
}

static void a_module_has_one_site_in_a_layer_and_another_in_the_next(void **state)
{
  graph *g = ((fixture *)*state)->g;
  graph_layer_begin(g, 0);
  graph_site(g, "mlp");
  uint32_t first = g->site;
  graph_site(g, "mlp.linear_fc1");
  graph_site(g, "mlp");
  assert_int_equal(g->site, first);
  graph_layer_end(g);
  graph_layer_begin(g, 1);
  graph_site(g, "mlp");
  assert_int_not_equal(g->site, first);
  assert_int_equal(g->sites.items[g->site].layer, 1);
}

static void markers_stand_where_they_were_put(void **state)
{
  graph *g = ((fixture *)*state)->g;
  tensor_id x = graph_tensor_new(g, "x", DTYPE_BF16, 4, 0, 0, 0);
  tensor_id y = graph_tensor_new(g, "y", DTYPE_BF16, 4, 0, 0, 0);
  graph_layer_begin(g, 3);
  group_id group = graph_group_start(g, "core_attn");
  region_id region = graph_region_begin(g, REGION_DISCARD, &x, 1);
  graph_node *n = graph_add(g, &operator_copy);
  node_input(n, x);
  node_output(n, y);
  node_output(n, 0);
  graph_region_end(g, region, y);
  graph_group_hooks_end(g, group);
  graph_group_release(g, group, x);
  graph_group_commit(g, group);
  graph_discard(g, region);
  graph_keep(g, x);
  graph_layer_end(g);

  static const item_kind expected[] = { ITEM_LAYER_BEGIN,  ITEM_GROUP_START, ITEM_REGION_BEGIN,
                                        ITEM_NODE,         ITEM_REGION_END,  ITEM_GROUP_HOOKS_END,
                                        ITEM_GROUP_COMMIT, ITEM_DISCARD,     ITEM_KEEP,
                                        ITEM_LAYER_END };
  assert_int_equal(g->items.count, sizeof expected / sizeof expected[0]);
  for (uint32_t i = 0; i < g->items.count; i++)
    assert_int_equal(g->items.items[i].kind, expected[i]);
  assert_int_equal(g->groups.items[group].layer, 3);
  assert_int_equal(g->groups.items[group].released[0], x);
  assert_int_equal(g->nodes.items[1].outputs[1], 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_view_shares_the_storage_and_names_what_it_views, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(a_tensor_of_no_rows_is_empty, set_up, tear_down),
    cmocka_unit_test_setup_teardown(parameters_are_never_offloaded, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_module_has_one_site_in_a_layer_and_another_in_the_next,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(markers_stand_where_they_were_put, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
