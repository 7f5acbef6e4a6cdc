/*
 * Which gradients are summed over which ranks when the last backward is done: the plan of a layer with
 * experts that have biases, on two tensor parallel ranks with sequence parallelism.
 */
#include "tests/unit/small_runs.h"

#define EXPERTS_WITH_BIASES                                                                        \
  "model: {num_layers: 1, add_bias_linear: true, num_experts: 4, moe_ffn_hidden_size: 1024,\n"     \
  "  moe_router_topk: 2, moe_grouped_gemm: true, moe_token_dispatcher_type: alltoall}\n"           \
  "parallel: {world_size: 2, tensor_model_parallel_size: 2, sequence_parallel: true,\n"            \
  "  expert_tensor_parallel_size: 1}\n"

/* The only collective of a kind over a group after the last backward; NULL: none. */
static const plan_op *collective_over(const plan *p, collective_kind kind, comm_group group)
{
  const rank_plan *r = &p->ranks[0];
  const plan_op *found = NULL;
  bool is_finish = false;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind == OP_MARK) is_finish = r->marks.items[o->arg].kind == MARK_FINISH;
    if (!is_finish || o->kind != OP_COLLECTIVE) continue;
    const plan_call *call = &p->calls.items[o->arg];
    if (call->kind != kind || call->group != group) continue;
    assert_null(found);
    found = o;
  }
  return found;
}

/* Each rank has its own tokens in its experts, so the vectors of those are no parts of one sum. */
static void test_experts_are_not_summed_over_tensor_parallel_ranks(void **state)
{
  (void)state;
  run r;
  run_begin(&r, SMALL_DENSE, EXPERTS_WITH_BIASES, ITERATION_STEADY);
  const plan *p = r.plan;
  const uint32_t *operands = p->ranks[0].operands.items;
  const plan_op *experts = collective_over(p, COLLECTIVE_ALL_REDUCE, GROUP_EDP);
  const plan_op *dense = collective_over(p, COLLECTIVE_ALL_REDUCE, GROUP_TP);
  assert_true(experts != NULL && dense != NULL);
  assert_int_equal(experts->reads, 1);
  assert_int_equal(dense->reads,
                   6); /* two norms' gains, two biases, the last norm, the router's weight */
  for (uint32_t i = 0; i < dense->reads; i++)
    assert_int_not_equal(operands[dense->operands + i], operands[experts->operands]);
  run_end(&r);
}

/* The distributed optimizer gives each rank a part of the sums. */
static void test_the_distributed_optimizer_scatters(void **state)
{
  (void)state;
  static const char *const changes[] = {
    "parallel: {world_size: 2, use_distributed_optimizer: false}\n"
    "training: {global_batch_size: 2}\n",
    "parallel: {world_size: 2, use_distributed_optimizer: true}\n"
    "training: {global_batch_size: 2}\n",
  };
  for (int scatters = 0; scatters < 2; scatters++) {
    run r;
    run_begin(&r, SMALL_DENSE, changes[scatters], ITERATION_STEADY);
    const plan *p = r.plan;
    bool reduced = collective_over(p, COLLECTIVE_ALL_REDUCE, GROUP_DP) != NULL;
    bool scattered = collective_over(p, COLLECTIVE_REDUCE_SCATTER, GROUP_DP) != NULL;
    assert_int_equal(reduced, !scatters);
    assert_int_equal(scattered, scatters);
    run_end(&r);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_experts_are_not_summed_over_tensor_parallel_ranks),
    cmocka_unit_test(test_the_distributed_optimizer_scatters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
