/*
 * A run over several processes: each has the executions of some ranks, and all make the same calls
 * in the same order. The process that has a rank broadcasts the results for it.
 */
#include <assert.h>

#include "cuda/exec/state.h"

static void spread_rank(const cuda_exec *e, rank_run *r)
{
  assert(world_of().processes > 1);
  uint32_t from = world_owner(r->number, e->layout->rank_count);
  int64_t bytes = r->stage->ops_of->ops.count * (int64_t)sizeof(int64_t);
  int64_t *curves[] = { r->after_op,    r->curves.begin_ps, r->curves.end_ps,
                        r->curves.live, r->curves.reserved, r->curves.host };
  if (is_here(r)) r->told = rank_memory(r);
  world_broadcast(&r->told, sizeof r->told, from);
  r->device.requested_peak_bytes = r->told.requested_peak_bytes;
  for (uint32_t i = 0; i < sizeof curves / sizeof curves[0]; i++)
    if (curves[i] != NULL) world_broadcast(curves[i], bytes, from);
}

void spread_figures(cuda_exec *e)
{
  if (atomic_load(&e->stopped)) return;
  assert(e->outcome == EXEC_DONE && e->left_out >= 0);
  world_add(&e->left_out, 1);
  if (e->step->left_out != NULL) *e->step->left_out += e->left_out;
  for (uint32_t i = 0; world_of().processes > 1 && i < e->layout->rank_count; i++)
    spread_rank(e, &e->ranks[i]);
}

exec_outcome spread_outcome(cuda_exec *e)
{
  if (world_of().processes == 1 || e->outcome == EXEC_DONE) return e->outcome;
  diag other = { 0 };
  assert((e->outcome == EXEC_WRONG) == (e->finding != NULL));
  if (e->outcome == EXEC_REFUSED && !diag_ok(e->d)) world_abort(diag_finish(e->d));
  diag_refused(&other, "%s", e->finding != NULL ? e->finding : "the run has stopped");
  world_abort(diag_finish(&other));
}
