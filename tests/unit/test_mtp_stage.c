/*
 * Multi-token prediction on a separate virtual stage: the decoder's final norm stays with the last
 * decoder layer, the prediction's stage sends the hidden states of all depths, and the losses of
 * the depths are taken where the main one is (Megatron-LM, transformer_block.py and gpt_model.py).
 */
#include "tests/unit/small_runs.h"

#include "sim/residents/parameters.h"

enum { HIDDEN_BYTES = 4096 * 1024 * 2, VIRTUAL_STAGES = 6 };

/* Two ranks of three chunks: the norm's stage is 3 (rank 1), the prediction's 4, the loss's 5. */
#define STANDALONE                                                                                 \
  "model: {num_layers: 4, mtp_num_layers: 2}\n"                                                    \
  "parallel: {pipeline_model_parallel_size: 2,\n"                                                  \
  "  pipeline_model_parallel_layout: 'Et|t|t|t|mm|L'}\n"                                           \
  "training: {global_batch_size: 2}\n"

/* Kernels of a module in forward and backward of one chunk, over both micro-batches. */
static uint32_t kernels_of(const run *r, uint32_t rank, uint32_t chunk, const char *module)
{
  const rank_plan *p = &r->compiled.plan.ranks[rank];
  plan_mark mark = p->marks.items[0];
  uint32_t found = 0;
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind == OP_MARK) mark = p->marks.items[o->arg];
    found += o->kind == OP_KERNEL && mark.kind != MARK_FINISH && mark.chunk == chunk &&
             strcmp(r->compiled.plan.sites.items[o->site].module, module) == 0;
  }
  return found;
}

static void test_the_final_norm_stays_with_the_decoder(void **state)
{
  run r;
  (void)state;
  run_begin(&r, SMALL_MOE, STANDALONE, ITERATION_STEADY);
  for (uint32_t stage = 0; stage < VIRTUAL_STAGES; stage++) {
    uint32_t rank = stage % 2, chunk = stage / 2;
    assert_int_equal(kernels_of(&r, rank, chunk, "final_layernorm") > 0, stage == 3);
    assert_int_equal(kernels_of(&r, rank, chunk, "mtp.eh_proj") > 0, stage == 4);
    assert_int_equal(kernels_of(&r, rank, chunk, "output_layer") > 0, stage == 5);
  }
  run_end(&r);
}

static uint32_t count_parameter(const parameter_list *list, const char *name)
{
  uint32_t found = 0;
  for (uint32_t i = 0; i < list->count; i++)
    found += strcmp(list->items[i].name, name) == 0;
  return found;
}

/* Both ranks: rank 1 has the norm and the output layer, rank 0 both depths and their embedding. */
static void test_parameters_stand_where_they_run(void **state)
{
  run r;
  (void)state;
  run_begin(&r, SMALL_MOE, STANDALONE, ITERATION_STEADY);
  parameter_list first = parameters_of_rank(r.settings, 0, &r.memory);
  parameter_list last = parameters_of_rank(r.settings, 1, &r.memory);
  assert_int_equal(count_parameter(&first, "final_layernorm.weight"), 0);
  assert_int_equal(count_parameter(&last, "final_layernorm.weight"), 1);
  assert_int_equal(count_parameter(&first, "mtp.eh_proj.weight"), 2);
  assert_int_equal(count_parameter(&last, "mtp.eh_proj.weight"), 0);
  run_end(&r);
}

/* Messages are ordered by boundary, micro-batch and direction. */
static void test_all_depths_are_sent(void **state)
{
  run r;
  (void)state;
  run_begin(&r, SMALL_MOE, STANDALONE, ITERATION_STEADY);
  const message_array *messages = &r.compiled.plan.messages;
  assert_int_equal(messages->count, (VIRTUAL_STAGES - 1) * 2 * 2);
  for (uint32_t i = 0; i < messages->count; i++) {
    uint32_t boundary = i / (2 * 2);
    assert_int_equal(messages->items[i].bytes, HIDDEN_BYTES * (boundary == 4 ? 3 : 1));
  }
  run_end(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_final_norm_stays_with_the_decoder),
    cmocka_unit_test(test_parameters_stand_where_they_run),
    cmocka_unit_test(test_all_depths_are_sent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
