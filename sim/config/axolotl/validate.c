/*
 * Combinations of checkpointing and offloading that Axolotl refuses or warns of, in the order in
 * which it looks (utils/schemas/validation.py, ModelCompatibilityValidationMixin and
 * EBFTValidationMixin).
 */
#include <string.h>

#include "sim/config/axolotl/parts.h"

typedef bool condition(const axolotl_reader *r, const axolotl_run *run);

/* ---- conditions ---- */

static bool offloads_without_checkpointing(const axolotl_reader *r, const axolotl_run *run)
{
  (void)r;
  return run->offloading != AXOLOTL_OFFLOADS_NOTHING && !run->checkpointing;
}

static bool selects_without_checkpointing(const axolotl_reader *r, const axolotl_run *run)
{
  (void)r;
  return run->selective && !run->checkpointing;
}

static bool selects_reentrant(const axolotl_reader *r, const axolotl_run *run)
{
  (void)r;
  return run->selective && run->reentrant;
}

static bool selects_beside_trl(const axolotl_reader *r, const axolotl_run *run)
{
  (void)r;
  return run->selective && run->offloading != AXOLOTL_OFFLOADS_NOTHING &&
         run->offloading != AXOLOTL_OFFLOADS_HIDDEN_STATES;
}

/* An entry of `save` is looked for in the names of operators, but for "attention", which is a
 * group. */
static bool is_product(const char *entry)
{
  static const char *const products[] = { "aten::mm", "aten::addmm", "aten::matmul", "aten::bmm" };
  if (strcmp(entry, "attention") == 0) return false;
  for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
    if (strstr(products[i], entry) != NULL) return true;
  return false;
}

static bool saves_products_of_adapters(const axolotl_reader *r, const axolotl_run *run)
{
  const text_node *save = text_get(run->selective_node, "save");
  (void)r;
  if (!run->selective || !run->adapter || save == NULL) return false;
  for (uint32_t i = 0; i < save->count; i++)
    if (save->children[i].kind == TEXT_SCALAR && is_product(save->children[i].text)) return true;
  return false;
}

static bool freezes_reentrant_hidden_states(const axolotl_reader *r, const axolotl_run *run)
{
  return run->offloading == AXOLOTL_OFFLOADS_HIDDEN_STATES && run->reentrant &&
         axolotl_truth(axolotl_get(r, "unfrozen_parameters"));
}

static bool hidden_states_with_adapter(const axolotl_reader *r, const axolotl_run *run)
{
  (void)r;
  return run->offloading == AXOLOTL_OFFLOADS_HIDDEN_STATES && run->adapter;
}

static bool offloads_strided_flex(const axolotl_reader *r, const axolotl_run *run)
{
  const text_node *mode = text_get(axolotl_get(r, "ebft"), "mode");
  bool flex = axolotl_is(r, "attn_implementation", "flex_attention") ||
              axolotl_truth(axolotl_get(r, "flex_attention"));
  return axolotl_is(r, "rl", "ebft") && mode != NULL && strcmp(mode->text, "strided") == 0 &&
         run->offloading == AXOLOTL_OFFLOADS_ALL && flex;
}

/* Weights that transformers converts to 16 bits when it loads them are as any others. */
static bool keeps_quantised_weights(const axolotl_reader *r, const axolotl_run *run)
{
  (void)run;
  const text_node *kwargs = axolotl_get(r, "model_quantization_config_kwargs");
  return axolotl_truth(axolotl_get(r, "model_quantization_config")) &&
         !axolotl_truth(text_get(kwargs, "dequantize"));
}

/* TRL's hooks take the place of transformers' checkpoints. */
static bool makes_no_checkpoints(const axolotl_reader *r, const axolotl_run *run)
{
  (void)r;
  bool trl = run->offloading != AXOLOTL_OFFLOADS_NOTHING &&
             run->offloading != AXOLOTL_OFFLOADS_HIDDEN_STATES;
  return (run->inputs_on_cpu || run->every_n_node != NULL) && (trl || !run->checkpointing);
}

static bool has_other_checkpoints(const axolotl_reader *r, const axolotl_run *run)
{
  (void)r;
  return (run->inputs_on_cpu || run->every_n_node != NULL) &&
         (run->offloading == AXOLOTL_OFFLOADS_HIDDEN_STATES || run->selective);
}

/* ---- what is said ---- */

typedef struct rule {
  condition *applies;
  const char *key; /* the place that the message names */
  bool warning;
  const char *text;
} rule;

static const rule rules[] = {
  { offloads_without_checkpointing, "activation_offloading", false,
    "activation_offloading needs gradient_checkpointing: true" },
  { selects_without_checkpointing, "selective_checkpointing", false,
    "selective_checkpointing needs gradient_checkpointing: true" },
  { selects_reentrant, "gradient_checkpointing_kwargs", false,
    "selective_checkpointing needs checkpoints that are not reentrant: "
    "gradient_checkpointing_kwargs.use_reentrant: false" },
  { selects_beside_trl, "activation_offloading", false,
    "selective_checkpointing works with activation_offloading hidden_states or false; the other "
    "kinds replace the checkpoints that it works in" },
  { saves_products_of_adapters, "selective_checkpointing", false,
    "selective_checkpointing.save names matrix products, which cannot be saved with an adapter: it "
    "changes them in place; save: [attention] works" },
  { freezes_reentrant_hidden_states, "unfrozen_parameters", false,
    "activation_offloading: hidden_states with reentrant checkpoints does not work with "
    "unfrozen_parameters" },
  { hidden_states_with_adapter, "activation_offloading", true,
    "with an adapter, activation_offloading: true can be faster: it moves little and recomputes "
    "nothing" },
  { keeps_quantised_weights, "model_quantization_config", true,
    "model_quantization_config: a quantised base model is not modelled; its weights are predicted "
    "in "
    "the type of the training" },
  { makes_no_checkpoints, "gradient_checkpointing_kwargs", true,
    "gradient_checkpointing_kwargs: offload and every_n_layers have no effect: transformers "
    "makes no checkpoints in this run" },
  { has_other_checkpoints, "gradient_checkpointing_kwargs", false,
    "gradient_checkpointing_kwargs: offload and every_n_layers do not work with "
    "activation_offloading: hidden_states or selective_checkpointing, which have checkpoints of "
    "their own" },
  { offloads_strided_flex, "activation_offloading", false,
    "activation_offloading: true does not work with ebft in mode strided and flex_attention, which "
    "needs reentrant checkpoints" },
};

static bool say(const axolotl_reader *r, const rule *met)
{
  const text_node *n = axolotl_get(r, met->key);
  source_pos at = axolotl_place(r, n != NULL ? n : axolotl_get(r, "gradient_checkpointing"));
  if (!met->warning) return diag_error(r->d, at, "%s", met->text);
  diag_note(r->d, at, "%s", met->text);
  return true;
}

bool axolotl_validate(const axolotl_reader *r, const axolotl_run *run)
{
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (rules[i].applies(r, run) && !say(r, &rules[i])) return false;
  return true;
}
