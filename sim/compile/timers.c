#include "sim/compile/timers.h"

#include <assert.h>

#include "sim/graph/sizes.h"

/* What the host does, in eager operators. */
enum {
  EDGE_OPERATORS = 1,    /* a start or a stop */
  BARRIER_OPERATORS = 2, /* a collective without its wait */
  NAMED = 24,            /* timers that training.py can log */
  NAME_OPERATORS = 4,    /* select, compare, index by a mask, which counts first */
  RUNNING_OPERATORS =
      6, /* of a timer that ran: written into a tensor; minimum and maximum, each read */
  WRITTEN_OPERATORS = 2, /* the first of these alone */
  RUNNING_OF_PASSES = 6, /* of level 2: forward, backward, batch, and exchanges of three kinds */
  RUNNING_OF_STEP = TIMERS_OF_GRADIENTS + TIMERS_OF_STEP
};

static bool has_level(const walk *w, int64_t level)
{
  assert(level >= 1 && level <= 2);
  return !uses_hf(w->settings) && w->settings->training.timing_log_level >= level;
}

void timers_around_pass(walk *w)
{
  if (!has_level(w, 2)) return;
  act_host_work(w, EDGE_OPERATORS);
  walk_device_sync(w);
}

void timers_around_step(walk *w, uint32_t timers)
{
  assert(timers > 0 && w->backward_seen);
  if (!has_level(w, 1)) return;
  act_host_work(w, timers * (2 * EDGE_OPERATORS + BARRIER_OPERATORS));
  walk_device_sync(w);
}

static uint32_t running_timers(const walk *w)
{
  uint32_t of_passes = has_level(w, 2) ? RUNNING_OF_PASSES : 0;
  assert(of_passes == 0 || has_level(w, 1));
  return of_passes + (has_level(w, 1) ? RUNNING_OF_STEP : 0);
}

void timers_log(walk *w)
{
  const struct training_settings *t = &w->settings->training;
  if (uses_hf(w->settings) || t->log_interval > 1) return;
  assert(w->backward_seen && t->log_interval == 1);
  bool all_names = !megatron_is_from(w->settings, 20251125, 2025, 12);
  uint32_t running = running_timers(w);
  uint32_t operators = all_names ? NAMED * NAME_OPERATORS + running * RUNNING_OPERATORS
                                 : running * WRITTEN_OPERATORS;
  if (operators == 0) return;
  act_host_work(w, (t->log_timers_to_tensorboard ? 2 : 1) * (operators + BARRIER_OPERATORS));
  walk_device_sync(w);
}
