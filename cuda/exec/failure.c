/* Records a failure; every rank stops at its next op. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "cuda/exec/state.h"

static void stop(cuda_exec *e, exec_outcome outcome)
{
  assert(e->outcome == EXEC_DONE && outcome != EXEC_DONE && "only the first failure is kept");
  e->outcome = outcome;
  atomic_store(&e->stopped, true);
  pthread_cond_broadcast(&e->changed);
}

/* Releases streams that wait for other ranks, and so the hosts that wait for these streams. */
static void let_go(cuda_exec *e)
{
  if (e->exchange != NULL) exchange_stop(e->exchange);
}

void run_wrong(cuda_exec *e, const char *format, ...)
{
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  assert(text[0] != '\0');
  va_end(arguments);
  pthread_mutex_lock(&e->lock);
  if (e->outcome == EXEC_DONE) {
    assert(e->finding == NULL);
    e->finding = arena_strdup(&e->lasting, text);
    stop(e, EXEC_WRONG);
  }
  pthread_mutex_unlock(&e->lock);
  let_go(e);
}

/* "rank 1: op 57 (gemm @ layer 0 mlp.linear_fc1)" */
static const char *place_of(const rank_run *r, uint32_t op, arena *a)
{
  if (op == NO_OP) return arena_printf(a, "rank %u", r->number);
  assert(op < r->stage->ops_of->ops.count);
  return arena_printf(a, "rank %u: %s", r->number, stage_op_text(r->stage, op, a));
}

void op_refused(rank_run *r, uint32_t op, const char *text)
{
  cuda_exec *e = r->exec;
  assert(text[0] != '\0');
  arena scratch = { 0 };
  pthread_mutex_lock(&e->lock);
  if (e->outcome == EXEC_DONE) {
    diag_refused(e->d, "%s: %s", place_of(r, op, &scratch), text);
    stop(e, EXEC_REFUSED);
  }
  pthread_mutex_unlock(&e->lock);
  arena_release(&scratch);
}

/* ---- the sink of a rank ---------------------------------------------------------------------- */

static void wrong(void *rank, uint32_t op, const char *why)
{
  const rank_run *r = rank;
  arena scratch = { 0 };
  run_wrong(r->exec, "%s: %s", place_of(r, op, &scratch), why);
  arena_release(&scratch);
}

static void refused(void *rank, uint32_t op, const char *why)
{
  rank_run *r = rank;
  op_refused(r, op, why);
  let_go(r->exec);
}

void rank_sink_init(rank_run *r)
{
  assert(r->exec != NULL && r->sink.context == NULL);
  r->sink.context = r;
  r->sink.wrong = wrong;
  r->sink.refused = refused;
  r->sink.stopped = &r->exec->stopped;
  r->sink.at = NO_OP;
}
