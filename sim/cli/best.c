#include "sim/cli/best.h"

#include <string.h>

#include "sim/config/key_table.h"
#include "sim/config/megatron/flags.h"
#include "sim/report/prediction.h"

/* What the best setting is as environment variables and options of Megatron-LM, in parts. */
typedef struct pasted {
  const char *variables, *options, *left_out;
} pasted;

static const char *joined(const char *before, const char *more, arena *a)
{
  return *before == '\0' ? more : arena_printf(a, "%s %s", before, more);
}

/* False: no option of Megatron-LM sets the key. */
static bool paste(pasted *to, const char *set, arena *a)
{
  size_t length = strcspn(set, "=");
  setting_key key = key_find(arena_strndup(a, set, length));
  const char *value = set + length + 1, *variable = NULL;
  if (key == KEY_offload_system && *value == '\0') return true;
  if (key == KEY_software_expandable_segments)
    variable = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
  else if (key == KEY_software_nvte_cpu_offload_v1)
    variable = "NVTE_CPU_OFFLOAD_V1=1";
  bool leaves_out = variable != NULL && strcmp(value, "true") != 0;
  const char *option = variable != NULL ? variable : megatron_flag_for(key, value, &leaves_out, a);
  if (option == NULL) return false;
  const char **part = leaves_out ? &to->left_out : variable != NULL ? &to->variables : &to->options;
  *part = joined(*part, option, a);
  return true;
}

static void find_flags(best_notes *n, const candidate *c, arena *a)
{
  pasted p = { "", "", "" };
  for (uint32_t i = 0; i < c->set_count; i++)
    if (!paste(&p, c->sets[i], a)) return;
  n->flags = *p.options == '\0' ? p.variables : joined(p.variables, p.options, a);
  n->left_out = p.left_out;
}

bool best_find(best_notes *n, const settings *given, const candidate *c, const machine *m,
               uint32_t threads, arena *a, diag *d)
{
  settings s;
  prediction p;
  diag quiet = { .quiet = true };
  if (!candidate_settings(&s, given, c, "best", a, &quiet))
    return diag_error(d, (source_pos){ 0 }, "the best setting is refused now: %s",
                      candidate_refusal(&quiet, a));
  bool ok = predict(&p, &s, NULL, m, PREDICT_SAFETY, threads, a, d);
  if (ok) {
    n->why = bottleneck_sentence(&p, a);
    n->unsafe = !summary_is_safe(&p.safety);
    if (!uses_hf(&s)) find_flags(n, c, a);
  }
  prediction_release(&p);
  return ok;
}
