#include "sim/cli/best.h"

#include <assert.h>

#include "sim/config/megatron/paste.h"
#include "sim/report/prediction.h"

void best_paste(best_notes *n, const settings *given, const candidate *c, arena *a)
{
  settings s;
  megatron_pasted pasted;
  diag quiet = { .quiet = true };
  assert(n->flags == NULL && n->left_out == NULL);
  if (!candidate_settings(&s, given, c, "best", a, &quiet) || uses_hf(&s) ||
      !megatron_paste(&pasted, c->sets, c->set_count, a))
    return;
  n->flags = pasted.flags;
  n->left_out = pasted.left_out;
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
  }
  prediction_release(&p);
  return ok;
}
