/*
 * The reference executor on plans of real settings, without arithmetic: its own tally of device
 * memory, by the shapes of tensors, is what the plan requests by the bytes of buffers; every saved
 * tensor serves a backward; interleavings agree.
 */
#include "tests/unit/small_runs.h"

#include "ref/exec/interleavings.h"
#include "tests/unit/unread_saved.h"

enum { SEEDS = 24 };

/* clang-format off */
#define MODULES(list) \
  "offload: {fine_grained_activation_offloading: true, offload_modules: [" list "]}\n"
#define ALL_MODULES MODULES("core_attn, expert_fc1, moe_act, attn_norm, mlp_norm, attn_proj, qkv_linear")
#define PIPELINE(more)                                                                             \
  "model: {num_layers: 8}\ntraining: {global_batch_size: 8}\n"                                     \
  "parallel: {world_size: 2, pipeline_model_parallel_size: 2, use_distributed_optimizer: true" more "}\n"
#define CHECKPOINTS                                                                                \
  "recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}\n"
#define SYSTEM(words) "offload: {system: " words "}\n"
/* clang-format on */

static const struct {
  const char *base, *changes;
} cases[] = {
  { SMALL_DENSE, SYSTEM("none") },
  { SMALL_DENSE, MODULES("core_attn, attn_proj") },
  { SMALL_DENSE, PIPELINE("") MODULES("core_attn, attn_proj") },
  { SMALL_DENSE, PIPELINE(", num_layers_per_virtual_pipeline_stage: 2") MODULES("core_attn") },
  { SMALL_DENSE, SYSTEM("te_v1, cpu_offloading_num_layers: 1") },
  { SMALL_DENSE, CHECKPOINTS },
  { SMALL_DENSE,
    "parallel: {world_size: 4, tensor_model_parallel_size: 2, sequence_parallel: true}\n"
    "training: {global_batch_size: 4}\n" },
  { SMALL_DENSE, "parallel: {world_size: 2, context_parallel_size: 2}\n" },
  { SMALL_MOE, SYSTEM("none") },
  { SMALL_MOE, ALL_MODULES },
  { SMALL_MOE, SYSTEM("te_v2, cpu_offloading_num_layers: 1") },
  { SMALL_MOE, PIPELINE(", expert_model_parallel_size: 1") MODULES("expert_fc1, moe_act") },
  { SMALL_EAGER, SYSTEM("none") },
  { SMALL_EAGER, SYSTEM("trl") },
  { SMALL_EAGER, SYSTEM("trl_sync") },
  { SMALL_EAGER, SYSTEM("save_on_cpu") },
  { SMALL_EAGER, CHECKPOINTS SYSTEM("axolotl_disk") },
  { SMALL_EAGER, CHECKPOINTS SYSTEM("hidden_states") },
  { SMALL_EAGER, CHECKPOINTS SYSTEM("hidden_states_reentrant") },
  { SMALL_EAGER, CHECKPOINTS SYSTEM("selective_checkpointing") },
  { SMALL_EAGER, "lora: {adapter: lora}\n" SYSTEM("layer_offloading") },
  { SMALL_EAGER, "parallel: {fsdp: fsdp2}\n" SYSTEM("verl") },
};

/* ---- tally --------------------------------------------------------------------------------- */

static int64_t rounded(const rank_plan *p, uint32_t buffer)
{
  const plan_buffer *b = &p->buffers.items[buffer];
  return class_side((buffer_class)b->purpose) == ON_DEVICE ? (b->bytes + 511) / 512 * 512 : 0;
}

static void fail_at(const plan *p, uint32_t rank, uint32_t buffer, int64_t more)
{
  const plan_buffer *b = &p->ranks[rank].buffers.items[buffer];
  const plan_tensor *t = &p->tensors.items[b->tensor];
  fail_msg("rank %u: %%%u %s of %s has another size by its shape: the tally is %ld bytes more",
           rank, buffer, t->name, p->sites.items[t->site].module, (long)more);
}

static void check_tally(const ref_exec *e, const plan *whole, uint32_t rank)
{
  const rank_plan *p = &whole->ranks[rank];
  exec_tally found = ref_exec_tally(e, rank);
  int64_t bytes = 0, peak;
  for (uint32_t b = 0; b < p->residents; b++)
    bytes += rounded(p, b);
  peak = bytes;
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind == OP_ALLOC) bytes += rounded(p, o->arg);
    if (o->kind == OP_FREE) bytes -= rounded(p, o->arg);
    if (bytes > peak) peak = bytes;
    if (found.after_op[i] != bytes) fail_at(whole, rank, o->arg, found.after_op[i] - bytes);
  }
  assert_int_equal(found.peak_bytes, peak);
}

static void check_tallies(const plan *p, arena *a)
{
  diag d = { 0 };
  exec_layout layout = exec_layout_of_stages(p, a);
  ref_exec *e = ref_exec_new(&layout, &(ref_options){ .arithmetic = REF_OPAQUE }, NULL);
  exec_outcome end = ref_exec_iteration(e, p, &(exec_order){ 0 }, &(exec_step){ 0 }, &d);
  if (end == EXEC_WRONG) fail_msg("%s", ref_exec_finding(e));
  for (uint32_t r = 0; r < p->rank_count; r++)
    check_tally(e, p, r);
  ref_exec_release(e);
}

/* ---- saved tensors ------------------------------------------------------------------------- */

static void check_saved(const plan *p, arena *a)
{
  for (uint32_t r = 0; r < p->rank_count; r++) {
    uint32_t *unread = ARENA_ARRAY(a, uint32_t, p->ranks[r].buffers.count);
    if (unread_saved(p, r, unread) == 0) continue;
    const plan_tensor *t = &p->tensors.items[p->ranks[r].buffers.items[unread[0]].tensor];
    fail_msg("rank %u: no backward reads %%%u %s of %s", r, unread[0], t->name,
             p->sites.items[t->site].module);
  }
}

/* ---- orders -------------------------------------------------------------------------------- */

static void check_orders(const plan *p, const plan *before, arena *a)
{
  interleavings_result found = ref_interleavings(p, before, 0, SEEDS, a);
  if (!found.agree) fail_msg("seed %lu: %s", (unsigned long)found.seed, found.finding);
}

static void test_plans(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    arena a = { 0 };
    const settings *s = small_settings(cases[i].base, cases[i].changes, &a);
    compilation first, later;
    print_message("%s", cases[i].changes);
    small_compile(&first, s, ITERATION_WARMUP, &a);
    small_compile(&later, s, ITERATION_STEADY, &a);
    check_tallies(&first.plan, &a);
    check_tallies(&later.plan, &a);
    check_saved(&first.plan, &a);
    check_saved(&later.plan, &a);
    check_orders(&first.plan, NULL, &a);
    check_orders(&later.plan, &first.plan, &a);
    compilation_release(&first);
    compilation_release(&later);
    arena_release(&a);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_plans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
