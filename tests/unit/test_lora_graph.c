/*
 * What a model with adapters saves, against what saved-tensor hooks saw on a GPU: four layers of
 * hidden size 4096 in a forward under torch.autocast, linears as PEFT 0.19 runs them, or by
 * Axolotl's own kernels (067b021c), over bf16 weights or those of bitsandbytes 0.49.1
 * (PyTorch 2.11). And parameters, against counts by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/config/hf/hf_config.h"
#include "sim/model/chunk.h"
#include "sim/model/saved_marks.h"

enum { KEYS = 40 };

#define MODEL                                                                                      \
  { "implementation", "hf" }, { "world_size", "1" }, { "num_layers", "4" },                        \
      { "hidden_size", "4096" }, { "ffn_hidden_size", "14336" }, { "num_attention_heads", "32" },  \
      { "group_query_attention", "true" }, { "num_query_groups", "8" }, { "swiglu", "true" },      \
      { "normalization", "RMSNorm" }, { "fused_rms_norm", "true" },                                \
      { "add_bias_linear", "false" }, { "position_embedding_type", "none" },                       \
      { "vocab_size", "32000" }, { "untie_embeddings_and_output_weights", "true" },                \
      { "bf16", "true" }, { "seq_length", "8192" },                                                \
  {                                                                                                \
    "lora_r", "16"                                                                                 \
  }
#define LORA                                                                                       \
  {                                                                                                \
    "lora.adapter", "lora"                                                                         \
  }
#define QLORA                                                                                      \
  {                                                                                                \
    "lora.adapter", "qlora"                                                                        \
  }
#define DROPOUT                                                                                    \
  {                                                                                                \
    "lora_dropout", "0.05"                                                                         \
  }
#define KERNELS                                                                                    \
  { "lora_qkv_kernel", "true" }, { "lora_o_kernel", "true" },                                      \
  {                                                                                                \
    "lora_mlp_kernel", "true"                                                                      \
  }
#define CHECKPOINTS                                                                                \
  { "recompute_granularity", "full" }, { "recompute_method", "uniform" },                          \
      { "recompute_num_layers", "1" },                                                             \
  {                                                                                                \
    "use_reentrant", "true"                                                                        \
  }

typedef const char *const setting_pair[2];

static graph *build(setting_pair *sets, settings *s, arena *a)
{
  diag d = { .quiet = true };
  settings_init(s, a);
  for (int i = 0; i < KEYS && sets[i][0] != NULL; i++)
    if (!settings_set(s, sets[i][0], sets[i][1], (source_pos){ 0 }, a, &d))
      fail_msg("%s", d.message);
  s->derived.compute_capability = 90;
  if (!settings_resolve(s, NULL, a, &d)) fail_msg("%s", d.message);
  return graph_of_chunk(s, 0, 0, a);
}

/* ---- saved tensors ---- */

typedef struct tally {
  int slots;
  int64_t bytes; /* of storages that are no parameter's, each once */
} tally;

static void charge(tally *t, const graph *g, bool *charged, const tensor_id *saved, int limit)
{
  for (int i = 0; i < limit && saved[i] != 0; i++) {
    tensor_id storage = tensor_storage(g, saved[i]);
    t->slots++;
    if (g->tensors.items[storage].parameter || charged[storage]) continue;
    charged[storage] = true;
    t->bytes += tensor_bytes(g, storage);
  }
}

static tally saved_of(const graph *g, arena *a)
{
  tally t = { 0 };
  bool *charged = ARENA_ARRAY(a, bool, g->tensors.count), inside = false;
  for (uint32_t i = 0; i < g->items.count; i++) {
    uint32_t index = g->items.items[i].index;
    uint8_t kind = g->items.items[i].kind;
    if (kind == ITEM_REGION_BEGIN) {
      const graph_region *r = &g->regions.items[index];
      charge(&t, g, charged, r->inputs + r->closed_over, NODE_INPUTS - (int)r->closed_over);
    }
    if (kind == ITEM_REGION_BEGIN || kind == ITEM_REGION_END) inside = kind == ITEM_REGION_BEGIN;
    if (kind == ITEM_NODE && !inside)
      charge(&t, g, charged, g->nodes.items[index].saved, NODE_SAVED);
  }
  return t;
}

typedef struct saved_case {
  const char *name;
  setting_pair sets[KEYS];
  int slots;
  int64_t bytes;
} saved_case;

static const saved_case cases[] = {
  { "PEFT", { MODEL, LORA, DROPOUT }, 240, INT64_C(8989802572) },
  { "PEFT over 4 bits", { MODEL, QLORA, DROPOUT }, 212, INT64_C(8989802572) },
  { "kernels", { MODEL, LORA, DROPOUT, KERNELS }, 160, INT64_C(5962563660) },
  { "kernels without dropout", { MODEL, LORA, KERNELS }, 148, INT64_C(4754604108) },
  { "kernels over 4 bits", { MODEL, QLORA, DROPOUT, KERNELS }, 160, INT64_C(5962563660) },
  { "PEFT, recomputed", { MODEL, LORA, DROPOUT, CHECKPOINTS }, 12, INT64_C(1384218636) },
  { "kernels, recomputed", { MODEL, QLORA, KERNELS, CHECKPOINTS }, 12, INT64_C(1384218636) },
};

static void test_what_hooks_saw(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    arena memory = { 0 };
    settings s;
    graph *g = build(cases[i].sets, &s, &memory);
    tally found = saved_of(g, &memory);
    if (found.slots != cases[i].slots || found.bytes != cases[i].bytes)
      fail_msg("%s: %d slots, %lld bytes; expected %d, %lld", cases[i].name, found.slots,
               (long long)found.bytes, cases[i].slots, (long long)cases[i].bytes);
    graph_release(g);
    arena_release(&memory);
  }
}

/* ---- one adapted linear ---- */

/* Names of what the first linear of a layer saves, in order; '+' before what is packed after the
 * kernel. */
static void assert_first_linear(setting_pair *sets, const char *expected)
{
  arena memory = { 0 };
  settings s;
  char found[1024] = "";
  graph *g = build(sets, &s, &memory);
  for (node_id n = 1; n < g->nodes.count; n++) {
    const graph_node *node = &g->nodes.items[n];
    const plan_site *site = &g->sites.items[node->site];
    uint16_t early = saved_marks_of(&s, node).early;
    if (site->layer != 0 || strcmp(site->module, "self_attn.q_proj") != 0) continue;
    for (int i = 0; i < NODE_SAVED && node->saved[i] != 0; i++) {
      size_t used = strlen(found);
      snprintf(found + used, sizeof found - used, "%s%s ", early >> i & 1 ? "" : "+",
               g->tensors.items[node->saved[i]].name);
    }
  }
  assert_string_equal(found, expected);
  graph_release(g);
  arena_release(&memory);
}

static void test_order_of_packing(void **state)
{
  static setting_pair peft[KEYS] = { MODEL, LORA, DROPOUT };
  static setting_pair quantized[KEYS] = { MODEL, QLORA, DROPOUT };
  static setting_pair own_type[KEYS] = { MODEL, LORA, { "autocast_adapter_dtype", "false" } };
  static setting_pair kernels[KEYS] = { MODEL, LORA, DROPOUT, KERNELS };
  (void)state;
  assert_first_linear(peft, "weight_transposed +dropout_mask weight_transposed input_rows "
                            "weight_transposed input_rows ");
  assert_first_linear(quantized, "+dropout_mask weight_transposed input_rows weight_transposed "
                                 "input_rows ");
  assert_first_linear(own_type, "weight_transposed weight_transposed input_rows weight_transposed "
                                "input_rows ");
  assert_first_linear(kernels, "+dropout_mask +normed +dropped +weight_16 +weight_16 +weight_16 "
                               "+weight_16 +weight_16 +weight_16 ");
}

/* Without an adapter on it a frozen linear saves its weight alone, and a quantised one nothing. */
static void test_linears_without_adapter(void **state)
{
  static setting_pair frozen[KEYS] = { MODEL, LORA, { "lora_target_modules", "v_proj" } };
  static setting_pair quantized[KEYS] = { MODEL, QLORA, { "lora_target_modules", "v_proj" } };
  static setting_pair partly[KEYS] = { MODEL, LORA, KERNELS, { "lora_target_modules", "v_proj" } };
  (void)state;
  assert_first_linear(frozen, "weight_transposed ");
  assert_first_linear(quantized, "");
  assert_first_linear(partly, "weight_transposed ");
}

/* ---- parameters of Llama-3-8B ---- */

enum { LAYERS = 32, HIDDEN = 4096, FFN = 14336, KEY_VALUE = 1024, VOCABULARY = 128256 };

/* Inputs and outputs of a layer's linears. */
static const int64_t linears[][2] = {
  { HIDDEN, HIDDEN }, { HIDDEN, KEY_VALUE }, { HIDDEN, KEY_VALUE }, { HIDDEN, HIDDEN },
  { HIDDEN, FFN },    { HIDDEN, FFN },       { FFN, HIDDEN },
};

typedef struct parameter_bytes {
  int64_t trained_elements, trained, frozen;
} parameter_bytes;

static parameter_bytes llama(const char *adapter, const char *rank, const char *targets)
{
  arena memory = { 0 };
  diag d = { .quiet = true };
  settings s;
  settings_init(&s, &memory);
  assert_true(hf_config_read(&s, "tests/data/hf/llama-3-8b.json", NULL, &memory, &d));
  const char *sets[][2] = { { "implementation", "hf" },        { "world_size", "1" },
                            { "seq_length", "128" },           { "bf16", "true" },
                            { "lora.adapter", adapter },       { "lora_r", rank },
                            { "lora_target_modules", targets } };
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
    assert_true(settings_set(&s, sets[i][0], sets[i][1], (source_pos){ 0 }, &memory, &d));
  s.derived.compute_capability = 90;
  if (!settings_resolve(&s, NULL, &memory, &d)) fail_msg("%s", d.message);
  graph *g = graph_of_chunk(&s, 0, 0, &memory);
  parameter_bytes found = { 0 };
  for (tensor_id t = 1; t < g->tensors.count; t++) {
    const graph_tensor *p = &g->tensors.items[t];
    if (!p->parameter || p->base != t) continue;
    *(p->requires_grad ? &found.trained : &found.frozen) += tensor_bytes(g, t);
    if (p->requires_grad) found.trained_elements += tensor_elements(g, t);
  }
  graph_release(g);
  arena_release(&memory);
  return found;
}

/* Embedding, output layer and norms. */
enum { OUTSIDE_ELEMENTS = 2 * VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN };

static void test_parameters_of_lora(void **state)
{
  int64_t adapters = 0, base = 0;
  (void)state;
  for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
    adapters += LAYERS * 16 * (linears[i][0] + linears[i][1]);
    base += LAYERS * linears[i][0] * linears[i][1];
  }
  parameter_bytes all = llama("lora", "16", "");
  assert_int_equal(adapters, 41943040); /* as PEFT prints */
  assert_int_equal(all.trained_elements, adapters);
  assert_int_equal(all.trained, 4 * adapters); /* fp32 */
  assert_int_equal(all.frozen, 2 * (base + OUTSIDE_ELEMENTS));
  parameter_bytes two = llama("lora", "16", "q_proj,v_proj");
  assert_int_equal(two.trained_elements, 6815744);
}

/* Half a byte for each element, a byte for each 64 of them, an fp32 for each 256 of those; and for
 * each matrix the mean of the scales and the 16 values. */
static void test_parameters_of_qlora(void **state)
{
  int64_t base = 0, small = 0;
  (void)state;
  for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
    int64_t elements = linears[i][0] * linears[i][1];
    base += LAYERS * (elements / 2 + elements / 64 + 4 * (elements / 64 / 256));
    small += LAYERS * (4 + 4 * 16);
  }
  parameter_bytes all = llama("qlora", "64", "");
  assert_int_equal(all.trained_elements, 167772160);
  assert_int_equal(all.frozen, base + small + 2 * (int64_t)OUTSIDE_ELEMENTS);
}

/* ---- weights in 8 bits ---- */

#define EIGHT_BITS                                                                                 \
  LORA,                                                                                            \
  {                                                                                                \
    "load_in_8bit", "true"                                                                         \
  }

/* A byte for each element, an fp32 for each row. */
static void test_parameters_in_8_bits(void **state)
{
  static setting_pair sets[KEYS] = { MODEL, EIGHT_BITS };
  static const int64_t rows = 4096 + 1024 + 1024 + 4096 + 14336 + 14336 + 4096;
  static const int64_t elements = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336;
  int64_t stored = 0, scales = 0;
  arena memory = { 0 };
  settings s;
  (void)state;
  graph *g = build(sets, &s, &memory);
  for (tensor_id t = 1; t < g->tensors.count; t++) {
    const graph_tensor *p = &g->tensors.items[t];
    if (!p->parameter || p->base != t) continue;
    if (p->dtype == DTYPE_BYTE) stored += tensor_bytes(g, t);
    if (strcmp(p->name, "weight.SCB") == 0) scales += tensor_bytes(g, t);
    assert_true(!p->requires_grad || strncmp(p->name, "lora_", 5) == 0);
  }
  assert_int_equal(stored, 4 * elements);
  assert_int_equal(scales, 4 * 4 * rows);
  graph_release(g);
  arena_release(&memory);
}

/* Contexts hold what the linears read: two norms' results, what attention and SwiGLU made. */
static void test_inputs_are_held_in_8_bits(void **state)
{
  static setting_pair sets[KEYS] = { MODEL, EIGHT_BITS };
  int64_t held_bytes = 0;
  arena memory = { 0 };
  settings s;
  (void)state;
  graph *g = build(sets, &s, &memory);
  bool *counted = ARENA_ARRAY(&memory, bool, g->tensors.count);
  for (node_id n = 1; n < g->nodes.count; n++) {
    tensor_id held = g->nodes.items[n].held, storage = held != 0 ? tensor_storage(g, held) : 0;
    if (held == 0 || counted[storage]) continue;
    counted[storage] = true;
    held_bytes += tensor_bytes(g, storage);
  }
  assert_int_equal(held_bytes, INT64_C(4) * 8192 * 2 * (3 * 4096 + 14336));
  graph_release(g);
  arena_release(&memory);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_hooks_saw),
    cmocka_unit_test(test_order_of_packing),
    cmocka_unit_test(test_linears_without_adapter),
    cmocka_unit_test(test_parameters_of_lora),
    cmocka_unit_test(test_parameters_of_qlora),
    cmocka_unit_test(test_parameters_in_8_bits),
    cmocka_unit_test(test_inputs_are_held_in_8_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
