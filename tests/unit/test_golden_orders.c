/*
 * Issue orders of Megatron's real offload manager, found in the plans of small real scenarios: from
 * settings through model, schedule and policy to ops. The expected orders come from the manager's
 * control flow, run with stubbed streams and tensors; test_megatron_policy.c tests only the policy.
 *
 *     F1       forward of micro-batch 1
 *     B0       backward of micro-batch 0
 *     l1c      backward of module c of layer 1
 *     l1c!     ... after a copy back on the compute stream itself
 *     Dl0c     group c of layer 0 goes to the host
 *     Hl0c     ... comes back on the h2d stream
 *     Hm1l0c   ... of micro-batch 1, while another one is current
 */
#include "tests/unit/small_runs.h"

#include <stdio.h>
#include <stdlib.h>

enum { LOG_BYTES = 4096 };
#define NOTHING UINT32_MAX

/* The letter of each group, and the module whose kernels are the group's own backward. */
static const struct {
  const char *group, *module;
  char letter;
} names[] = {
  { "attn_norm", "input_layernorm", 'n' },
  { "qkv_linear", "self_attention.linear_q_up_proj", 'q' },
  { "core_attn", "self_attention.core_attention", 'c' },
  { "attn_proj", "self_attention.linear_proj", 'p' },
  { "mlp_norm", "pre_mlp_layernorm", 'm' },
  { "expert_fc1", "mlp.experts.linear_fc1", 'f' },
  { "moe_act", "mlp.experts.activation_func", 'a' },
};

enum { NAMES = sizeof names / sizeof names[0] };

typedef struct group_ref {
  uint32_t name;  /* index into names, NOTHING: none */
  uint32_t layer; /* counted from the rank's first */
} group_ref;

typedef struct reading {
  const compilation *compiled;
  const rank_plan *rank;
  group_ref *of_tensor; /* by plan.tensors: the group that copies it */
  bool one_name;        /* letters are left out */
  int32_t first_layer;
  bool inline_copy[NAMES][16]; /* the group has come back on the compute stream */
  char last[32];               /* the token before: a group is several ops */
  char log[LOG_BYTES];
} reading;

static uint32_t name_of_group(const char *group)
{
  for (uint32_t i = 0; i < NAMES; i++)
    if (strcmp(names[i].group, group) == 0) return i;
  return NOTHING;
}

static uint32_t name_of_module(const char *module)
{
  for (uint32_t i = 0; i < NAMES; i++)
    if (strcmp(names[i].module, module) == 0) return i;
  return NOTHING;
}

static void find_groups(reading *r, uint32_t pp_rank)
{
  const compilation *c = r->compiled;
  r->of_tensor = calloc(c->plan.tensors.count, sizeof *r->of_tensor);
  for (uint32_t i = 0; i < c->plan.tensors.count; i++)
    r->of_tensor[i].name = NOTHING;
  for (uint32_t k = 0; k < c->shapes[pp_rank].chunk_count; k++) {
    const chunk_program *p = c->programs[pp_rank][k];
    for (uint32_t i = 1; i < p->entries.count; i++) {
      const saved_entry *e = &p->entries.items[i];
      const saved_group *g = &p->groups.items[e->group];
      if (e->group != 0)
        r->of_tensor[e->tensor] =
            (group_ref){ name_of_group(g->name), (uint32_t)(g->layer - r->first_layer) };
    }
  }
}

static void write_token(reading *r, const char *token)
{
  if (strcmp(r->last, token) == 0) return;
  snprintf(r->last, sizeof r->last, "%s", token);
  size_t used = strlen(r->log);
  snprintf(r->log + used, sizeof r->log - used, "%s%s", used == 0 ? "" : " ", token);
}

static void write_group(reading *r, const char *before, group_ref g, const char *after)
{
  char token[32];
  char letter[2] = { r->one_name ? '\0' : names[g.name].letter, '\0' };
  snprintf(token, sizeof token, "%sl%u%s%s", before, g.layer, letter, after);
  write_token(r, token);
}

static void read_copy(reading *r, const plan_op *o, const plan_mark *now)
{
  uint32_t host = r->rank->operands.items[o->operands + (o->kind == OP_D2H ? 1 : 0)];
  const plan_buffer *b = &r->rank->buffers.items[host];
  group_ref g = r->of_tensor[b->tensor];
  uint32_t microbatch = r->rank->marks.items[b->mark].microbatch;
  char before[16] = "D";
  if (o->kind == OP_H2D && o->stream == STREAM_COMPUTE) {
    r->inline_copy[g.name][g.layer] = true;
    return;
  }
  if (o->kind == OP_H2D && microbatch == now->microbatch)
    snprintf(before, sizeof before, "H");
  else if (o->kind == OP_H2D)
    snprintf(before, sizeof before, "Hm%u", microbatch);
  write_group(r, before, g, "");
}

static void read_kernel(reading *r, const plan_op *o)
{
  const plan_site *site = &r->compiled->plan.sites.items[o->site];
  uint32_t name = name_of_module(site->module);
  if (name == NOTHING) return;
  group_ref g = { name, (uint32_t)(site->layer - r->first_layer) };
  bool offloads = false;
  for (uint32_t i = 0; i < r->compiled->plan.tensors.count; i++)
    offloads |= r->of_tensor[i].name == name;
  if (offloads) write_group(r, "", g, r->inline_copy[name][g.layer] ? "!" : "");
}

static void read_plan(reading *r)
{
  const plan_mark *now = &r->rank->marks.items[0];
  char token[32];
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == OP_MARK) {
      now = &r->rank->marks.items[o->arg];
      bool forward = now->kind == MARK_FORWARD;
      if (!forward && now->kind != MARK_BACKWARD) continue;
      snprintf(token, sizeof token, "%s%s%u", r->log[0] ? "| " : "", forward ? "F" : "B",
               now->microbatch);
      write_token(r, token);
      memset(r->inline_copy, 0, sizeof r->inline_copy);
    } else if (o->kind == OP_D2H || o->kind == OP_H2D) {
      read_copy(r, o, now);
    } else if (o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE && now->kind == MARK_BACKWARD) {
      read_kernel(r, o);
    }
  }
}

static void check_order(const char *base, const char *changes, uint32_t pp_rank,
                        iteration_kind iteration, const char *expected)
{
  arena a = { 0 };
  compilation c;
  const settings *s = small_settings(base, changes, &a);
  small_compile(&c, s, iteration, &a);
  reading *r = ARENA_NEW(&a, reading);
  r->compiled = &c;
  r->rank = &c.plan.ranks[pp_rank];
  r->one_name = s->offload.offload_modules.count == 1;
  r->first_layer = (int32_t)(pp_rank * 2);
  find_groups(r, pp_rank);
  read_plan(r);
  assert_string_equal(r->log, expected);
  free(r->of_tensor);
  compilation_release(&c);
  arena_release(&a);
}

#define OFFLOAD(modules)                                                                           \
  "offload: {fine_grained_activation_offloading: true, offload_modules: [" modules "]}\n"

static void test_one_module(void **state)
{
  (void)state;
  static const char three[] = "model: {num_layers: 3}\n"
                              "training: {global_batch_size: 2}\n" OFFLOAD("core_attn");
  check_order(SMALL_DENSE, three, 0, ITERATION_STEADY,
              "F0 Dl0 Dl1 | B0 l2 Hl1 l1 Hl0 l0 | F1 Dl0 Dl1 | B1 l2 Hl1 l1 Hl0 l0");
  static const char once[] = "model: {num_layers: 3}\n" OFFLOAD("core_attn");
  check_order(SMALL_DENSE, once, 0, ITERATION_WARMUP, "F0 Dl0 Dl1 Dl2 | B0 l2! l1! l0!");
}

static void test_four_modules(void **state)
{
  (void)state;
  check_order(SMALL_MOE, OFFLOAD("core_attn, attn_proj, expert_fc1, moe_act"), 0, ITERATION_STEADY,
              "F0 Dl0c Dl0p Dl0f Dl0a | "
              "B0 l1a Hl0a l1f Hl0f l1p Hl0p l1c Hl0c l0a l0f l0p l0c");
}

/* The stack has the order of commits, which is not that of backward. */
static void test_seven_modules(void **state)
{
  (void)state;
  check_order(SMALL_MOE,
              OFFLOAD("attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act"),
              0, ITERATION_STEADY,
              "F0 Dl0q Dl0c Dl0p Dl0n Dl0f Dl0a Dl0m | "
              "B0 l1a Hl0m l1f Hl0a l1m Hl0f l1p Hl0n l1c Hl0p l1q Hl0c l1n Hl0q "
              "l0a l0f l0m l0p l0c l0q l0n");
}

#define TWO_STAGES(microbatches)                                                                   \
  "model: {num_layers: 4}\nparallel: {pipeline_model_parallel_size: 2}\n"                          \
  "training: {global_batch_size: " microbatches "}\n" OFFLOAD("core_attn")

static void test_first_of_two_stages(void **state)
{
  (void)state;
  check_order(SMALL_DENSE, TWO_STAGES("3"), 0, ITERATION_STEADY,
              "F0 Dl0 | F1 Dl0 Dl1 | B0 l1 Hl0 l0 Hm1l1 | F2 Dl0 Dl1 | "
              "B1 l1 Hl0 l0 Hm2l1 | B2 l1 Hl0 l0");
}

static void test_last_of_two_stages(void **state)
{
  (void)state;
  check_order(SMALL_DENSE, TWO_STAGES("2"), 1, ITERATION_STEADY,
              "F0 Dl0 | B0 l1 Hl0 l0 | F1 Dl0 | B1 l1 Hl0 l0");
}

/* ---- residency ---- */

/* A group's own saved storages are query, key and value: attention's output serves the projection
 * too. */
static bool *own_tensors(const compilation *c, uint32_t pp_rank)
{
  const chunk_program *p = c->programs[pp_rank][0];
  bool *own = calloc(c->plan.tensors.count, sizeof *own);
  for (uint32_t i = 1; i < p->entries.count; i++) {
    const saved_entry *e = &p->entries.items[i];
    bool shared = e->group == 0 || e->bytes < 1 << 20;
    for (uint32_t k = 1; k < p->entries.count; k++)
      shared |= p->entries.items[k].slot == e->slot && p->entries.items[k].group != e->group;
    if (!shared) own[e->tensor] = own[p->places.items[e->slot].tensor] = true;
  }
  return own;
}

static int64_t group_bytes(const compilation *c, uint32_t pp_rank)
{
  const chunk_program *p = c->programs[pp_rank][0];
  bool *own = own_tensors(c, pp_rank);
  int64_t bytes = 0;
  for (uint32_t i = 1; i < p->entries.count; i++)
    if (p->entries.items[i].group == 1 && own[p->entries.items[i].tensor])
      bytes += p->entries.items[i].storage_bytes;
  free(own);
  return bytes;
}

typedef struct residency {
  int64_t forward_end, peak; /* in groups */
} residency;

static residency measure(const compilation *c, uint32_t pp_rank)
{
  const rank_plan *r = &c->plan.ranks[pp_rank];
  bool *own = own_tensors(c, pp_rank);
  residency out = { 0 };
  int64_t now = 0;
  bool in_forward = false;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind == OP_MARK) {
      if (in_forward && now > out.forward_end) out.forward_end = now;
      in_forward = r->marks.items[o->arg].kind == MARK_FORWARD;
    }
    if (o->kind != OP_ALLOC && o->kind != OP_FREE) continue;
    const plan_buffer *b = &r->buffers.items[o->arg];
    if (!own[b->tensor] || (b->purpose != CLASS_SAVED && b->purpose != CLASS_RELOAD)) continue;
    now += o->kind == OP_ALLOC ? b->bytes : -b->bytes;
    out.peak = now > out.peak ? now : out.peak;
  }
  assert_int_equal(now, 0);
  free(own);
  int64_t unit = group_bytes(c, pp_rank);
  assert_int_equal(out.peak % unit, 0);
  return (residency){ out.forward_end / unit, out.peak / unit };
}

/* No tensor is large enough to leave: the graph has the groups, but nothing moves. */
static residency measure_system(const char *changes, bool offload, uint32_t pp_rank)
{
  arena a = { 0 };
  compilation c;
  settings *s = small_settings(SMALL_DENSE, changes, &a);
  if (!offload) s->offload.min_offloaded_tensor_size = INT64_MAX;
  small_compile(&c, s, ITERATION_STEADY, &a);
  residency out = measure(&c, pp_rank);
  compilation_release(&c);
  arena_release(&a);
  return out;
}

static void test_residency(void **state)
{
  (void)state;
  static const char four[] =
      "model: {num_layers: 16}\nparallel: {pipeline_model_parallel_size: 4}\n"
      "training: {global_batch_size: 8}\n" OFFLOAD("core_attn");
  static const char one[] = "model: {num_layers: 8}\n" OFFLOAD("core_attn");
  static const struct {
    const char *changes;
    uint32_t rank;
    int64_t without, forward_end, peak;
  } cases[] = {
    { four, 0, 16, 1, 2 }, { four, 1, 12, 1, 2 }, { four, 2, 8, 1, 2 },
    { four, 3, 4, 1, 1 },  { one, 0, 8, 1, 1 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    residency none = measure_system(cases[i].changes, false, cases[i].rank);
    residency with = measure_system(cases[i].changes, true, cases[i].rank);
    assert_int_equal(none.peak, cases[i].without);
    assert_int_equal(with.forward_end, cases[i].forward_end);
    assert_int_equal(with.peak, cases[i].peak);
  }
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one_module),         cmocka_unit_test(test_four_modules),
    cmocka_unit_test(test_seven_modules),      cmocka_unit_test(test_first_of_two_stages),
    cmocka_unit_test(test_last_of_two_stages), cmocka_unit_test(test_residency),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
