/*
 * Selective checkpoints: what they need (axolotl/utils/schemas/validation.py:
 * check_selective_checkpointing).
 */
#include "sim/config/validate/validate.h"

static bool is_checkpointed(const settings *s)
{
  return s->recompute.recompute_granularity == GRANULARITY_FULL;
}

/* PEFT adds what an adapter makes to the product in place. */
static bool saves_products(const settings *s)
{
  const choice_list *save = &s->recompute.selective_checkpointing_save;

  return has_choice(save, SAVE_MM) || has_choice(save, SAVE_ADDMM) || has_choice(save, SAVE_BMM);
}

static bool check_selective(const settings *s, diag *d)
{
  setting_key key = KEY_recompute_selective_checkpointing, system = KEY_offload_system;
  bool goes_with = is_selective_engine(s) || s->offload.system == SYSTEM_none ||
                   s->offload.system == SYSTEM_hidden_states || s->offload.system == SYSTEM_planned;

  return need(s, d, uses_hf(s), key, system,
              "selective_checkpointing needs implementation hf; it is %s",
              chosen_word(s, KEY_model_implementation)) &&
         need(s, d, is_checkpointed(s), key, system,
              "selective_checkpointing needs recompute_granularity full") &&
         need(s, d, !s->recompute.use_reentrant, KEY_recompute_use_reentrant, key,
              "selective_checkpointing does not work with use_reentrant") &&
         need(s, d, goes_with, key, system,
              "selective_checkpointing works with offload system none, hidden_states, planned or "
              "selective_checkpointing; it is %s",
              chosen_word(s, KEY_offload_system)) &&
         need(s, d, s->recompute.selective_checkpointing_save.count > 0,
              KEY_recompute_selective_checkpointing_save, key,
              "selective_checkpointing_save is empty; nothing would be saved") &&
         need(s, d, s->lora.adapter == ADAPTER_NONE || !saves_products(s),
              KEY_recompute_selective_checkpointing_save, KEY_lora_adapter,
              "selective_checkpointing_save names matrix products, which cannot be saved with an "
              "adapter: it is added to them in place");
}

/* A layer's MLP decides beside the operator. */
static bool check_mlp_layers(const settings *s, diag *d)
{
  setting_key key = KEY_recompute_selective_checkpointing_mlp_layers, system = KEY_offload_system;
  bool by_tensor = s->offload.system == SYSTEM_none || s->offload.system == SYSTEM_planned;

  return need(s, d, s->recompute.selective_checkpointing && saves_products(s), key,
              KEY_recompute_selective_checkpointing_save,
              "selective_checkpointing_mlp_layers needs selective_checkpointing, and a matrix "
              "product in selective_checkpointing_save") &&
         need(s, d, by_tensor, key, system,
              "selective_checkpointing_mlp_layers works with offload systems none and planned; it "
              "is %s",
              chosen_word(s, system));
}

static bool check_activation_layers(const settings *s, diag *d)
{
  setting_key key = KEY_recompute_selective_checkpointing_activation_layers;
  bool by_tensor = s->offload.system == SYSTEM_none || s->offload.system == SYSTEM_planned;

  return need(s, d, s->recompute.selective_checkpointing, key,
              KEY_recompute_selective_checkpointing,
              "selective_checkpointing_activation_layers needs selective_checkpointing") &&
         need(s, d, by_tensor, key, KEY_offload_system,
              "selective_checkpointing_activation_layers works with offload systems none and "
              "planned; it is %s",
              chosen_word(s, KEY_offload_system));
}

bool validate_checkpoint_engines(const settings *s, diag *d)
{
  setting_key both = KEY_offload_selective_checkpointing_hidden_states;

  return (!s->recompute.selective_checkpointing || check_selective(s, d)) &&
         (*s->recompute.selective_checkpointing_mlp_layers == '\0' || check_mlp_layers(s, d)) &&
         (*s->recompute.selective_checkpointing_activation_layers == '\0' ||
          check_activation_layers(s, d)) &&
         need(s, d, is_selective_engine(s) || !s->offload.selective_checkpointing_hidden_states,
              both, KEY_offload_system,
              "selective_checkpointing_hidden_states needs offload system selective_checkpointing; "
              "it is %s",
              chosen_word(s, KEY_offload_system));
}
