/*
 * Which single settings would make a configuration fit that does not, each really predicted.
 *
 *     settings -> candidates of one table, modules, systems -> each: resolve, predict -> suggestions
 *
 * The settings' own rules decide which candidates are possible here. What changes nothing, or resolves to
 * settings that were predicted already, is not counted.
 *
 * Of a run with many micro-batches, each candidate is first compiled with a few of them: if those
 * allocate too much, so do all (bounds.h), and it is predicted only if none fits and it may be the
 * nearest.
 */
#ifndef OFFSIM_SIM_PREDICT_SUGGESTIONS_H
#define OFFSIM_SIM_PREDICT_SUGGESTIONS_H

#include "sim/predict/candidates.h"
#include "sim/predict/prediction.h"

typedef struct suggestion {
  candidate tried;
  int64_t step_ps;
  throughput speed;
  int64_t allocated_peak_bytes; /* since the process began, of the rank that has most */
  int64_t reserved_peak_bytes;  /* likewise; of one that fits */
  int64_t host_pinned_total_bytes;
  shortage short_of;  /* SHORT_OF_NOTHING: it fits */
  first_error unsafe; /* of its plans; none: safe in every timing */
} suggestion;

typedef struct suggestions {
  suggestion *items; /* those that fit first, the fastest first; then those that miss least */
  uint32_t count, fitting_count;
  uint32_t
      ruled_out; /* candidates that cannot fit, by their bounds: of runs with many micro-batches */
  uint32_t left_out; /* candidates that were not tried: the search would take too long */
} suggestions;

/* `given`: the settings of `asked` as they were read. Unless `all`, the search ends when it has
 * simulated many ops. Of a run that fits, the suggestions are what fits with less memory. */
void suggest(suggestions *found, const settings *given, const prediction *asked, bool all,
             candidate_progress *progress, arena *a);

#endif
