/*
 * Plans of real settings: printed and read back, every field is the same, and so is the simulation.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/small_runs.h"

#include "sim/engine/engine.h"
#include "sim/plan/text.h"

static char *printed(const plan *p)
{
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  plan_print(out, p, NULL);
  fclose(out);
  return text;
}

/* ---- the same plan, with any numbering of its tables' rows ---- */

static void same_site(const plan *a, uint32_t x, const plan *b, uint32_t y)
{
  assert_int_equal(a->sites.items[x].layer, b->sites.items[y].layer);
  assert_string_equal(a->sites.items[x].module, b->sites.items[y].module);
}

static void same_buffer(const plan *a, const plan_buffer *x, const plan *b, const plan_buffer *y)
{
  assert_int_equal(x->bytes, y->bytes);
  assert_int_equal(x->mark, y->mark);
  assert_int_equal(x->purpose, y->purpose);
  assert_int_equal(x->stream, y->stream);
  assert_int_equal(x->host_key, y->host_key);
  const plan_tensor *t = &a->tensors.items[x->tensor], *u = &b->tensors.items[y->tensor];
  assert_string_equal(t->name, u->name);
  assert_int_equal(t->dtype, u->dtype);
  assert_int_equal(t->rank, u->rank);
  for (int i = 0; i < t->rank; i++)
    assert_int_equal(t->shape[i], u->shape[i]);
  same_site(a, t->site, b, u->site);
}

/* Whatever the rows of its views. */
static void same_call(const plan_call *x, const plan_call *y)
{
  plan_call call = *x;
  call.views = y->views;
  assert_int_equal(x->views == 0, y->views == 0);
  assert_memory_equal(&call, y, sizeof call);
}

static void same_op(const plan *a, const rank_plan *r, const plan_op *x, const plan *b,
                    const rank_plan *s, const plan_op *y)
{
  assert_int_equal(x->kind, y->kind);
  assert_int_equal(x->stream, y->stream);
  assert_int_equal(x->reads, y->reads);
  assert_int_equal(x->writes, y->writes);
  same_site(a, x->site, b, y->site);
  if (x->kind == OP_KERNEL || x->kind == OP_COLLECTIVE)
    same_call(&a->calls.items[x->arg], &b->calls.items[y->arg]);
  else if (x->kind != OP_D2H)
    assert_int_equal(x->arg, y->arg);
  if (x->kind == OP_FREE) assert_int_equal(x->operands, y->operands);
  for (uint32_t i = 0; i < (uint32_t)x->reads + x->writes; i++) {
    plan_view v = plan_op_view(a, x, i), w = plan_op_view(b, y, i);
    assert_int_equal(r->operands.items[x->operands + i], s->operands.items[y->operands + i]);
    assert_memory_equal(&v, &w, sizeof v);
  }
}

static void same_rank(const plan *a, const rank_plan *r, const plan *b, const rank_plan *s)
{
  assert_int_equal(r->residents, s->residents);
  assert_int_equal(r->events, s->events);
  assert_int_equal(r->marks.count, s->marks.count);
  for (uint32_t i = 0; i < r->marks.count; i++) {
    assert_int_equal(r->marks.items[i].kind, s->marks.items[i].kind);
    assert_int_equal(r->marks.items[i].microbatch, s->marks.items[i].microbatch);
    assert_int_equal(r->marks.items[i].chunk, s->marks.items[i].chunk);
  }
  assert_int_equal(r->buffers.count, s->buffers.count);
  for (uint32_t i = 0; i < r->buffers.count; i++)
    same_buffer(a, &r->buffers.items[i], b, &s->buffers.items[i]);
  assert_int_equal(r->ops.count, s->ops.count);
  for (uint32_t i = 0; i < r->ops.count; i++)
    same_op(a, r, &r->ops.items[i], b, s, &s->ops.items[i]);
}

static void same_plan(const plan *a, const plan *b)
{
  assert_int_equal(a->rank_count, b->rank_count);
  for (uint32_t r = 0; r < a->rank_count; r++)
    same_rank(a, &a->ranks[r], b, &b->ranks[r]);
  assert_int_equal(a->messages.count, b->messages.count);
  for (uint32_t i = 0; i < a->messages.count; i++)
    assert_memory_equal(&a->messages.items[i], &b->messages.items[i], sizeof(plan_message));
}

static void same_timeline(const plan *p, const plan *q, arena *a)
{
  diag d = { 0 };
  const machine *m = machine_load(a, "H100-SXM", &d);
  rank_place *places = ARENA_ARRAY(a, rank_place, p->rank_count);
  for (uint32_t r = 0; r < p->rank_count; r++)
    places[r] = (rank_place){ .host = 0, .gpu = r, .multiplicity = 1 };
  timeline t, u;
  assert_true(simulate(&t, p, m, places, &d));
  assert_true(simulate(&u, q, m, places, &d));
  assert_int_equal(t.step_ps, u.step_ps);
  for (uint32_t r = 0; r < p->rank_count; r++) {
    for (uint32_t i = 0; i < p->ranks[r].ops.count; i++) {
      assert_int_equal(op_start_ps(&t.ranks[r], i), op_start_ps(&u.ranks[r], i));
      assert_int_equal(op_end_ps(&t.ranks[r], i), op_end_ps(&u.ranks[r], i));
    }
  }
  timeline_release(&t);
  timeline_release(&u);
}

static void round_trip(const plan *p, arena *a)
{
  diag d = { 0 };
  plan q;
  char *text = printed(p);
  plan_parse(&q, "printed", text, strlen(text), a, &d);
  assert_string_equal(d.message, "");
  same_plan(p, &q);
  char *again = printed(&q);
  assert_string_equal(again, text);
  same_timeline(p, &q, a);
  free(text);
  free(again);
  plan_release(&q);
}

/* ---- settings ---- */

#define OFFLOAD(modules)                                                                           \
  "offload: {fine_grained_activation_offloading: true, offload_modules: [" modules "]}\n"
#define PIPELINE(virtual)                                                                          \
  "model: {num_layers: 8}\ntraining: {global_batch_size: 8}\n"                                     \
  "parallel: {world_size: 2, pipeline_model_parallel_size: 2, use_distributed_optimizer: "         \
  "true" virtual "}\n"

static void test_round_trips(void **state)
{
  (void)state;
  static const struct {
    const char *base, *changes;
  } cases[] = {
    { SMALL_DENSE, "offload: {system: none}\n" },
    { SMALL_DENSE, OFFLOAD("core_attn, attn_proj") },
    { SMALL_DENSE, "offload: {system: te_v1, cpu_offloading_num_layers: 1, "
                   "cpu_offloading_double_buffering: true}\n" },
    { SMALL_MOE, "offload: {system: te_v2, cpu_offloading_num_layers: 1}\n" },
    { SMALL_DENSE, PIPELINE("") OFFLOAD("core_attn, attn_proj") },
    { SMALL_DENSE, PIPELINE(", num_layers_per_virtual_pipeline_stage: 2") OFFLOAD("core_attn") },
    { SMALL_DENSE, "recompute: {recompute_granularity: full, recompute_method: uniform, "
                   "recompute_num_layers: 1}\n" },
    { SMALL_DENSE,
      "training: {global_batch_size: 4}\n"
      "parallel: {world_size: 4, tensor_model_parallel_size: 2, sequence_parallel: true}\n" },
    { SMALL_DENSE,
      "training: {fp8_format: hybrid, fp8_recipe: tensorwise, fp8_param_gather: true}\n"
      "parallel: {world_size: 2, tensor_model_parallel_size: 2, sequence_parallel: true, "
      "use_distributed_optimizer: true, tp_comm_overlap: true}\n" },
    { SMALL_MOE,
      OFFLOAD("core_attn, expert_fc1, moe_act, attn_norm, mlp_norm, attn_proj, qkv_linear") },
    { SMALL_MOE,
      "recompute: {recompute_granularity: selective, recompute_modules: [mla_up_proj]}\n" },
    { SMALL_MOE, PIPELINE(", expert_model_parallel_size: 1") OFFLOAD("expert_fc1, moe_act") },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < 2; k++) {
      run r;
      run_begin(&r, cases[i].base, cases[i].changes, k == 0 ? ITERATION_WARMUP : ITERATION_STEADY);
      round_trip(r.plan, &r.memory);
      run_end(&r);
    }
}

/* ---- the same plan, with the same rows ---- */

static void is_noticed(const plan *kept, const plan *changed, void *member)
{
  unsigned char *byte = member;
  *byte ^= 1;
  assert_false(plan_is_same(kept, changed));
  assert_false(plan_is_same(changed, kept));
  *byte ^= 1;
  assert_true(plan_is_same(kept, changed));
}

#define LAST(array) (&(array).items[(array).count - 1])

static void each_change_is_noticed(const plan *p, plan *q)
{
  rank_plan *r = &q->ranks[q->rank_count - 1];
  plan_buffer *b = LAST(r->buffers);
  plan_mark *m = LAST(r->marks);
  plan_tensor *t = LAST(q->tensors);
  void *members[] = {
    &q->rank_count,
    &q->global_ranks,
    &r->residents,
    &r->events,
    &LAST(r->ops)->kind,
    &LAST(r->ops)->arg,
    &LAST(r->ops)->site,
    &r->ops.count,
    LAST(r->operands),
    &r->operands.count,
    &b->bytes,
    &b->tensor,
    &b->mark,
    &b->purpose,
    &b->stream,
    &b->filled,
    &b->host_key,
    &r->buffers.count,
    &m->kind,
    &m->microbatch,
    &m->chunk,
    &r->marks.count,
    &LAST(q->calls)->bytes,
    &q->calls.count,
    &LAST(q->views)->offset,
    &q->views.count,
    &LAST(q->messages)->bytes,
    &q->messages.count,
    &t->site,
    &t->dtype,
    &t->rank,
    &t->shape[t->rank - 1],
    &q->tensors.count,
    &LAST(q->sites)->layer,
    &q->sites.count,
  };
  assert_true(t->rank > 0);
  for (size_t i = 0; i < sizeof members / sizeof *members; i++)
    is_noticed(p, q, members[i]);
  const char *name = t->name, *module = LAST(q->sites)->module;
  t->name = "another";
  assert_false(plan_is_same(p, q));
  t->name = name;
  LAST(q->sites)->module = "another";
  assert_false(plan_is_same(p, q));
  LAST(q->sites)->module = module;
  assert_true(plan_is_same(p, q));
}

static void test_same_plans(void **state)
{
  (void)state;
  arena a = { 0 };
  compilation c, d;
  const char *changes = PIPELINE("") OFFLOAD("core_attn, attn_proj");
  small_compile(&c, small_settings(SMALL_DENSE, changes, &a), ITERATION_STEADY, &a);
  small_compile(&d, small_settings(SMALL_DENSE, changes, &a), ITERATION_STEADY, &a);
  assert_true(plan_is_same(&c.plan, &d.plan));
  each_change_is_noticed(&c.plan, &d.plan);
  compilation_release(&c);
  compilation_release(&d);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_round_trips),
    cmocka_unit_test(test_same_plans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
