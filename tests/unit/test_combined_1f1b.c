/*
 * Combined 1F1B: plans of a small model with experts, run in parts.
 *
 *   - in which order a pair's parts are issued, and on which stream;
 *   - parts of one micro-batch wait for each other, those of two do not;
 *   - memory: nothing reads a storage that a part has emptied, nothing is freed twice, and an
 *     iteration ends with what it began with, with any part beside it.
 *
 * A plan as text: F0.1p is the part before the dispatch of layer 1 of micro-batch 0's forward; a an
 * exchange of tokens, with what follows it on its stream, m the experts, w weight gradients that
 * were delayed, x ops of no layer.
 */
#include "tests/unit/small_runs.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXT_BYTES = 4096 };

/* Two layers of experts on two GPUs for each pipeline stage. What differs: */
typedef struct variant {
  int microbatches;
  const char *parallel, *training; /* ", key: value" */
  const char *sections;
} variant;

#define PIPELINE_PARALLEL                                                                          \
  ", pipeline_model_parallel_size: 2, num_layers_per_virtual_pipeline_stage: 2"
#define PIPELINE_PARALLEL_OF_STAGES                                                                \
  ", pipeline_model_parallel_size: 2, pipeline_model_parallel_layout: 'Et|t|t|t|m|L'"
#define PIPELINE_LAYERS "model: {num_layers: 8}\n"
#define OFFLOAD                                                                                    \
  "offload: {system: megatron, offload_modules: [attn_norm, core_attn, mlp_norm, expert_fc1, "     \
  "moe_act]}\n"
#define DISCARDS                                                                                   \
  "recompute: {recompute_granularity: selective, recompute_modules: [layernorm, moe_act]}\n"

static void begin(run *r, variant v, iteration_kind iteration)
{
  char changes[1024];
  snprintf(changes, sizeof changes,
           "parallel: {expert_model_parallel_size: 2, overlap_moe_expert_parallel_comm: true%s}\n"
           "training: {global_batch_size: %d%s}\n%s",
           v.parallel, 2 * v.microbatches, v.training, v.sections);
  run_begin(r, SMALL_MOE, changes, iteration);
}

/* ---- telling a plan ------------------------------------------------------------------------- */

/* Kernels and collectives of one micro-batch that follow each other on one stream. */
typedef struct segment {
  plan_mark mark;
  plan_stream stream;
  int32_t layer;
  bool experts, only_weight_gradients;
  uint32_t first_op;
} segment;

static const char *module_of(const run *r, const plan_op *o)
{
  return r->plan->sites.items[o->site].module;
}

static bool writes_weight_gradient(const run *r, const plan_op *o)
{
  for (uint32_t i = o->reads; i < (uint32_t)o->reads + o->writes; i++)
    if (r->rank->buffers.items[r->rank->operands.items[o->operands + i]].purpose != CLASS_GRADIENT)
      return false;
  return o->writes > 0;
}

static void add_to_segment(const run *r, segment *s, const plan_op *o)
{
  const char *module = module_of(r, o);
  if (s->layer < 0) s->layer = r->plan->sites.items[o->site].layer;
  s->experts |= strncmp(module, "mlp.experts", 11) == 0;
  s->only_weight_gradients &= writes_weight_gradient(r, o);
}

static char letter_of(const segment *s)
{
  if (s->stream == STREAM_A2A) return 'a';
  if (s->only_weight_gradients) return 'w';
  return s->layer < 0 ? 'x' : s->experts ? 'm' : 'p';
}

enum { SEGMENTS = 1024 };
typedef struct segments {
  segment items[SEGMENTS];
  uint32_t count;
} segments;

static bool runs_on_a_stream_of_parts(const plan_op *o)
{
  return (o->kind == OP_KERNEL || o->kind == OP_COLLECTIVE) &&
         (o->stream == STREAM_COMPUTE || o->stream == STREAM_A2A);
}

static bool continues(const segment *s, const run *r, plan_mark mark, const plan_op *o)
{
  int32_t layer = r->plan->sites.items[o->site].layer;
  bool same_mark = s->mark.kind == mark.kind && s->mark.microbatch == mark.microbatch &&
                   s->mark.chunk == mark.chunk;
  return s->stream == o->stream && same_mark &&
         (s->stream == STREAM_A2A || (s->layer < 0) == (layer < 0));
}

/* Up to the reduction of gradients, whose buffers are zeroed before the first forward. */
static segments *segments_of(run *r)
{
  segments *all = ARENA_NEW(&r->memory, segments);
  plan_mark mark = { .kind = MARK_SETUP };
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == OP_MARK) mark = r->rank->marks.items[o->arg];
    if (mark.kind == MARK_FINISH) break;
    if (mark.kind == MARK_SETUP || !runs_on_a_stream_of_parts(o)) continue;
    if (all->count == 0 || !continues(&all->items[all->count - 1], r, mark, o)) {
      assert_true(all->count < SEGMENTS);
      all->items[all->count++] = (segment){ .mark = mark,
                                            .stream = (plan_stream)o->stream,
                                            .layer = -1,
                                            .only_weight_gradients = true,
                                            .first_op = i };
    }
    add_to_segment(r, &all->items[all->count - 1], o);
  }
  return all;
}

static const char *name_of(const segment *s)
{
  static char name[32];
  char direction = s->mark.kind == MARK_FORWARD ? 'F' : 'B';
  if (s->layer < 0)
    snprintf(name, sizeof name, "%c%u%c", direction, s->mark.microbatch, letter_of(s));
  else
    snprintf(name, sizeof name, "%c%u.%d%c", direction, s->mark.microbatch, s->layer, letter_of(s));
  return name;
}

static const char *text_of(run *r)
{
  static char text[TEXT_BYTES];
  const segments *all = segments_of(r);
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t i = 0; i < all->count; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i == 0 ? "" : " ",
                             name_of(&all->items[i]));
  return text;
}

/* ---- order ---------------------------------------------------------------------------------- */

static void test_order_of_parts(void **state)
{
  static const struct {
    variant variant;
    const char *parts;
  } cases[] = {
    { { 2, "", "", "" },
      "F0x F0.0p F0.0a F0.0m F0.0a F0.1p F0.1a F0.1m F0.1a F0x "
      "F1x B0x "
      "B0.1a F1.0p B0.1m F1.0a B0.1a F1.0m F1.0a B0.1p "
      "B0.0a F1.1p B0.0m F1.1a B0.0a F1.1m F1.1a B0.0p "
      "F1x B0x "
      "B1x B1.1a B1.1m B1.1a B1.1p B1.0a B1.0m B1.0a B1.0p B1x" },
    /* The experts' weight gradients run during the dispatch's backward. */
    { { 2, "", ", delay_wgrad_compute: true", "" },
      "F0x F0.0p F0.0a F0.0m F0.0a F0.1p F0.1a F0.1m F0.1a F0x "
      "F1x B0x "
      "B0.1a F1.0p B0.1m F1.0a B0.1w B0.1a F1.0m F1.0a B0.1p "
      "B0.0a F1.1p B0.0m F1.1a B0.0w B0.0a F1.1m F1.1a B0.0p "
      "F1x B0x "
      "B1x B1.1a B1.1m B1.1a B1.1p B1.0a B1.0m B1.0a B1.0p B1x" },
    /* The backward of attention comes before the forward of the other's experts. */
    { { 2, ", ep_overlap_early_attn_memory_release: true", "", "" },
      "F0x F0.0p F0.0a F0.0m F0.0a F0.1p F0.1a F0.1m F0.1a F0x "
      "F1x B0x "
      "B0.1a F1.0p B0.1m F1.0a B0.1a B0.1p F1.0m F1.0a "
      "B0.0a F1.1p B0.0m F1.1a B0.0a B0.0p F1.1m F1.1a "
      "F1x B0x "
      "B1x B1.1a B1.1m B1.1a B1.1p B1.0a B1.0m B1.0a B1.0p B1x" },
    /* A dense layer has two parts. */
    { { 2, "", "", "model: {moe_layer_freq: '[0,1]'}\n" },
      "F0x F0.0p F0.1a F0.1m F0.1a F0x "
      "F1x B0x "
      "B0.1a F1.0p B0.1m B0.1a F1.0p B0.1p "
      "F1.1p B0.0p F1.1a F1.1m F1.1a B0.0p "
      "F1x B0x "
      "B1x B1.1a B1.1m B1.1a B1.1p B1x" },
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    run r;
    begin(&r, cases[i].variant, ITERATION_STEADY);
    assert_string_equal(text_of(&r), cases[i].parts);
    run_end(&r);
  }
}

/* The last op that the stream has to wait for before `op`, on another stream. */
static uint32_t waited_for(const run *r, uint32_t op, plan_stream stream)
{
  uint32_t event = UINT32_MAX;
  for (uint32_t i = 0; i < op; i++)
    if (r->rank->ops.items[i].kind == OP_WAIT && r->rank->ops.items[i].stream == stream)
      event = r->rank->ops.items[i].arg;
  for (uint32_t i = 0; i < op; i++)
    if (r->rank->ops.items[i].kind == OP_RECORD && r->rank->ops.items[i].arg == event) return i;
  fail();
  return 0;
}

static const segment *find(const segments *all, const char *name, uint32_t nth)
{
  for (uint32_t i = 0; i < all->count; i++)
    if (strcmp(name_of(&all->items[i]), name) == 0 && nth-- == 0) return &all->items[i];
  fail();
  return NULL;
}

/* An exchange waits for its own micro-batch's part before it and for nothing of the other's. */
static void test_exchanges_wait_for_their_own(void **state)
{
  run r;
  (void)state;
  begin(&r, (variant){ 2, "", "", "" }, ITERATION_STEADY);
  const segments *all = segments_of(&r);
  uint32_t dispatch = find(all, "F1.0a", 0)->first_op, experts = find(all, "B0.1m", 0)->first_op;
  uint32_t awaited = waited_for(&r, dispatch, STREAM_A2A);
  assert_true(find(all, "F1.0p", 0)->first_op < awaited && awaited < experts && experts < dispatch);
  uint32_t back = find(all, "B0.1a", 1)->first_op, ahead = find(all, "F1.0m", 0)->first_op;
  assert_true(experts < waited_for(&r, back, STREAM_A2A));
  assert_true(waited_for(&r, ahead, STREAM_COMPUTE) < back);
  run_end(&r);
}

static bool is_finish(const rank_plan *rank, const plan_op *o)
{
  return o->kind == OP_MARK && rank->marks.items[o->arg].kind == MARK_FINISH;
}

/* In the same backward, or after it before gradients are reduced. */
static const plan_op *next_kernel(const rank_plan *rank, uint32_t from)
{
  const plan_op *ops = rank->ops.items;
  while (from < rank->ops.count && ops[from].kind != OP_KERNEL && !is_finish(rank, &ops[from]))
    from++;
  return from < rank->ops.count && ops[from].kind == OP_KERNEL ? &ops[from] : NULL;
}

/* Gradients sent back, directly followed by weight gradients. */
static uint32_t sends_before_weight_gradients(const char *training)
{
  run r;
  uint32_t found = 0;
  begin(&r, (variant){ 2, PIPELINE_PARALLEL, training, PIPELINE_LAYERS }, ITERATION_STEADY);
  r.rank = &r.plan->ranks[1];
  for (uint32_t i = 0; i < r.rank->ops.count; i++) {
    const plan_op *o = &r.rank->ops.items[i];
    if (o->kind != OP_SEND || o->stream != STREAM_PREVIOUS) continue;
    const plan_op *next = next_kernel(r.rank, i);
    found += next != NULL && writes_weight_gradient(&r, next);
  }
  run_end(&r);
  return found;
}

/* A pair's first layer leaves its weight gradients for after the send; the last rank has one. */
static void test_last_weight_gradients_come_after_the_send(void **state)
{
  (void)state;
  assert_int_equal(sends_before_weight_gradients(", delay_wgrad_compute: true"), 1);
  assert_int_equal(sends_before_weight_gradients(""), 0);
}

/* The stream whose work the exchange waits for. */
static plan_stream follows(const rank_plan *rank, uint32_t exchange)
{
  uint32_t wait = exchange;
  while (rank->ops.items[wait].kind != OP_WAIT)
    wait--;
  uint32_t event = rank->ops.items[wait].arg;
  for (uint32_t i = wait; i-- > 0;)
    if (rank->ops.items[i].kind == OP_RECORD && rank->ops.items[i].arg == event)
      return (plan_stream)rank->ops.items[i].stream;
  fail();
  return STREAM_HOST;
}

/* A pair's output is sent as soon as its last exchange of tokens is done. With four micro-batches
 * rank 0 has eight forwards, of which three run in pairs. */
static void test_a_pair_sends_from_the_stream_of_its_exchange(void **state)
{
  run r;
  uint32_t found = 0;
  (void)state;
  begin(&r, (variant){ 4, PIPELINE_PARALLEL, "", PIPELINE_LAYERS }, ITERATION_STEADY);
  for (uint32_t i = 0; i < r.rank->ops.count; i++)
    if (r.rank->ops.items[i].kind == OP_SEND && r.rank->ops.items[i].stream == STREAM_NEXT)
      found += follows(r.rank, i) == STREAM_A2A;
  assert_int_equal(found, 3);
  run_end(&r);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void take(bool *alive, uint32_t buffer)
{
  assert_false(alive[buffer]);
  alive[buffer] = true;
}

static void check_operands(const rank_plan *rank, const bool *alive, const plan_op *o)
{
  for (uint32_t i = 0; i < (uint32_t)o->reads + o->writes; i++)
    assert_true(alive[rank->operands.items[o->operands + i]]);
}

static int64_t bytes_of(const rank_plan *rank, const bool *alive)
{
  int64_t bytes = 0;
  for (uint32_t b = 0; b < rank->buffers.count; b++)
    bytes += alive[b] ? rank->buffers.items[b].bytes : 0;
  return bytes;
}

static void check_rank(const rank_plan *rank)
{
  bool *alive = calloc(rank->buffers.count, sizeof *alive);
  for (uint32_t b = 0; b < rank->residents; b++)
    alive[b] = true;
  int64_t before = bytes_of(rank, alive);
  for (uint32_t i = 0; i < rank->ops.count; i++) {
    const plan_op *o = &rank->ops.items[i];
    bool frees = o->kind == OP_FREE || o->kind == OP_HOST_FREE;
    if (o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC) take(alive, o->arg);
    check_operands(rank, alive, o);
    if (frees) assert_true(alive[o->arg]);
    if (frees) alive[o->arg] = false;
  }
  assert_int_equal(bytes_of(rank, alive), before);
  free(alive);
}

static void test_nothing_is_used_when_it_is_gone(void **state)
{
  static const variant variants[] = {
    { 2, "", "", "" },
    { 2, "", ", delay_wgrad_compute: true, gradient_accumulation_fusion: false", DISCARDS },
    { 2, "", "", OFFLOAD DISCARDS },
    { 2, "", "", "model: {moe_layer_freq: '[0,1]', hidden_dropout: 0.1}\n" OFFLOAD },
    { 2, "", "", "model: {moe_shared_expert_intermediate_size: 1024, moe_permute_fusion: true}\n" },
    { 2, "", "", "model: {moe_token_dispatcher_type: flex}\n" DISCARDS },
    { 2, "", "",
      "model: {moe_token_dispatcher_type: flex, moe_flex_dispatcher_backend: hybridep}\n" },
    { 2, "", "", "model: {num_experts: 2}\n" },
    { 2, "", "", "model: {mtp_num_layers: 1}\n" OFFLOAD },
    { 2, "", "", "software: {container: 'pytorch:25.06-py3'}\n" DISCARDS },
    { 2, "", ", fp8_format: e4m3, fp8_recipe: blockwise", "" },
    { 2, PIPELINE_PARALLEL_OF_STAGES, "", "model: {num_layers: 4, mtp_num_layers: 1}\n" OFFLOAD },
    { 2, PIPELINE_PARALLEL, "", PIPELINE_LAYERS },
    { 4, ", pipeline_model_parallel_size: 4, num_layers_per_virtual_pipeline_stage: 1", "",
      PIPELINE_LAYERS },
    { 4,
      ", pipeline_model_parallel_size: 4, num_layers_per_virtual_pipeline_stage: 1, "
      "overlap_p2p_comm: false",
      "", PIPELINE_LAYERS OFFLOAD },
    { 2, PIPELINE_PARALLEL, ", delay_wgrad_compute: true", PIPELINE_LAYERS OFFLOAD DISCARDS },
  };
  (void)state;
  for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
    run r;
    begin(&r, variants[i], ITERATION_STEADY);
    for (uint32_t rank = 0; rank < r.plan->rank_count; rank++)
      check_rank(&r.plan->ranks[rank]);
    run_end(&r);
  }
}

/* By tensor: bytes that are alive when the op begins. */
static int64_t alive_of(const run *r, const char *tensor, uint32_t at)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < at; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind != OP_ALLOC && o->kind != OP_FREE) continue;
    const plan_buffer *b = &r->rank->buffers.items[o->arg];
    if (strcmp(r->plan->tensors.items[b->tensor].name, tensor) == 0)
      bytes += o->kind == OP_ALLOC ? b->bytes : -b->bytes;
  }
  return bytes;
}

/* What the dispatch has sent is gone when the experts run, though a part still refers to it; what
 * they take goes with them, unless the first product has saved it. */
static void test_inputs_are_emptied(void **state)
{
  static const struct {
    const char *model;
    bool stays;
  } cases[] = { { "", false }, { "model: {num_experts: 2}\n", true } };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    run r;
    begin(&r, (variant){ 2, "", "", cases[i].model }, ITERATION_STEADY);
    const segments *all = segments_of(&r);
    uint32_t experts = find(all, "F0.0m", 0)->first_op, next = find(all, "F0.1p", 0)->first_op;
    assert_int_equal(alive_of(&r, "permuted_tokens", experts), 0);
    assert_true(alive_of(&r, "dispatched_tokens", experts) > 0);
    assert_int_equal(alive_of(&r, "dispatched_tokens", next) > 0, cases[i].stays);
    run_end(&r);
  }
}

static int64_t alive_at(const run *r, uint32_t at)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < at; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind != OP_ALLOC && o->kind != OP_FREE) continue;
    int64_t of = r->rank->buffers.items[o->arg].bytes;
    bytes += o->kind == OP_FREE ? -of : of;
  }
  return bytes;
}

enum { HIDDEN_BYTES = 4096 * 1024 * 2 };

/* When the loss of a pair's forward begins, the backward has left of its layers nothing but the
 * embedding's output and its gradient, and the micro-batch: what a newer forward has run past is
 * not kept. */
static void test_a_pair_leaves_nothing_of_its_layers(void **state)
{
  run r;
  (void)state;
  begin(&r,
        (variant){ 2, "", ", create_attention_mask_in_dataloader: false",
                   "model: {num_layers: 4}\n" },
        ITERATION_STEADY);
  const segments *all = segments_of(&r);
  int64_t alone = alive_at(&r, find(all, "F0x", 1)->first_op);
  int64_t paired = alive_at(&r, find(all, "F1x", 1)->first_op);
  assert_in_range(paired - alone, 2 * HIDDEN_BYTES, 2 * HIDDEN_BYTES + HIDDEN_BYTES / 2);
  run_end(&r);
}

/* Without dropout the residual's gradient is the incoming one, which the part still holds; in the
 * last layer the final norm is between them. */
static void test_held_gradients_are_copied(void **state)
{
  run r;
  uint32_t copies = 0;
  (void)state;
  begin(&r, (variant){ 2, "", "", "" }, ITERATION_STEADY);
  for (uint32_t i = 0; i < r.rank->ops.count; i++) {
    const plan_op *o = &r.rank->ops.items[i];
    copies += o->kind == OP_KERNEL && o->stream == STREAM_A2A &&
              r.plan->calls.items[o->arg].kind == KERNEL_COPY;
  }
  assert_int_equal(copies, 2 * 1);
  run_end(&r);
}

/* The probabilities that the dispatchers keep hold each layer's input and its gradient from one
 * iteration to the next. */
static void test_dispatchers_keep_graphs(void **state)
{
  run r;
  (void)state;
  begin(&r, (variant){ 2, "", "", "" }, ITERATION_STEADY);
  int64_t kept = 0;
  for (uint32_t b = 0; b < r.rank->residents; b++)
    if (strncmp(r.plan->tensors.items[r.rank->buffers.items[b].tensor].name, "dispatcher.graph",
                16) == 0)
      kept += r.rank->buffers.items[b].bytes;
  assert_int_equal(kept, 2 * 2 * HIDDEN_BYTES);
  run_end(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_order_of_parts),
    cmocka_unit_test(test_exchanges_wait_for_their_own),
    cmocka_unit_test(test_last_weight_gradients_come_after_the_send),
    cmocka_unit_test(test_a_pair_sends_from_the_stream_of_its_exchange),
    cmocka_unit_test(test_nothing_is_used_when_it_is_gone),
    cmocka_unit_test(test_inputs_are_emptied),
    cmocka_unit_test(test_a_pair_leaves_nothing_of_its_layers),
    cmocka_unit_test(test_held_gradients_are_copied),
    cmocka_unit_test(test_dispatchers_keep_graphs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
