/*
 * What eager PyTorch saves, against what saved-tensor hooks saw on a GPU (tests/peers/hf_reference.py,
 * PyTorch 2.11, transformers 5.17): slots, bytes of their storages without weights, and the order
 * of packing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/model/chunk.h"
#include "sim/model/saved_marks.h"

enum { KEYS = 32 };

/* Labels are padded to shift them, where the plain model takes the token ids themselves. */
enum { PADDED_LABELS = 8 * (8192 + 1) };

typedef struct saved_case {
  const char *name;
  const char *sets[KEYS][2];
  int slots;
  int64_t bytes;
} saved_case;

#define COMMON                                                                                     \
  { "implementation", "hf" }, { "world_size", "1" }, { "hidden_size", "4096" },                    \
      { "num_attention_heads", "32" }, { "group_query_attention", "true" },                        \
      { "num_query_groups", "8" }, { "swiglu", "true" }, { "normalization", "RMSNorm" },           \
      { "add_bias_linear", "false" }, { "bf16", "true" }, { "max_position_embeddings", "40960" },  \
  {                                                                                                \
    "untie_embeddings_and_output_weights", "true"                                                  \
  }

#define PLAIN                                                                                      \
  COMMON, { "num_layers", "16" }, { "ffn_hidden_size", "14336" }, { "vocab_size", "32000" },       \
      { "position_embedding_type", "none" }, { "fused_projections", "true" },                      \
  {                                                                                                \
    "fused_rms_norm", "true"                                                                       \
  }

#define QWEN3                                                                                      \
  COMMON, { "num_layers", "4" }, { "ffn_hidden_size", "12288" }, { "vocab_size", "151936" },       \
      { "position_embedding_type", "rope" }, { "fused_rms_norm", "false" },                        \
  {                                                                                                \
    "qk_layernorm", "true"                                                                         \
  }

#define FULL                                                                                       \
  { "recompute_granularity", "full" }, { "recompute_method", "uniform" },                          \
  {                                                                                                \
    "recompute_num_layers", "1"                                                                    \
  }

static const saved_case cases[] = {
  { "fused, no positions",
    { PLAIN, { "seq_length", "8192" } },
    394,
    INT64_C(23212425476) + PADDED_LABELS },
  { "the same, recomputed",
    { PLAIN, { "seq_length", "8192" }, FULL },
    42,
    INT64_C(2518786052) - 262144000 - 8192 + PADDED_LABELS },
  { "Qwen3", { QWEN3, { "seq_length", "8192" } }, 221, INT64_C(12307562572) },
  { "Qwen3, recomputed", { QWEN3, { "seq_length", "8192" }, FULL }, 21, INT64_C(5515673612) },
  { "Qwen3, eager attention",
    { QWEN3, { "seq_length", "2048" }, { "attn_implementation", "eager" } },
    213,
    INT64_C(6397730828) },
};

static graph *build(const char *name, const char *const (*sets)[2], settings *s, arena *a)
{
  diag d = { .quiet = true };
  settings_init(s, a);
  for (int i = 0; i < KEYS && sets[i][0] != NULL; i++)
    assert_true(settings_set(s, sets[i][0], sets[i][1], (source_pos){ 0 }, a, &d));
  s->derived.compute_capability = 90;
  if (!settings_resolve(s, NULL, a, &d)) fail_msg("%s: %s", name, d.message);
  return graph_of_chunk(s, 0, 0, a);
}

typedef struct tally {
  const graph *g;
  bool *charged; /* by storage */
  int slots;
  int64_t bytes;
} tally;

static void charge(tally *t, const tensor_id *saved, int limit)
{
  for (int i = 0; i < limit && saved[i] != 0; i++) {
    tensor_id storage = tensor_storage(t->g, saved[i]);
    t->slots++;
    if (t->g->tensors.items[storage].parameter || t->charged[storage]) continue;
    t->charged[storage] = true;
    t->bytes += tensor_bytes(t->g, storage);
  }
}

/* Inside a checkpoint nothing is saved but what it was given. */
static tally saved_of(const graph *g, arena *a)
{
  tally t = { .g = g, .charged = ARENA_ARRAY(a, bool, g->tensors.count) };
  bool inside = false;
  for (uint32_t i = 0; i < g->items.count; i++) {
    uint32_t index = g->items.items[i].index;
    uint8_t kind = g->items.items[i].kind;
    if (kind == ITEM_REGION_BEGIN) {
      const graph_region *r = &g->regions.items[index];
      charge(&t, r->inputs + r->closed_over, NODE_INPUTS - (int)r->closed_over);
      inside = true;
    } else if (kind == ITEM_REGION_END) {
      inside = false;
    } else if (kind == ITEM_NODE && !inside) {
      charge(&t, g->nodes.items[index].saved, NODE_SAVED);
    }
  }
  return t;
}

static void a_model_saves_what_hooks_saw(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    arena memory = { 0 };
    settings s;
    graph *g = build(cases[i].name, cases[i].sets, &s, &memory);
    tally found = saved_of(g, &memory);
    if (found.slots != cases[i].slots || found.bytes != cases[i].bytes)
      fail_msg("%s: %d slots, %lld bytes; expected %d, %lld", cases[i].name, found.slots,
               (long long)found.bytes, cases[i].slots, (long long)cases[i].bytes);
    graph_release(g);
    arena_release(&memory);
  }
}

/* Names of what the first layer saves, in order; '+' before what is packed after the kernel, '~'
 * after operands that are not contiguous. */
static void list_first_layer(const graph *g, const settings *s, char *text, size_t size)
{
  text[0] = '\0';
  for (node_id n = 1; n < g->nodes.count; n++) {
    const graph_node *node = &g->nodes.items[n];
    saved_marks marks = saved_marks_of(s, node);
    for (int i = 0; i < NODE_SAVED && node->saved[i] != 0; i++) {
      const graph_tensor *t = &g->tensors.items[node->saved[i]];
      if (g->sites.items[node->site].layer != 0) continue;
      size_t used = strlen(text);
      snprintf(text + used, size - used, "%s%s%s ", marks.early >> i & 1 ? "" : "+", t->name,
               t->contiguous ? "" : "~");
    }
  }
}

static void assert_first_layer(const char *const (*sets)[2], const char *expected)
{
  arena memory = { 0 };
  settings s;
  char found[4096];
  graph *g = build("order", sets, &s, &memory);
  list_first_layer(g, &s, found, sizeof found);
  assert_string_equal(found, expected);
  graph_release(g);
  arena_release(&memory);
}

#define CUDNN  "key~ query~ value~ +logsumexp +attention~ +philox_seed +philox_offset "
#define LINEAR "weight_transposed~ input_rows "

static void fused_operators_pack_in_this_order(void **state)
{
  (void)state;
  static const char *const sets[KEYS][2] = { PLAIN, { "seq_length", "8192" } };
  assert_first_layer(sets, "inputs_embeds weight +rstd " LINEAR CUDNN LINEAR
                           "sum weight +rstd " LINEAR "gate~ up~ activated " LINEAR);
}

#define NORM    "converted +rstd rstd converted converted weight "
#define ROTARY  "cos sin cos sin "
#define ROTATED "sum~ sum~ value~ +logsumexp +attention~ +philox_seed +philox_offset "

static void eager_operators_pack_in_this_order(void **state)
{
  (void)state;
  static const char *const sets[KEYS][2] = { QWEN3, { "seq_length", "8192" } };
  assert_first_layer(sets, NORM LINEAR NORM LINEAR NORM LINEAR ROTARY ROTATED LINEAR NORM LINEAR
                     "output " LINEAR "output activated " LINEAR);
}

static void flash_attention_packs_after_its_kernel(void **state)
{
  (void)state;
  static const char *const sets[KEYS][2] = { PLAIN,
                                             { "seq_length", "8192" },
                                             { "attn_implementation", "flash_attention_2" } };
  assert_first_layer(sets, "inputs_embeds weight +rstd " LINEAR
                           "+query~ +key~ +value~ +attention +logsumexp +rng_state " LINEAR
                           "sum weight +rstd " LINEAR "gate~ up~ activated " LINEAR);
}

static int64_t parameter_elements_of(const graph *g)
{
  int64_t sum = 0;
  for (tensor_id t = 1; t < g->tensors.count; t++)
    if (g->tensors.items[t].parameter) sum += tensor_elements(g, t);
  return sum;
}

/* Llama-3-8B has 8,030,261,248 parameters; 525,336,576 fewer when the output layer is the
 * embedding. */
static void parameters_are_those_of_the_model(void **state)
{
  (void)state;
  static const char *const llama[KEYS][2] = { COMMON,
                                              { "num_layers", "32" },
                                              { "ffn_hidden_size", "14336" },
                                              { "vocab_size", "128256" },
                                              { "position_embedding_type", "rope" },
                                              { "seq_length", "8192" } };
  const char *tied[KEYS][2];
  memcpy(tied, llama, sizeof tied);
  for (int i = 0; i < KEYS && tied[i][0] != NULL; i++)
    if (strcmp(tied[i][0], "untie_embeddings_and_output_weights") == 0) tied[i][1] = "false";
  const int64_t expected[] = { INT64_C(8030261248), INT64_C(8030261248) - 128256 * 4096 };
  for (int i = 0; i < 2; i++) {
    arena memory = { 0 };
    settings s;
    graph *g = build("parameters", i == 0 ? llama : (const char *const(*)[2])tied, &s, &memory);
    assert_int_equal(parameter_elements_of(g), expected[i]);
    graph_release(g);
    arena_release(&memory);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_model_saves_what_hooks_saw),
    cmocka_unit_test(fused_operators_pack_in_this_order),
    cmocka_unit_test(eager_operators_pack_in_this_order),
    cmocka_unit_test(flash_attention_packs_after_its_kernel),
    cmocka_unit_test(parameters_are_those_of_the_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
