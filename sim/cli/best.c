#include "sim/cli/best.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/cli/paste.h"
#include "sim/config/megatron/paste.h"
#include "sim/report/prediction.h"

static void paste_into_file(best_notes *n, const load_options *o, const settings *given,
                            const candidate *c, const machine *m, arena *a)
{
  n->program = paste_program(o)->name;
  n->flags = paste_find(o, given, c, m, a);
  n->left_out = n->flags != NULL ? "" : NULL;
}

void best_paste(best_notes *n, const load_options *o, const settings *given, const candidate *c,
                const machine *m, arena *a)
{
  settings s;
  megatron_pasted pasted;
  diag quiet = { .quiet = true };
  assert(n->program == NULL && n->flags == NULL && n->left_out == NULL);
  if (paste_program(o) != NULL) {
    paste_into_file(n, o, given, c, m, a);
    return;
  }
  if (!candidate_settings(&s, given, c, "best", a, &quiet) || uses_hf(&s)) return;
  n->program = "Megatron-LM";
  if (!megatron_paste(&pasted, c->sets, c->set_count, a)) return;
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

static int64_t slower(int64_t bytes_per_us)
{
  return muldiv_i64(bytes_per_us, 100 - SLOWER_COPIES_PERCENT, 100);
}

static bool has_copies(const prediction *p)
{
  for (uint32_t r = 0; r < p->rank_count; r++)
    if (p->result.ranks[r].d2h_bytes > 0 || p->result.ranks[r].h2d_bytes > 0) return true;
  return false;
}

bool best_slacken(best_notes *n, const settings *given, const candidate *c, const machine *m,
                  uint32_t threads, arena *a, diag *d)
{
  settings s;
  prediction p;
  diag quiet = { .quiet = true };
  machine *with = ARENA_NEW(a, machine);
  *with = *m;
  with->link.d2h_bytes_per_us = slower(m->link.d2h_bytes_per_us);
  with->link.h2d_bytes_per_us = slower(m->link.h2d_bytes_per_us);
  with->link.duplex_bytes_per_us = slower(m->link.duplex_bytes_per_us);
  bool ok = candidate_settings(&s, given, c, "best", a, &quiet);
  assert(ok && "it was predicted");
  ok = predict(&p, &s, NULL, with, PREDICT_SAFETY, threads, a, d);
  if (ok && has_copies(&p)) n->slower_copies_ps = p.result.step_ps;
  prediction_release(&p);
  return ok;
}
