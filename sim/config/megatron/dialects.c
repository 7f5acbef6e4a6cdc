#include "sim/config/megatron/dialects.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/text/scalar.h"

enum { WIDTH_MOST = 1 << 20, FACTOR_MOST = 64 };

typedef struct dialect {
  const char *option, *value; /* as the fork has them */
  const char *as_option, *as_value;
  const char *why; /* for the note; NULL: the two mean the same */
} dialect;

static const dialect dialects[] = {
  /* ms-swift at 3602360a, megatron_args.py: no recomputation */
  { "--recompute-granularity", "none", "--recompute-granularity", "", NULL },
  /* bigcode-project/Megatron-LM, megatron/arguments.py: one key and value for all heads */
  { "--attention-head-type", "multiquery", "--num-query-groups", "1", NULL },
  /* Megatron-DeepSpeed, megatron/arguments.py */
  { "--normalization", "rmsnorm", "--normalization", "RMSNorm",
    "that is Megatron-DeepSpeed's word, which Megatron-LM refuses" },
  { "--normalization", "layernorm", "--normalization", "LayerNorm",
    "that is Megatron-DeepSpeed's word, which Megatron-LM refuses" },
  /* MindSpeed-LLM, mindspeed_llm/core/transformer/moe/router.py: these choose other experts, with a
   * loss of the same shape or none */
  { "--moe-router-load-balancing-type", "pai_megatron_aux_loss", "--moe-router-load-balancing-type",
    "aux_loss", "MindSpeed-LLM's own loss has the same shape" },
  { "--moe-router-load-balancing-type", "group_limited_greedy", "--moe-router-load-balancing-type",
    "aux_loss", "MindSpeed-LLM's routing within groups costs the same" },
  { "--moe-router-load-balancing-type", "sparsemixer_topk", "--moe-router-load-balancing-type",
    "none", "MindSpeed-LLM's sparse mixer has no loss" },
  { "--moe-router-load-balancing-type", "softmax_topk", "--moe-router-load-balancing-type", "none",
    "MindSpeed-LLM's routing has no loss" },
};

static void translate(flag_use *use, const dialect *x, const diag *d)
{
  if (x->why != NULL)
    diag_note(d, use->value_at, "%s %s: predicted as %s; %s", x->option, x->value, x->as_value,
              x->why);
  use->flag = megatron_flag_find(x->as_option);
  use->value = x->as_value;
  assert(use->flag != MEGATRON_FLAG_UNKNOWN);
}

/* --num-query-groups means something only beside --group-query-attention. */
static void add_switch(flag_use_array *uses, const char *option, source_pos at)
{
  uint32_t flag = megatron_flag_find(option);
  assert(flag != MEGATRON_FLAG_UNKNOWN);
  *ARRAY_PUSH(uses) = (flag_use){ .flag = flag, .value = "", .at = at, .value_at = at };
}

/* FlagScale's megatron/arguments.py: 8/3 of the hidden size, times --hidden-dim-multiplier, up to a
 * multiple of --multiple-of. */
static bool round_width(flag_use_array *uses, arena *a, diag *d)
{
  flag_use *use = (flag_use *)megatron_flag_last_use(uses, "--multiple-of");
  const flag_use *factor = megatron_flag_last_use(uses, "--hidden-dim-multiplier"),
                 *hidden = megatron_flag_last_use(uses, "--hidden-size");
  int64_t multiple, size;
  double by = 1;
  if (factor != NULL && use == NULL)
    diag_note(d, factor->at, "--hidden-dim-multiplier has no effect without --multiple-of");
  if (use == NULL || hidden == NULL || megatron_flag_last_use(uses, "--ffn-hidden-size") != NULL ||
      !scalar_i64(hidden->value, &size))
    return true;
  if (!scalar_i64(use->value, &multiple) || multiple < 1 || multiple > WIDTH_MOST)
    return diag_error(d, use->value_at, "--multiple-of is \"%.40s\"; it must be from 1 to %d",
                      use->value, WIDTH_MOST);
  if (factor != NULL && (!scalar_double(factor->value, &by) || !(by > 0 && by <= FACTOR_MOST)))
    return diag_error(d, factor->value_at,
                      "--hidden-dim-multiplier is \"%.40s\"; it must be above 0, at most %d",
                      factor->value, FACTOR_MOST);
  if (size < 1 || size > WIDTH_MOST) return true; /* hidden_size has its own error */
  int64_t width = (int64_t)((double)(8 * size / 3) * by);
  use->flag = megatron_flag_find("--ffn-hidden-size");
  use->value = arena_printf(a, "%" PRId64, (width + multiple - 1) / multiple * multiple);
  return true;
}

bool megatron_dialects_translate(flag_use_array *uses, arena *a, diag *d)
{
  uint32_t count = uses->count;
  for (uint32_t i = 0; i < count; i++) {
    for (size_t j = 0; j < sizeof dialects / sizeof *dialects; j++) {
      const dialect *x = &dialects[j];
      if (uses->items[i].flag != megatron_flag_find(x->option) ||
          strcmp(uses->items[i].value, x->value) != 0)
        continue;
      source_pos at = uses->items[i].at;
      translate(&uses->items[i], x, d);
      if (strcmp(x->as_option, "--num-query-groups") == 0)
        add_switch(uses, "--group-query-attention", at);
      break;
    }
  }
  return round_width(uses, a, d);
}
