/* LoRA and QLoRA in an Axolotl file (utils/schemas/peft.py, loaders/adapter.py, loaders/model.py). */
#include <string.h>

#include "sim/base/text.h"
#include "sim/config/axolotl/parts.h"
#include "sim/config/foreign_messages.h"
#include "sim/config/key_table.h"

/* Weights in fewer bits are for adapters: a weight in 4 bits for qlora, in 8 for lora. */
static bool check_quantisation(const axolotl_reader *r, const text_node *adapter)
{
  const text_node *four = axolotl_get(r, "load_in_4bit"), *eight = axolotl_get(r, "load_in_8bit");
  if (adapter == NULL) {
    if (axolotl_truth(four)) return diag_error(r->d, four->at, "load_in_4bit needs adapter: qlora");
    return !axolotl_truth(eight) || diag_error(r->d, eight->at, "load_in_8bit needs adapter: lora");
  }
  bool qlora = axolotl_is(r, "adapter", "qlora");
  if (qlora && axolotl_truth(eight))
    return diag_error(r->d, eight->at, "load_in_8bit needs adapter: lora; it is qlora");
  if (qlora && !axolotl_truth(four))
    return diag_error(r->d, adapter->at, "adapter is qlora; it needs load_in_4bit: true");
  if (!qlora && axolotl_truth(four))
    diag_note(r->d, four->at,
              "load_in_4bit has no effect with adapter: lora; adapter: qlora would quantise");
  return true;
}

static bool check_adapter(const axolotl_reader *r, const text_node *n)
{
  if (n != NULL && !axolotl_is(r, "adapter", "qlora") && !axolotl_is(r, "adapter", "lora"))
    return diag_error(r->d, n->at, "adapter is %s; lora and qlora are predicted",
                      text_describe(r->a, n));
  return check_quantisation(r, n);
}

static bool check_rank(const axolotl_reader *r, const text_node *adapter)
{
  static const char *const names[] = { "lora_r", "lora_alpha" };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (axolotl_get(r, names[i]) == NULL)
      return diag_error(r->d, adapter->at, "adapter is %s; it needs %s", adapter->text, names[i]);
  return true;
}

/* ---- which linears ---- */

/* PEFT compares the end of a module's path; with the part of the layer before it a name means the
 * same. */
static const char *linear_of(const char *name)
{
  static const char *const parts[] = { "self_attn.", "mlp.", "feed_forward." };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (begins_with(name, parts[i])) return name + strlen(parts[i]);
  return name;
}

/* The names of a list that are linears of a decoder layer; a note names the others. */
static bool known_targets(const axolotl_reader *r, const text_node *list, const char **known)
{
  setting_key key = KEY_lora_lora_target_modules;
  *known = "";
  for (uint32_t i = 0; i < list->count; i++) {
    const text_node *n = &list->children[i];
    const char *name;
    uint32_t choice;
    if (!text_as_string(n, &name, r->d)) return false;
    if (choice_find(key, linear_of(name), &choice))
      *known = axolotl_join(r, *known, linear_of(name));
    else
      diag_note(r->d, n->at, "lora_target_modules: an adapter on %.100s is not modelled", name);
  }
  return *known[0] != '\0' ||
         diag_error(r->d, list->at, "lora_target_modules names no linear of a decoder layer: %s",
                    choice_sentence(r->a, key));
}

/* lora_target_linear takes every linear but the output layer; lora_target_modules then adds
 * nothing. */
static bool set_targets(const axolotl_reader *r, const text_node *adapter)
{
  const text_node *n = axolotl_get(r, "lora_target_modules");
  bool everything = axolotl_truth(axolotl_get(r, "lora_target_linear")) ||
                    axolotl_is(r, "lora_target_modules", "all-linear");
  const char *known;
  if (everything) return true;
  const text_node *parameters = axolotl_get(r, "lora_target_parameters");
  if (!axolotl_truth(n) && axolotl_truth(parameters))
    return diag_error(r->d, parameters->at,
                      "adapters on lora_target_parameters alone are not predicted; those on "
                      "lora_target_modules are");
  if (!axolotl_truth(n))
    return diag_error(r->d, adapter->at,
                      "adapter is %s; it needs lora_target_modules or lora_target_linear: true",
                      adapter->text);
  if (n->kind == TEXT_MAPPING) return text_expect(n, TEXT_SEQUENCE, r->d);
  bool found =
      n->kind == TEXT_SEQUENCE ? known_targets(r, n, &known) : axolotl_match_targets(r, n, &known);
  return found && axolotl_set(r, KEY_lora_lora_target_modules, known, n);
}

/* ---- Axolotl's fused kernels ---- */

typedef struct kernel_key {
  const char *name;
  setting_key key;
} kernel_key;

static const kernel_key kernels[] = {
  { "lora_qkv_kernel", KEY_lora_lora_qkv_kernel },
  { "lora_o_kernel", KEY_lora_lora_o_kernel },
  { "lora_mlp_kernel", KEY_lora_lora_mlp_kernel },
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

/* On by themselves unless the file says something of one of them, the model's code is remote, or
 * FSDP's first version shards it (AxolotlConfigWCapabilities.check_auto_enable_lora_kernels). */
static bool kernels_are_on(const axolotl_reader *r)
{
  bool said = axolotl_get(r, "lora_embedding_kernel") != NULL;
  for (size_t i = 0; i < KERNELS; i++)
    said = said || axolotl_get(r, kernels[i].name) != NULL;
  return !said && !axolotl_truth(axolotl_get(r, "load_in_8bit")) &&
         !axolotl_truth(axolotl_get(r, "trust_remote_code")) && r->s->parallel.fsdp != FSDP_1;
}

/* Its patterns of source (monkeypatch/lora_kernels.py: QKV_PATCHES) are not those of
 * Llama4TextAttention.forward in transformers 5.14 to 5.24. */
static void note_llama4(const axolotl_reader *r, const text_node *adapter)
{
  bool asked = r->s->lora.lora_qkv_kernel || r->s->lora.lora_o_kernel;
  const text_node *n = axolotl_get(r, "lora_qkv_kernel");
  if (asked && r->s->model.attention_class == ATTENTION_LLAMA4)
    diag_note(r->d, axolotl_place(r, n != NULL ? n : adapter),
              "lora_qkv_kernel, lora_o_kernel: Axolotl of July 2026 finds no code in Llama 4's "
              "attention that it can replace, and stops; predicted as if it did, false runs");
}

static bool set_kernels(const axolotl_reader *r, const text_node *adapter)
{
  bool on = kernels_are_on(r);
  for (size_t i = 0; i < KERNELS; i++) {
    const text_node *n = axolotl_get(r, kernels[i].name);
    if ((on || axolotl_truth(n)) && kernels[i].key == KEY_lora_lora_mlp_kernel &&
        !axolotl_gates_by_silu(r)) {
      foreign_unmodelled(r->d, axolotl_place(r, n != NULL ? n : adapter), kernels[i].name,
                         "adapters fused with an activation that is not SiLU");
      continue;
    }
    if ((on || axolotl_truth(n)) &&
        !axolotl_set(r, kernels[i].key, "true", n != NULL ? n : adapter))
      return false;
  }
  return true;
}

static bool set_8bit(const axolotl_reader *r)
{
  const text_node *n = axolotl_get(r, "load_in_8bit");
  if (!axolotl_truth(n)) return true;
  diag_note(
      r->d, n->at,
      "load_in_8bit: predicted without outliers; inputs of large magnitude take 16-bit copies of "
      "their columns");
  return axolotl_set(r, KEY_lora_load_in_8bit, "true", n);
}

bool axolotl_apply_adapter(const axolotl_reader *r)
{
  const text_node *n = axolotl_get(r, "adapter");
  if (!check_adapter(r, n)) return false;
  if (n == NULL) return true;
  bool good = check_rank(r, n) && axolotl_set(r, KEY_lora_adapter, n->text, n);
  good = diag_step(r->d, set_targets(r, n)) && good;
  good = set_kernels(r, n) && set_8bit(r) && good;
  note_llama4(r, n);
  return good;
}
