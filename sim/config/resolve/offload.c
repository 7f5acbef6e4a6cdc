/* Which offload system runs, which settings it changes, and which have no effect with it. */
#include "sim/config/resolve/steps.h"

static void drop_offload_module(settings *s, offload_modules_choice module, arena *a, diag *d)
{
  setting_key key = KEY_offload_offload_modules;
  choice_list *modules = &s->offload.offload_modules;
  choice_list left = { .items = ARENA_ARRAY(a, uint32_t, modules->count) };

  if (!has_choice(modules, module)) {
    return;
  }
  for (uint32_t i = 0; i < modules->count; i++) {
    if (modules->items[i] != module) {
      choice_add(&left, modules->items[i]);
    }
  }
  *modules = left;
  diag_note(d, s->at[key],
            "offload_modules: %s stays on the device, because a CUDA graph begins or ends there",
            choice_word(key, module));
}

/* A captured part cannot take over or hand on what a norm's group holds
 * (megatron/core/transformer/transformer_layer.py, _set_offload_modules). */
static void resolve_offload_of_graphs(settings *s, arena *a, diag *d)
{
  const choice_list *captured = &s->training.cuda_graph_modules;

  if (s->training.cuda_graph_impl == GRAPHS_NONE) {
    return;
  }
  if (has_choice(captured, CAPTURE_ATTN)) {
    drop_offload_module(s, OFFLOAD_ATTN_NORM, a, d);
  }
  if (has_choice(captured, CAPTURE_ATTN) || has_choice(captured, CAPTURE_MOE_ROUTER)) {
    drop_offload_module(s, OFFLOAD_MLP_NORM, a, d);
  }
}

/* Megatron's layer-level flags go to the engine that Transformer Engine runs: the second from 2.10
 * on, unless the environment selects the first. */
static system_choice layer_engine(const settings *s)
{
  bool second = s->derived.software.transformer_engine >= SOFTWARE_VERSION(2, 10);

  return second && !s->software.nvte_cpu_offload_v1 ? SYSTEM_te_v2 : SYSTEM_te_v1;
}

static system_choice default_offload_system(const settings *s)
{
  const struct offload_settings *o = &s->offload;

  if (o->fine_grained_activation_offloading) {
    return SYSTEM_megatron;
  }
  if (o->moe_paged_stash) {
    return SYSTEM_paged_stash;
  }
  return o->cpu_offloading && o->cpu_offloading_activations ? layer_engine(s) : SYSTEM_none;
}

static void drop_double_buffering(settings *s, diag *d, const char *why)
{
  setting_key key = KEY_offload_cpu_offloading_double_buffering;

  if (s->offload.cpu_offloading_double_buffering) {
    diag_note(d, s->at[key], "cpu_offloading_double_buffering has no effect: %s", why);
  }
  s->offload.cpu_offloading_double_buffering = false;
}

/* Settings without effect, or with another one than their name says. */
static void resolve_layer_level(settings *s, diag *d)
{
  struct offload_settings *o = &s->offload;
  bool second = o->system == SYSTEM_te_v2;

  if (o->cpu_offloading_weights) {
    diag_note(d, s->at[KEY_offload_cpu_offloading_weights],
              "cpu_offloading_weights has no effect: Transformer Engine offloads no weights");
  }
  if (second) {
    drop_double_buffering(s, d, "Transformer Engine's second engine has no double buffer");
  } else if (s->derived.software.transformer_engine < SOFTWARE_VERSION(2, 5)) {
    drop_double_buffering(s, d, "it needs Transformer Engine 2.5");
  }
  if (second && !o->cpu_offloading_manual_synchronization &&
      o->cpu_offloading_num_layers == s->model.num_layers - 1) {
    diag_note(d, s->at[KEY_offload_cpu_offloading_num_layers],
              "with all layers but one offloaded, te_v2 waits for every copy; two layers less let "
              "copies and computation overlap");
  }
}

/* TransformerBlock.forward enters the context in which layers are offloaded. A schedule that runs
 * layers in parts does not call it (model_chunk_schedule_plan.py). */
void drop_layers_in_parts(settings *s, diag *d)
{
  if (s->parallel.overlap_moe_expert_parallel_comm && offloads_layers(s) && !uses_hf(s)) {
    diag_note(d, s->at[KEY_parallel_overlap_moe_expert_parallel_comm],
              "with overlap_moe_expert_parallel_comm no layer is offloaded: its schedule never "
              "enters the context of layer-level offloading");
    s->offload.system = SYSTEM_none;
  }
}

static void resolve_checkpoint_engines(settings *s)
{
  if (is_reentrant_engine(s) && !s->given[KEY_recompute_use_reentrant]) {
    s->recompute.use_reentrant = true;
  }
  if (is_selective_engine(s) && !s->given[KEY_recompute_selective_checkpointing]) {
    s->recompute.selective_checkpointing = true;
  }
}

/* Without a system of activations, layer_offloading is the system. */
static void resolve_layer_offloading(struct offload_settings *o)
{
  if (o->system == SYSTEM_none && o->layer_offloading) {
    o->system = SYSTEM_layer_offloading;
  }
  o->layer_offloading = o->layer_offloading || o->system == SYSTEM_layer_offloading;
}

/* As in Megatron-LM, the list alone turns nothing on. Who names the switch or the system knows. */
static void note_idle_modules(const settings *s, diag *d)
{
  if (s->offload.system == SYSTEM_none && s->offload.offload_modules.count > 0 &&
      !s->given[KEY_offload_system] && !s->given[KEY_offload_fine_grained_activation_offloading]) {
    diag_note(d, s->at[KEY_offload_offload_modules],
              "offload_modules without fine_grained_activation_offloading: nothing is offloaded");
  }
}

void resolve_offload(settings *s, arena *a, diag *d)
{
  struct offload_settings *o = &s->offload;
  bool is_variant;

  o->cpu_offloading = o->cpu_offloading || o->cpu_offloading_num_layers > 0;
  if (o->system == SYSTEM_EMPTY) {
    o->system = default_offload_system(s);
  }
  resolve_layer_offloading(o);
  resolve_checkpoint_engines(s);
  if (offloads_layers(s) && !uses_hf(s)) {
    o->cpu_offloading = true;
    resolve_layer_level(s, d);
    return;
  }
  is_variant = o->system == SYSTEM_megatron_pr1752;
  o->fine_grained_activation_offloading = offload_scope_of(s) == OFFLOAD_MODULES;
  o->moe_paged_stash = o->moe_paged_stash || offload_scope_of(s) == OFFLOAD_EXPERTS;
  if (is_variant && o->offload_modules.count == 0) {
    o->offload_modules = (choice_list){ .items = ARENA_ARRAY(a, uint32_t, 1) };
    choice_add(&o->offload_modules, OFFLOAD_CORE_ATTN);
  }
  resolve_offload_of_graphs(s, a, d);
  note_idle_modules(s, d);
}
