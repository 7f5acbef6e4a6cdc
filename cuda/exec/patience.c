/*
 * A note on stderr with the state of an iteration that takes long: hosts and GPUs in a deadlock
 * print nothing.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "cuda/device/clock.h"
#include "cuda/exec/state.h"

enum { PATIENCE_S = 60, MOST_RANKS_TOLD = 8 };

struct patience {
  const cuda_exec *exec;
  pthread_t thread;
  pthread_mutex_t lock; /* of all members from here on */
  pthread_cond_t changed;
  bool waits; /* an iteration runs without a note so far */
  bool ends;
  int64_t deadline_ps;
};

/* ---- the note -------------------------------------------------------------------------------- */

static const char *where(const rank_run *r, arena *a)
{
  uint32_t at = r->sink.at;
  assert(at == NO_OP || at < r->stage->ops_of->ops.count);
  if (at == NO_OP)
    return arena_printf(a, "; rank %" PRIu32 " has issued everything and waits for its GPU",
                        r->number);
  return arena_printf(a, "; rank %" PRIu32 " is at %s", r->number, stage_op_text(r->stage, at, a));
}

static void tell(const cuda_exec *e)
{
  assert(e->step != NULL && e->layout->rank_count > 0);
  arena scratch = { 0 };
  const char *text = "";
  for (uint32_t i = 0, told = 0; i < e->layout->rank_count && told < MOST_RANKS_TOLD; i++)
    if (is_here(&e->ranks[i])) {
      text = arena_printf(&scratch, "%s%s", text, where(&e->ranks[i], &scratch));
      told++;
    }
  diag_note(e->d, (source_pos){ 0 }, "step %" PRIu32 " has taken %d s so far, and goes on%s",
            e->step->number, PATIENCE_S, text);
  arena_release(&scratch);
}

/* Once for each iteration. The lock is held. */
static void look(patience *p, int64_t now_ps)
{
  if (!p->waits || now_ps < p->deadline_ps) return;
  tell(p->exec);
  p->waits = false;
}

void cuda_exec_note_at(const cuda_exec *e, int64_t now_ps)
{
  assert(e->patience != NULL);
  pthread_mutex_lock(&e->patience->lock);
  look(e->patience, now_ps);
  pthread_mutex_unlock(&e->patience->lock);
}

/* ---- the thread that looks at the clock ------------------------------------------------------ */

static struct timespec time_of(int64_t ps)
{
  assert(ps >= 0);
  return (struct timespec){ .tv_sec = ps / PS_PER_S, .tv_nsec = ps % PS_PER_S / PS_PER_NS };
}

static void *look_at_the_clock(void *context)
{
  patience *p = context;
  pthread_mutex_lock(&p->lock);
  while (!p->ends) {
    struct timespec until = time_of(p->deadline_ps);
    assert(p->deadline_ps >= 0);
    if (p->waits)
      pthread_cond_timedwait(&p->changed, &p->lock, &until);
    else
      pthread_cond_wait(&p->changed, &p->lock);
    look(p, clock_now_ps());
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

patience *patience_new(const cuda_exec *e)
{
  patience *p = calloc(1, sizeof *p);
  pthread_condattr_t monotonic;
  if (p == NULL) die_refused("cuda: no memory for an execution");
  p->exec = e;
  pthread_mutex_init(&p->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&p->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  if (pthread_create(&p->thread, NULL, look_at_the_clock, p) != 0)
    die_refused("cuda: the system refuses a thread");
  return p;
}

static void change(patience *p, bool waits, bool ends)
{
  pthread_mutex_lock(&p->lock);
  assert(!p->ends && !(waits && ends));
  p->waits = waits;
  p->ends = ends;
  p->deadline_ps = clock_now_ps() + PATIENCE_S * PS_PER_S;
  pthread_cond_signal(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

void patience_begin(patience *p)
{
  change(p, true, false);
}

void patience_end(patience *p)
{
  change(p, false, false);
}

void patience_release(patience *p)
{
  change(p, false, true);
  pthread_join(p->thread, NULL);
  assert(p->ends && !p->waits);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->changed);
  free(p);
}
