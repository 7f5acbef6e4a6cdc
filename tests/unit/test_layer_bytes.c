/*
 * What autograd keeps for one layer, against the formulas of the field: each storage once, charged
 * to the first module that saves it, without parameters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/model/chunk.h"
#include "sim/model/megatron/modules.h"

enum { MIB = 1 << 20, KEYS = 24 };

/* Settings as key=value, and the bytes that a layer's modules with this prefix keep. */
typedef struct layer_case {
  const char *name;
  const char *sets[KEYS][2];
  const char *prefix; /* "" for the whole layer */
  int64_t expected_bytes;
} layer_case;

/* tokens s b = 4096, h 512, 8 heads of 64, f 2048 */
#define SMALL_MODEL                                                                                \
  { "world_size", "1" }, { "num_layers", "2" }, { "hidden_size", "512" },                          \
      { "num_attention_heads", "8" }, { "seq_length", "1024" }, { "micro_batch_size", "4" },       \
      { "bf16", "true" }, { "padded_vocab_size", "1024" }, { "max_position_embeddings", "1024" },  \
      { "vocab_size", "1024" }, { "attention_dropout", "0.0" },                                    \
  {                                                                                                \
    "hidden_dropout", "0.0"                                                                        \
  }
enum { T = 4096, H = 512, F = 2048, HEADS = 8, PROBS = 4 * HEADS * 1024 * 1024 };
/* Two norms: input, output, mean and rstd; the MLP's two activations. */
enum {
  NORMS = 2 * (2 * T * H * 2 + 8 * T),
  GELU = 2 * T * F * 2,
  QKV = 3 * T * H * 2,
  OUT = T * H * 2
};
enum { LSE = 4 * T * HEADS, RNG = 16 };

#define LLAMA                                                                                      \
  { "world_size", "1" }, { "num_layers", "2" }, { "hidden_size", "4096" },                         \
      { "num_attention_heads", "32" }, { "group_query_attention", "true" },                        \
      { "num_query_groups", "8" }, { "ffn_hidden_size", "14336" }, { "seq_length", "4096" },       \
      { "micro_batch_size", "1" }, { "bf16", "true" }, { "swiglu", "true" },                       \
      { "normalization", "RMSNorm" }, { "position_embedding_type", "rope" },                       \
      { "add_bias_linear", "false" }, { "padded_vocab_size", "1024" }, { "vocab_size", "1024" },   \
      { "attention_dropout", "0.0" },                                                              \
  {                                                                                                \
    "hidden_dropout", "0.0"                                                                        \
  }

/* DeepSeek-V3's attention at 4096 tokens: latents, query, key, value, output. */
#define DEEPSEEK                                                                                   \
  { "world_size", "1" }, { "num_layers", "2" }, { "hidden_size", "7168" },                         \
      { "num_attention_heads", "128" }, { "multi_latent_attention", "true" },                      \
      { "q_lora_rank", "1536" }, { "kv_lora_rank", "512" }, { "qk_layernorm", "true" },            \
      { "seq_length", "4096" }, { "micro_batch_size", "1" }, { "bf16", "true" },                   \
      { "swiglu", "true" }, { "normalization", "RMSNorm" }, { "position_embedding_type", "rope" }, \
      { "add_bias_linear", "false" }, { "padded_vocab_size", "1024" }, { "vocab_size", "1024" },   \
      { "attention_dropout", "0.0" }, { "hidden_dropout", "0.0" },                                 \
  {                                                                                                \
    "ffn_hidden_size", "18432"                                                                     \
  }

static const layer_case cases[] = {
  { "cuDNN attention",
    { SMALL_MODEL, { "attention_backend", "fused" } },
    "",
    NORMS + QKV + OUT + LSE + RNG + GELU },
  { "flash attention keeps its output twice",
    { SMALL_MODEL, { "attention_backend", "flash" } },
    "",
    NORMS + QKV + 2 * OUT + LSE + RNG + GELU },
  { "unfused attention keeps the probabilities",
    { SMALL_MODEL, { "attention_backend", "unfused" } },
    "",
    NORMS + QKV + OUT + 2 * PROBS + GELU },
  { "attention dropout keeps mask and result too",
    { SMALL_MODEL, { "attention_backend", "unfused" }, { "attention_dropout", "0.1" } },
    "",
    NORMS + QKV + OUT + 5 * PROBS + GELU },
  { "hidden dropout keeps two masks",
    { SMALL_MODEL, { "attention_backend", "fused" }, { "hidden_dropout", "0.1" } },
    "",
    NORMS + QKV + OUT + LSE + RNG + GELU + 2 * T *H },
  { "recomputing core attention keeps query, key, value and the output",
    { SMALL_MODEL, { "attention_backend", "unfused" }, { "recompute_granularity", "selective" } },
    "",
    NORMS + QKV + OUT + GELU },
  { "recomputing the MLP keeps its input only",
    { SMALL_MODEL,
      { "attention_backend", "fused" },
      { "recompute_granularity", "selective" },
      { "recompute_modules", "mlp" } },
    "mlp",
    T *H * 2 },
  { "GQA with SwiGLU",
    { LLAMA, { "attention_backend", "fused" } },
    "",
    (int64_t)MIB *(4 * 32 + 32 + 16 + 32 + 3 * 112) + 4096 * 32 * 4 + 2 * 4096 * 4 + RNG },
  { "fewer groups than tensor parallel ranks: the gathered projection is not kept",
    { LLAMA,
      { "attention_backend", "fused" },
      { "world_size", "16" },
      { "tensor_model_parallel_size", "16" } },
    "self_attention",
    (int64_t)MIB *(32 + 32 + 2 + 1 + 1 + 2) + 4096 * 2 * 4 + 4096 * 4 + RNG },
  { "an L2 norm keeps its input as it lies: the key is a view of the whole projection",
    { LLAMA, { "attention_backend", "fused" }, { "qk_l2_norm", "true" } },
    "self_attention",
    (int64_t)MIB *(32 + 32 + 48 + 32 + 32 + 8 + 8 + 32) + 4096 * 4 * (1 + 40 + 32) + RNG },
  { "MLA",
    { DEEPSEEK, { "attention_backend", "fused" } },
    "self_attention",
    (int64_t)MIB *(56 + 12 + 12 + 4 + 192 + 192 + 128 + 128 + 2) + MIB * 9 / 2 + 2 * 4096 * 4 +
        RNG },
};

static void read_case(settings *s, const layer_case *c, arena *a)
{
  diag d = { .quiet = true };
  settings_init(s, a);
  for (int i = 0; i < KEYS && c->sets[i][0] != NULL; i++)
    assert_true(settings_set(s, c->sets[i][0], c->sets[i][1], (source_pos){ 0 }, a, &d));
  s->derived.compute_capability = 90;
  if (!settings_resolve(s, NULL, a, &d)) fail_msg("%s: %s", c->name, d.message);
}

typedef struct tally {
  const graph *g;
  const char *prefix;
  bool *charged; /* by storage */
  int64_t bytes;
} tally;

/* Each storage once; it counts where the module and the layer are those asked for. */
static void charge(tally *t, const tensor_id *saved, uint32_t limit, uint32_t site)
{
  const plan_site *at = &t->g->sites.items[site];
  bool counts = at->layer == 1 && strncmp(at->module, t->prefix, strlen(t->prefix)) == 0;
  for (uint32_t i = 0; i < limit && saved[i] != 0; i++) {
    tensor_id storage = tensor_storage(t->g, saved[i]);
    if (t->g->tensors.items[storage].parameter || t->charged[storage]) continue;
    t->charged[storage] = true;
    if (counts) t->bytes += tensor_bytes(t->g, storage);
  }
}

/* Inside a region nothing is saved but the region's inputs. */
static void charge_item(tally *t, uint32_t item, int *depth)
{
  const graph *g = t->g;
  uint32_t index = g->items.items[item].index;
  if (g->items.items[item].kind == ITEM_REGION_END) {
    (*depth)--;
  } else if (g->items.items[item].kind == ITEM_REGION_BEGIN) {
    uint32_t first_inside = g->items.items[item + 1].index;
    charge(t, g->regions.items[index].inputs, NODE_INPUTS, g->nodes.items[first_inside].site);
    (*depth)++;
  } else if (g->items.items[item].kind == ITEM_NODE && *depth == 0) {
    charge(t, g->nodes.items[index].saved, NODE_SAVED, g->nodes.items[index].site);
  }
}

static int64_t saved_bytes(const graph *g, const char *prefix, arena *a)
{
  tally t = { .g = g, .prefix = prefix, .charged = ARENA_ARRAY(a, bool, g->tensors.count) };
  int depth = 0;
  for (uint32_t i = 0; i < g->items.count; i++)
    charge_item(&t, i, &depth);
  return t.bytes;
}

static void a_layer_keeps_what_the_formulas_say(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    arena memory = { 0 };
    settings s;
    read_case(&s, &cases[i], &memory);
    graph *g = graph_of_chunk(&s, 0, 0, &memory);
    int64_t found = saved_bytes(g, cases[i].prefix, &memory);
    if (found != cases[i].expected_bytes)
      fail_msg("%s: keeps %lld bytes, expected %lld", cases[i].name, (long long)found,
               (long long)cases[i].expected_bytes);
    graph_release(g);
    arena_release(&memory);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(a_layer_keeps_what_the_formulas_say) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
