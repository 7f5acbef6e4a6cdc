/* Precision, attention, optimizer, and what kind of training an Axolotl file describes.
 */
#include <string.h>

#include "sim/config/axolotl/parts.h"
#include "sim/config/foreign_messages.h"

/* ---- precision: resolve_dtype (utils/config/__init__.py) ---- */

/* bf16 is "auto" when nothing is said, and every GPU of offsim has it. */
static bool set_precision(const axolotl_reader *r)
{
  const text_node *bf16 = text_get(r->top, "bf16");
  bool fp16 = axolotl_truth(axolotl_get(r, "fp16"));
  bool automatic = bf16 == NULL || axolotl_is(r, "bf16", "auto");
  bool brain = automatic ? !fp16 : axolotl_truth(bf16);
  if (brain || axolotl_truth(axolotl_get(r, "bfloat16")))
    return axolotl_set(r, KEY_training_bf16, "true", bf16);
  if (fp16 || axolotl_truth(axolotl_get(r, "float16")))
    return axolotl_set(r, KEY_training_fp16, "true", axolotl_get(r, "fp16"));
  return true;
}

/* ---- attention: normalize_attn_implementation (utils/schemas/config.py) ---- */

typedef struct named {
  const char *name, *ours;
  bool exact; /* else a note says what offsim takes instead */
} named;

static const named attentions[] = {
  { "eager", "eager", true },
  { "sdpa", "sdpa", true },
  { "flash_attention_2", "flash_attention_2", true },
  { "flash_attention_3", "flash_attention_2", false },
  { "flex_attention", "flex_attention", true },
  { "xformers", "flash_attention_2", false },
  { "sage", "flash_attention_2", false },
  { "fp8", "sdpa", false },
};

/* Older flags, specific ones first. */
static const named older_flags[] = {
  { "xformers_attention", "xformers", true },
  { "sage_attention", "sage", true },
  { "flex_attention", "flex_attention", true },
  { "flash_attention", "flash_attention_2", true },
  { "sdp_attention", "sdpa", true },
  { "eager_attention", "eager", true },
};

static const named *find(const named *rows, size_t count, const char *name)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  return NULL;
}
#define FIND(rows, name) find(rows, sizeof rows / sizeof rows[0], name)

static bool set_attention_named(const axolotl_reader *r, const text_node *n, const char *name)
{
  const named *row = FIND(attentions, name);
  bool from_hub = strchr(name, '/') != NULL;
  if (row == NULL && !from_hub)
    return diag_error(
        r->d, n->at,
        "attn_implementation is \"%.100s\"; it must be eager, sdpa, flash_attention_2, "
        "flash_attention_3, flex_attention, xformers, sage, fp8 or a kernel of the hub",
        name);
  const char *ours = from_hub ? "flash_attention_2" : row->ours;
  if (from_hub || !row->exact)
    diag_note(r->d, n->at, "%.100s is not modelled; predicted as %s", name, ours);
  return axolotl_set(r, KEY_model_attn_implementation, ours, n);
}

static bool set_attention(const axolotl_reader *r)
{
  const text_node *chosen = axolotl_get(r, "attn_implementation");
  for (size_t i = 0; i < sizeof older_flags / sizeof older_flags[0]; i++) {
    const text_node *flag = axolotl_get(r, older_flags[i].name);
    if (!axolotl_truth(flag)) continue;
    if (chosen != NULL)
      return diag_error(r->d, flag->key_at,
                        "%s and attn_implementation are both given; give the second alone",
                        older_flags[i].name);
    return set_attention_named(r, flag, older_flags[i].ours);
  }
  const char *name;
  return chosen == NULL ||
         (text_as_string(chosen, &name, r->d) && set_attention_named(r, chosen, name));
}

/* ---- loss ---- */

/* The plugin is on unless the file says otherwise (integrations/cut_cross_entropy/args.py). */
static bool cuts_cross_entropy(const axolotl_reader *r)
{
  const text_node *n = axolotl_get(r, "cut_cross_entropy");
  return axolotl_has_plugin(r, "CutCrossEntropyPlugin") && (n == NULL || axolotl_truth(n));
}

/* Logits that are changed before the loss come out of no fused kernel that is modelled. */
static bool changes_logits(const axolotl_reader *r)
{
  return r->s->model.final_logit_softcapping != 0 || r->s->model.logits_scaling != 1;
}

/* Both compute logits a part at a time. Cut cross entropy keeps hidden states and a number for each
 * token, and computes logits again in backward; Liger's computes gradients in forward. */
static bool set_loss(const axolotl_reader *r)
{
  const text_node *liger = axolotl_get(r, "liger_fused_linear_cross_entropy");
  const text_node *n = axolotl_get(r, "cut_cross_entropy");
  bool fused = axolotl_has_plugin(r, "LigerPlugin") && axolotl_truth(liger);
  bool cut = cuts_cross_entropy(r);
  if (!fused && !cut) return true;
  n = fused ? liger : n != NULL ? n : axolotl_get(r, "plugins");
  if (changes_logits(r)) {
    foreign_unmodelled(r->d, n->at,
                       fused ? "liger_fused_linear_cross_entropy" : "cut_cross_entropy",
                       "a loss without logits in memory, of logits that are capped or scaled");
    return true;
  }
  if (cut)
    diag_note(
        r->d, n->at,
        "cut_cross_entropy is predicted as liger_fused_linear_cross_entropy: neither has logits of "
        "all tokens in memory; its backward takes longer");
  return axolotl_set(r, KEY_model_liger_fused_linear_cross_entropy, "true", n);
}

/* liger_swiglu is the older name. */
static bool set_activation(const axolotl_reader *r)
{
  static const char *const names[] = { "liger_swiglu", "liger_glu_activation" };
  bool good = true;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const text_node *n = axolotl_get(r, names[i]);
    if (!axolotl_truth(n) || !axolotl_has_plugin(r, "LigerPlugin")) continue;
    if (axolotl_gates_by_silu(r))
      good = diag_step(r->d, axolotl_set(r, KEY_model_liger_glu_activation, "true", n)) && good;
    else
      foreign_unmodelled(r->d, n->at, names[i], "a fused activation that is not SiLU");
  }
  return good;
}

/* Without adapter, sharding or an attention that needs 16 bits, norms and embeddings are in fp32,
 * and so is what they hand on (loaders/model.py, _configure_embedding_dtypes). */
static void note_fp32_embeddings(const axolotl_reader *r)
{
  bool flash = r->s->model.attn_implementation == ATTN_FLASH_2 ||
               r->s->model.attn_implementation == ATTN_FLEX;
  bool sharded =
      axolotl_truth(axolotl_get(r, "fsdp")) || axolotl_truth(axolotl_get(r, "fsdp_config"));
  bool half = r->s->training.bf16 || r->s->training.fp16;
  if (!flash && !sharded && half && axolotl_get(r, "adapter") == NULL && !cuts_cross_entropy(r))
    diag_note(
        r->d, axolotl_place(r, axolotl_get(r, "attn_implementation")),
        "with this attention Axolotl keeps norms, embeddings and the residual stream in fp32: not "
        "modelled, predicted in 16 bits, as with flash_attention_2");
}

/* Axolotl's own experts, for Llama 4 alone (loaders/patch_manager.py). */
static bool set_experts(const axolotl_reader *r)
{
  const text_node *n = axolotl_get(r, "llama4_linearized_experts");
  return !axolotl_truth(n) || r->s->model.moe_class != MOE_LLAMA4 ||
         axolotl_set(r, KEY_model_linearized_experts, "true", n);
}

/* ---- optimizer ---- */

/* Names of transformers and bitsandbytes; the rest is said in a note. */
static const named optimizers[] = {
  { "adamw_torch", "adamw_torch", true },
  { "adamw_torch_fused", "adamw_torch_fused", true },
  { "adamw_bnb_8bit", "adamw_8bit", true },
  { "adamw_8bit", "adamw_8bit", true },
  { "paged_adamw_8bit", "paged_adamw_8bit", true },
  { "paged_adamw", "paged_adamw_32bit", true },
  { "paged_adamw_32bit", "paged_adamw_32bit", true },
  { "sgd", "sgd", true },
  { "adamw_torch_8bit", "adamw_torch_8bit", true },
  { "adamw_torch_4bit", "adamw_torch_4bit", true },
  { "ao_adamw_8bit", "adamw_torch_8bit", true },
  { "ao_adamw_4bit", "adamw_torch_4bit", true },
  { "ao_adamw_fp8", "ao_adamw_fp8", true },
  { "lion_8bit", "lion_8bit", true },
  { "lion_32bit", "lion_32bit", true },
  { "paged_lion_8bit", "paged_lion_8bit", true },
  { "paged_lion_32bit", "paged_lion_32bit", true },
};

static bool set_optimizer(const axolotl_reader *r)
{
  const text_node *n = axolotl_get(r, "optimizer");
  const char *name = "adamw_torch_fused";
  if (n != NULL && !text_as_string(n, &name, r->d)) return false;
  const named *row = FIND(optimizers, name);
  const char *ours = row != NULL ? row->ours : "adamw_torch";
  if (row == NULL || !row->exact)
    diag_note(r->d, n->at, "the states of %.100s are not modelled; predicted with those of %s",
              name, ours);
  return axolotl_set(r, KEY_training_optimizer, ours, n);
}

/* ---- what is trained ---- */

/* Trainers of preferences and rewards (utils/schemas/enums.py, RLType), by what a step does more. */
static const struct trainer {
  const char *name, *does;
} trainers[] = {
  { "dpo", "runs chosen and rejected answers through the model and a reference" },
  { "ipo", "runs chosen and rejected answers through the model and a reference" },
  { "kto", "runs matched and mismatched answers through the model and a reference" },
  { "orpo", "runs chosen and rejected answers through the model" },
  { "simpo", "runs chosen and rejected answers through the model" },
  { "grpo", "generates answers and scores them" },
  { "gdpo", "generates answers and scores them" },
  { "ebft", "generates answers and compares their features" },
};

static const char *what_more(const char *name)
{
  for (size_t i = 0; i < sizeof trainers / sizeof *trainers; i++)
    if (strcmp(trainers[i].name, name) == 0) return trainers[i].does;
  return "is no step of supervised fine-tuning";
}

static bool check_supervised(const axolotl_reader *r)
{
  const text_node *rl = axolotl_get(r, "rl");
  return !axolotl_truth(rl) ||
         diag_error(
             r->d, rl->at,
             "rl is %s, whose step %s; only supervised fine-tuning is predicted; leave rl out to "
             "predict that",
             text_describe(r->a, rl), what_more(rl->text));
}

/* A packed row has several samples, which attend to themselves alone; without padding one has no more
 * tokens than its longest sample. */
static void note_lengths(const axolotl_reader *r)
{
  const text_node *packing = axolotl_get(r, "sample_packing");
  if (axolotl_truth(packing))
    diag_note(
        r->d, packing->at,
        "sample_packing: predicted with one sample of sequence_len in a row; shorter ones take "
        "less time in attention");
  else if (!axolotl_truth(axolotl_get(r, "pad_to_sequence_len")))
    diag_note(r->d, axolotl_place(r, axolotl_get(r, "sequence_len")),
              "every row is predicted with sequence_len tokens; without sample_packing and "
              "pad_to_sequence_len, rows are only as long as their longest sample");
}

/* Axolotl sets the model's number of positions to the number that the run needs (loaders/model.py,
 * _adjust_model_config). */
static bool widen_positions(const axolotl_reader *r)
{
  const settings *s = r->s;
  int64_t positions = s->model.max_position_embeddings;
  return positions == UNSET || positions >= s->training.seq_length ||
         axolotl_set(r, KEY_model_max_position_embeddings,
                     arena_printf(r->a, "%lld", (long long)s->training.seq_length),
                     axolotl_get(r, "sequence_len"));
}

bool axolotl_apply_training(const axolotl_reader *r)
{
  bool good = diag_step(r->d, check_supervised(r));
  good = diag_step(r->d, set_precision(r)) && good;
  good = diag_step(r->d, set_attention(r)) && good;
  good = diag_step(r->d, set_loss(r)) && good;
  good = diag_step(r->d, set_activation(r)) && good;
  good = diag_step(r->d, set_experts(r)) && good;
  good = diag_step(r->d, set_optimizer(r)) && good;
  good = diag_step(r->d, axolotl_apply_sharding(r)) && good;
  if (!good || !widen_positions(r)) return false;
  note_fp32_embeddings(r);
  note_lengths(r);
  return true;
}
