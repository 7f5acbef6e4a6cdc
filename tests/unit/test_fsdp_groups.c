/*
 * Megatron-FSDP's groups and buckets: the layer of a run on two H100s, whose static memory on the last rank,
 * 21155.216 MiB, is predicted to 0.04 MiB with these places.
 */
#include "sim/residents/fsdp_groups.h"
#include "tests/unit/static_settings.h"

enum { ROW = 4096, FFN = 14336, QKV = 6144, VOCABULARY = 32000, UNIT = 28672 /* lcm(ROW, FFN) */ };

typedef struct found {
  arena a;
  settings s;
  parameter_list parameters;
  fsdp_group_list groups;
} found;

static void find(found *f, const char *strategy, const char *overlaps, const char *day)
{
  const char *keys[][2] = { { "parallel.use_megatron_fsdp", "true" },
                            { "parallel.data_parallel_sharding_strategy", strategy },
                            { "parallel.overlap_grad_reduce", overlaps },
                            { "parallel.world_size", "2" },
                            { "model.num_layers", "2" },
                            { "model.hidden_size", "4096" },
                            { "model.ffn_hidden_size", "14336" },
                            { "model.num_attention_heads", "32" },
                            { "model.group_query_attention", "true" },
                            { "model.num_query_groups", "8" },
                            { "model.padded_vocab_size", "32000" },
                            { "model.swiglu", "true" },
                            { "model.normalization", "RMSNorm" },
                            { "model.add_bias_linear", "false" },
                            { "model.position_embedding_type", "rope" },
                            { "model.untie_embeddings_and_output_weights", "true" },
                            { "software.megatron_day", day },
                            { NULL, NULL } };
  *f = (found){ 0 };
  small_gpt(&f->s, (const char *const(*)[2])keys, &f->a);
  f->parameters = parameters_of_rank(&f->s, 0, &f->a);
  f->groups = fsdp_groups_of(&f->s, 0, &f->parameters, &f->a);
}

static const buffer_slot *slot_of(const found *f, const fsdp_group *g, const char *name)
{
  for (uint32_t i = 0; i < g->slot_count; i++)
    if (strcmp(f->parameters.items[g->slots[i].parameter].name, name) == 0) return &g->slots[i];
  fail_msg("no %s in the group", name);
  return NULL;
}

static void a_layer_is_cut_between_rows(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    int64_t start, owned;
  } rows[] = {
    { "mlp.linear_fc2.weight", 0, 0 },
    { "self_attention.linear_proj.weight", 2048 * UNIT, 0 },
    { "self_attention.linear_qkv.weight", (2048 + 586) * UNIT - 20480,
      0 }, /* beside the remainder of proj */
    { "self_attention.linear_qkv.layer_norm_weight", 2048 * UNIT + ROW * ROW,
      0 }, /* ... and between */
    { "mlp.linear_fc1.weight", (2048 + 586 + 877) * UNIT, 109039616 },
    { "mlp.linear_fc1.layer_norm_weight", (2048 + 586 + 877 + 4096) * UNIT, ROW },
  };
  found f;
  find(&f, "optim_grads", "true", "");
  const fsdp_group *layer = &f.groups.items[f.groups.count - 1];
  assert_int_equal(layer->layer, 1);
  assert_int_equal(layer->slot_count, sizeof rows / sizeof *rows);
  assert_int_equal(layer->elements, 3804 * 2 * UNIT);
  assert_int_equal(layer->part, 3804 * UNIT);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const buffer_slot *slot = slot_of(&f, layer, rows[i].name);
    assert_int_equal(slot->start, rows[i].start);
    assert_int_equal(fsdp_owned_elements(layer, slot, &f.parameters), rows[i].owned);
  }
  arena_release(&f.a);
}

/* Until August 2025. */
static void parameters_once_followed_each_other(void **state)
{
  (void)state;
  found f;
  find(&f, "optim_grads_params", "true", "2025-08-20");
  const fsdp_group *layer = &f.groups.items[f.groups.count - 1];
  int64_t end = 0;
  for (uint32_t i = 0; i < layer->slot_count; i++) {
    assert_int_equal(layer->slots[i].start, end);
    if (i > 0) assert_int_equal(layer->slots[i].parameter, layer->slots[i - 1].parameter + 1);
    end += parameter_elements(&f.parameters.items[layer->slots[i].parameter]);
  }
  assert_int_equal(layer->elements, end);
  arena_release(&f.a);
}

/* Groups outside the units are cut into buckets if the reduction overlaps; and what is a unit depends on
 * strategy and day. */
static void what_is_outside_is_cut_into_buckets(void **state)
{
  (void)state;
  static const struct {
    const char *strategy, *overlaps, *day;
    uint32_t outside, layers;
  } rows[] = {
    { "optim_grads_params", "true", "", 2, 2 },
    { "optim_grads_params", "false", "", 1, 2 },
    { "optim_grads", "true", "2026-08-18", 2, 2 },
    { "optim_grads", "false", "2026-08-17", 1, 0 },
    { "optim", "false", "2026-08-17", 1, 0 },
    { "no_shard", "false", "", 1, 0 },
    /* embedding; of each layer attention, fc1 and fc2; norm and output layer: all above 40 M */
    { "no_shard", "true", "", 8, 0 },
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    found f;
    uint32_t outside = 0, slots = 0;
    find(&f, rows[i].strategy, rows[i].overlaps, rows[i].day);
    for (uint32_t k = 0; k < f.groups.count; k++) {
      outside += f.groups.items[k].layer < 0;
      slots += f.groups.items[k].slot_count;
    }
    assert_int_equal(outside, rows[i].outside);
    assert_int_equal(f.groups.count, rows[i].outside + rows[i].layers);
    assert_int_equal(slots, f.parameters.count);
    arena_release(&f.a);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_layer_is_cut_between_rows),
    cmocka_unit_test(parameters_once_followed_each_other),
    cmocka_unit_test(what_is_outside_is_cut_into_buckets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
