/* Routed and shared experts: how many, how wide, in which layers, and how they are chosen. */
#include <string.h>

#include "sim/config/hf/parts.h"

/* Which layers are MoE: DeepSeek counts from layer 0 and keeps the first dense, Qwen and Llama 4
 * count from 1; Qwen names dense layers, Llama 4 the others. */
typedef struct moe_rule {
  int64_t first;                 /* layers before it are dense */
  int64_t step, step_from;       /* layer i is MoE if (i + step_from) % step == 0 */
  const text_node *dense, *only; /* lists of layers, or NULL; `only` these are MoE */
} moe_rule;

static bool is_named(const text_node *list, const char *layer)
{
  for (uint32_t i = 0; list != NULL && i < list->count; i++) {
    if (strcmp(list->children[i].text, layer) == 0) {
      return true;
    }
  }
  return false;
}

static bool is_moe(const moe_rule *rule, int64_t i, const char *name)
{
  if (rule->only != NULL) {
    return is_named(rule->only, name);
  }
  return i >= rule->first && (i + rule->step_from) % rule->step == 0 &&
         !is_named(rule->dense, name);
}

static bool read_moe_rule(const hf_reader *r, moe_rule *rule)
{
  bool llama4 = hf_has_parts(r, PART_LLAMA4);
  rule->step_from = llama4 || hf_get(r, "decoder_sparse_step") != NULL;
  const char *step = llama4                 ? "interleave_moe_layer_step"
                     : rule->step_from != 0 ? "decoder_sparse_step"
                                            : "moe_layer_freq";
  rule->dense = hf_get(r, "mlp_only_layers");
  rule->only = llama4 ? hf_get(r, "moe_layers") : NULL;
  if (!hf_number(r, "first_k_dense_replace", 0, &rule->first) ||
      !hf_number(r, step, 1, &rule->step)) {
    return false;
  }
  if (rule->step < 1) {
    return diag_error(r->d, hf_get(r, step)->at, "%s is %s; it must be at least 1", step,
                      hf_get(r, step)->text);
  }
  return (rule->dense == NULL || text_expect(rule->dense, TEXT_SEQUENCE, r->d)) &&
         (rule->only == NULL || text_expect(rule->only, TEXT_SEQUENCE, r->d));
}

/* The pattern as Megatron's list, a 1 for each MoE layer. */
static bool set_moe_layers(const hf_reader *r)
{
  moe_rule rule;
  int64_t layers = r->s->model.num_layers;
  if (!read_moe_rule(r, &rule)) {
    return false;
  }
  bool *moe = ARENA_ARRAY(r->a, bool, (size_t)layers);
  for (int64_t i = 0; i < layers; i++) {
    moe[i] = is_moe(&rule, i, arena_printf(r->a, "%lld", (long long)i));
  }
  return hf_set_layers(r, "model.moe_layer_freq", moe, r->top->at);
}

/* n_shared_experts of the routed experts' width make one MLP; Llama 4 has one of them. */
static bool set_shared_experts(const hf_reader *r, int64_t width)
{
  int64_t count;
  const text_node *n = hf_get(r, "n_shared_experts");
  if (hf_has_parts(r, PART_SHARED_GATE)) {
    return hf_set(r, "model.moe_shared_expert_gate", "true", r->top->at);
  }
  if (hf_has_parts(r, PART_LLAMA4)) {
    return hf_set_number(r, "model.moe_shared_expert_intermediate_size", width, r->top->at);
  }
  if (n == NULL) {
    return true;
  }
  if (!text_as_i64(n, &count, r->d)) {
    return false;
  }
  if (count < 0 || count > INT64_MAX / width) {
    return diag_error(r->d, n->at, "n_shared_experts is %s; it must be 0 or a few", n->text);
  }
  return hf_set_number(r, "model.moe_shared_expert_intermediate_size", count * width, n->at);
}

/* DeepSeek's choice of groups of experts first; one group is none. */
static bool set_routing(const hf_reader *r)
{
  int64_t groups, chosen;
  const text_node *score = hf_get(r, "scoring_func");
  const text_node *method = hf_get(r, "topk_method");
  if (!hf_number(r, "n_group", 1, &groups) || !hf_number(r, "topk_group", 1, &chosen)) {
    return false;
  }
  bool by_group = groups > 1 && (method == NULL || strcmp(method->text, "greedy") != 0);
  if (by_group &&
      (!hf_set_number(r, "model.moe_router_num_groups", groups, hf_get(r, "n_group")->at) ||
       !hf_set_number(r, "model.moe_router_group_topk", chosen, hf_get(r, "n_group")->at))) {
    return false;
  }
  if (score != NULL && !hf_set(r, "model.moe_router_score_function", score->text, score->at)) {
    return false;
  }
  return method == NULL || strcmp(method->text, "noaux_tc") != 0 ||
         hf_set(r, "model.moe_router_enable_expert_bias", "true", method->at);
}

/* The name under which the family counts its routed experts. */
static const char *experts_name(const hf_reader *r)
{
  static const char *const names[] = { "num_local_experts", "n_routed_experts" };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (hf_get(r, names[i]) != NULL) {
      return names[i];
    }
  }
  return "num_experts";
}

bool hf_set_experts(const hf_reader *r)
{
  int64_t experts, width;
  const char *width_name =
      hf_get(r, "moe_intermediate_size") != NULL ? "moe_intermediate_size" : "intermediate_size";
  if (!hf_has_parts(r, PART_EXPERTS)) {
    return true;
  }
  return hf_count(r, experts_name(r), &experts) && hf_count(r, width_name, &width) &&
         hf_set_number(r, "model.num_experts", experts, hf_get(r, experts_name(r))->at) &&
         hf_set_number(r, "model.moe_ffn_hidden_size", width, hf_get(r, width_name)->at) &&
         hf_set(r, "model.moe_grouped_gemm", "true", r->top->at) && set_moe_layers(r) &&
         set_shared_experts(r, width) && set_routing(r);
}
