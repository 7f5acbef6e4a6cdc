/*
 * What a mixture-of-experts layer keeps for backward, against sizes worked out by hand for
 * published models (bf16, one micro-batch of 4096 tokens, no tensor parallelism, balanced routing,
 * fused routing and permutation, all-to-all).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/graph/fp8.h"
#include "sim/model/megatron/moe.h"

typedef struct layer_case {
  int64_t hidden, experts, topk, ffn, shared, tp, etp, ep;
} layer_case;

static settings settings_of(layer_case c)
{
  settings s = { 0 };
  s.model.transformer_impl = TRANSFORMER_TE;
  s.model.hidden_size = c.hidden;
  s.model.num_experts = c.experts;
  s.model.moe_router_topk = c.topk;
  s.model.moe_ffn_hidden_size = c.ffn;
  s.model.moe_shared_expert_intermediate_size = c.shared;
  s.model.swiglu = true;
  s.model.bias_activation_fusion = true;
  s.model.normalization = NORM_RMS;
  s.model.moe_grouped_gemm = true;
  s.model.moe_router_fusion = true;
  s.model.moe_permute_fusion = true;
  s.model.moe_router_dtype = ROUTER_DTYPE_FP32;
  s.model.moe_router_score_function = SCORES_SIGMOID;
  s.model.moe_token_dispatcher_type = DISPATCHER_ALLTOALL;
  s.model.moe_flex_dispatcher_backend = FLEX_DEEPEP;
  s.model.moe_expert_capacity_factor = -1;
  s.model.moe_imbalance = 1;
  s.parallel.tensor_model_parallel_size = c.tp;
  s.parallel.sequence_parallel = c.tp > 1;
  s.parallel.context_parallel_size = 1;
  s.parallel.expert_model_parallel_size = c.ep;
  s.parallel.expert_tensor_parallel_size = c.etp;
  s.training.seq_length = 4096;
  s.training.micro_batch_size = 1;
  s.training.bf16 = true;
  s.training.fp8_format = FP8_FORMAT_NONE;
  s.training.fp8_recipe = FP8_RECIPE_DELAYED;
  s.recompute.recompute_granularity = GRANULARITY_NONE;
  s.offload.system = SYSTEM_megatron;
  s.machine.name = "H100-SXM";
  return s;
}

typedef struct layer_graph {
  arena memory;
  settings settings;
  graph *graph;
} layer_graph;

static layer_graph layer_of(settings s)
{
  layer_graph l = { .settings = s };
  l.graph = graph_new(&l.memory);
  int64_t sequence = s.training.seq_length / s.parallel.tensor_model_parallel_size;
  tensor_id x = graph_tensor_new(l.graph, "pre_mlp_layernorm_output", DTYPE_BF16, sequence,
                                 s.training.micro_batch_size, s.model.hidden_size, 0);
  moe_layer(l.graph, &s, (moe_place){ .layer = 3 }, x);
  return l;
}

static void release(layer_graph *l)
{
  graph_release(l->graph);
  arena_release(&l->memory);
}

/* Bytes of the distinct storages that autograd keeps; with a name, only of that tensor. */
static int64_t saved_bytes(const graph *g, const char *module, const char *name)
{
  bool *seen = calloc(g->tensors.count, sizeof *seen);
  int64_t bytes = 0;
  for (uint32_t i = 1; i < g->nodes.count; i++) {
    const graph_node *n = &g->nodes.items[i];
    for (int k = 0; k < NODE_SAVED && n->saved[k] != 0; k++) {
      tensor_id t = tensor_storage(g, n->saved[k]);
      const graph_tensor *tensor = &g->tensors.items[t];
      if (tensor->parameter || seen[t]) continue;
      seen[t] = true;
      const char *made_in = g->sites.items[tensor->site].module;
      if ((name == NULL || strcmp(tensor->name, name) == 0) &&
          (module == NULL || strcmp(made_in, module) == 0))
        bytes += tensor_bytes(g, t);
    }
  }
  free(seen);
  return bytes;
}

static int64_t mib(double n)
{
  return (int64_t)(n * 1048576);
}

static const layer_case deepseek_v3 = { 7168, 256, 8, 2048, 2048, 1, 1, 32 };
static const layer_case qwen3_30b = { 2048, 128, 8, 768, 0, 1, 1, 8 };
static const layer_case qwen3_235b = { 4096, 128, 8, 1536, 0, 1, 1, 8 };

static void deepseek_v3_layer(void **state)
{
  (void)state;
  layer_graph l = layer_of(settings_of(deepseek_v3));
  const graph *g = l.graph;
  assert_int_equal(saved_bytes(g, NULL, "pre_mlp_layernorm_output"), mib(56));
  assert_int_equal(saved_bytes(g, "mlp.router", NULL), mib(5));
  assert_int_equal(saved_bytes(g, NULL, "row_id_map"), 4 * 4096 * (2 * 256 + 1));
  assert_int_equal(saved_bytes(g, "mlp.token_dispatcher", "sorted_tokens"), mib(448));
  assert_int_equal(saved_bytes(g, "mlp.experts.linear_fc1", "output"), mib(256));
  assert_int_equal(saved_bytes(g, "mlp.experts.activation_func", "activated"), mib(128));
  assert_int_equal(saved_bytes(g, NULL, "sorted_probs"), 4 * 32768);
  assert_int_equal(saved_bytes(g, "mlp.shared_experts.linear_fc1", NULL) +
                       saved_bytes(g, "mlp.shared_experts", NULL) +
                       saved_bytes(g, "mlp.shared_experts.activation", NULL),
                   mib(48));
  /* All of it, with the two indexes of the chunk sort. */
  int64_t parts = mib(56 + 5 + 448 + 256 + 128 + 48) + 4 * 4096 * 513 + 4 * 32768 + 2 * 4 * 32768;
  assert_int_equal(saved_bytes(g, NULL, NULL), parts);
  release(&l);
}

static void qwen3_layers(void **state)
{
  (void)state;
  layer_graph small = layer_of(settings_of(qwen3_30b)), large = layer_of(settings_of(qwen3_235b));
  int64_t maps = mib(2.5) + 4 * 4096 * 257 + 3 * 4 * 32768;
  assert_int_equal(saved_bytes(small.graph, NULL, NULL), mib(16 + 128 + 96 + 48) + maps);
  assert_int_equal(saved_bytes(large.graph, NULL, NULL), mib(32 + 256 + 192 + 96) + maps);
  release(&small);
  release(&large);
}

/* hidden 1024, 32 experts, top 4, tp 2 with sequence parallel: 2048 tokens in the router. */
static void tensor_parallel_layer(void **state)
{
  (void)state;
  layer_graph l = layer_of(settings_of((layer_case){ 1024, 32, 4, 1024, 1024, 2, 1, 4 }));
  const graph *g = l.graph;
  assert_int_equal(saved_bytes(g, "mlp.router", NULL), 5 * 2048 * 32);
  assert_int_equal(saved_bytes(g, NULL, "row_id_map"), 4 * 2048 * 65);
  assert_int_equal(saved_bytes(g, NULL, "sorted_tokens"), mib(16));
  assert_int_equal(saved_bytes(g, "mlp.experts.linear_fc1", "output"), mib(32));
  assert_int_equal(saved_bytes(g, "mlp.experts.activation_func", "activated"), mib(16));
  release(&l);
}

/* Expert tensor parallelism: more rows of the input, the same fc1 output. */
static void expert_tensor_parallelism(void **state)
{
  (void)state;
  layer_case c = { 1024, 32, 4, 1024, 0, 2, 2, 4 };
  layer_graph l = layer_of(settings_of(c));
  assert_int_equal(saved_bytes(l.graph, NULL, "sorted_tokens"), mib(32));
  assert_int_equal(saved_bytes(l.graph, "mlp.experts.linear_fc1", "output"), mib(32));
  release(&l);
}

static void rows_follow_imbalance_and_capacity(void **state)
{
  (void)state;
  settings s = settings_of(qwen3_30b);
  s.model.moe_imbalance = 1.5;
  assert_int_equal(moe_sizes_of(&s).rows, 49152);
  s.model.moe_imbalance = 1.00001;
  assert_int_equal(moe_sizes_of(&s).rows, 32769);
  assert_int_equal(moe_sizes_of(&s).sent, 32768);
  s.model.moe_expert_capacity_factor = 1;
  assert_int_equal(moe_sizes_of(&s).rows, 32768);
  s.model.moe_expert_capacity_factor = 1.1;
  s.model.moe_pad_expert_input_to_capacity = true;
  s.model.moe_imbalance = 3;
  assert_int_equal(moe_sizes_of(&s).capacity, 282); /* 4096 x 8 / 128 x 1.1 = 281.6 */
  assert_int_equal(moe_sizes_of(&s).rows, 282 * 128);
}

/* Selective recomputation of the activation keeps fc1's output instead of fc2's input. */
static void recomputed_activation(void **state)
{
  (void)state;
  uint32_t module = RECOMPUTE_MOE_ACT;
  settings s = settings_of(qwen3_30b);
  s.recompute.recompute_granularity = GRANULARITY_SELECTIVE;
  s.recompute.recompute_modules = (choice_list){ &module, 1, 1u << module };
  layer_graph l = layer_of(s);
  assert_int_equal(l.graph->regions.count, 2);
  assert_int_equal(l.graph->regions.items[1].kind, REGION_DISCARD);
  release(&l);
}

/* Of the tensors with memory of their own. */
static int64_t widest_tensor_bytes(const graph *g, const char *module)
{
  int64_t widest = 0;
  for (tensor_id t = 1; t < g->tensors.count; t++)
    if (tensor_storage(g, t) == t &&
        strcmp(g->sites.items[g->tensors.items[t].site].module, module) == 0)
      widest = tensor_bytes(g, t) > widest ? tensor_bytes(g, t) : widest;
  return widest;
}

static void every_dispatcher_and_expert_builds(void **state)
{
  (void)state;
  for (int i = DISPATCHER_ALLGATHER; i <= DISPATCHER_FLEX; i++)
    for (int variant = 0; variant < 16; variant++) {
      settings s = settings_of((layer_case){ 512, 8, 2, 1024, 0, 2, 2, 2 });
      s.model.moe_token_dispatcher_type = (moe_token_dispatcher_type_choice)i;
      s.model.moe_grouped_gemm = variant & 1;
      s.model.moe_permute_fusion = variant & 2;
      s.model.moe_router_fusion = variant & 2;
      s.model.swiglu = variant & 4;
      s.model.add_bias_linear = !s.model.swiglu;
      s.model.bias_activation_fusion = s.model.swiglu;
      s.model.moe_flex_dispatcher_backend = variant & 8 ? FLEX_HYBRIDEP : FLEX_DEEPEP;
      s.training.micro_batch_size = 2;
      layer_graph l = layer_of(s);
      int64_t rows = 4096 * 2 * 2;
      assert_true(saved_bytes(l.graph, NULL, NULL) > rows * 512 * 2);
      /* The sum over expert tensor parallel ranks runs in fp32. */
      assert_in_range(widest_tensor_bytes(l.graph, "mlp.token_dispatcher"), rows * 512 * 2,
                      rows * 512 * 4);
      release(&l);
    }
}

/* One token for eight experts that run one after the other: none has an empty matrix. */
static void fewer_rows_than_experts(void **state)
{
  (void)state;
  settings s = settings_of(qwen3_30b);
  s.parallel.expert_model_parallel_size = 1;
  s.model.moe_grouped_gemm = false;
  s.training.seq_length = 1;
  layer_graph l = layer_of(s);
  for (uint32_t i = 1; i < l.graph->tensors.count; i++)
    assert_true(tensor_elements(l.graph, i) > 0);
  release(&l);
}

static void fp8_layouts(void **state)
{
  (void)state;
  settings s = settings_of(qwen3_30b);
  s.training.fp8_recipe = FP8_RECIPE_TENSORWISE;
  assert_int_equal(fp8_saved_bytes(&s, 4096, 2048, false), 4096 * 2048 + 4);
  assert_int_equal(fp8_gradient_bytes(&s, 2048, 2048), 2 * (2048 * 2048 + 4));
  s.training.fp8_recipe = FP8_RECIPE_BLOCKWISE;
  assert_int_equal(fp8_saved_bytes(&s, 4096, 2048, false), 4096 * 2048 + 2048 * 32 * 4);
  s.training.fp8_recipe = FP8_RECIPE_MXFP8;
  s.derived.compute_capability = 100;
  assert_int_equal(fp8_saved_bytes(&s, 4096, 2048, false), 4096 * 2048 + 2048 * 128);
  s.training.fp8_recipe = FP8_RECIPE_DELAYED;
  assert_int_equal(fp8_forward_bytes(&s, 4096, 2048), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(deepseek_v3_layer),
    cmocka_unit_test(qwen3_layers),
    cmocka_unit_test(tensor_parallel_layer),
    cmocka_unit_test(expert_tensor_parallelism),
    cmocka_unit_test(rows_follow_imbalance_and_capacity),
    cmocka_unit_test(recomputed_activation),
    cmocka_unit_test(every_dispatcher_and_expert_builds),
    cmocka_unit_test(fewer_rows_than_experts),
    cmocka_unit_test(fp8_layouts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
