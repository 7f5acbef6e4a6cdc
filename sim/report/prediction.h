/*
 * Predictions as text: tables for people, of at most 120 columns; JSON for programs, with stable
 * keys (docs/reference/json.md); timelines.
 */
#ifndef OFFSIM_SIM_REPORT_PREDICTION_H
#define OFFSIM_SIM_REPORT_PREDICTION_H

#include <stdio.h>

#include "sim/predict/comparison.h"
#include "sim/predict/plan_prediction.h"
#include "sim/predict/prediction.h"
#include "sim/predict/suggestions.h"

/* ---- one setting ---- */

/* A user's own logged figures of the last pipeline rank; 0: not given. */
typedef struct measured_bytes {
  int64_t static_bytes;
  int64_t peak_bytes;
} measured_bytes;

/* `brief`: memory and its verdict alone. */
void prediction_table(const prediction *p, const measured_bytes *measured, bool brief, FILE *out,
                      arena *a);
/* What would make it fit, after the table. */
void suggestions_table(const prediction *p, const suggestions *found, FILE *out, arena *a);
/* Both; `found` NULL: suggestions were not asked for. `longest`: the longest mean with which a run of
 * packed sequences fits (sim/predict/longest.h), LONGEST_NOT_SOUGHT if that was not asked for. */
enum { LONGEST_NOT_SOUGHT = -1 };
void prediction_json(const prediction *p, const suggestions *found, int64_t longest, FILE *out,
                     arena *a);

/* One line: the longest mean with which a run of packed sequences fits (sim/predict/longest.h),
 * of which the assumed one does not. */
void print_longest(int64_t longest, int64_t assumed, FILE *out);

/* What limits the setting, in one sentence: part of both. */
const char *bottleneck_sentence(const prediction *p, arena *a);

/*
 * The steady iteration as a timeline (traces/timeline.h). The prediction must have
 * kept its curves. `ranks`: which, by rank; at least one.
 *
 * Counters: allocated bytes in program order, at the time at which the compute stream gets there; at the
 * host's time live bytes, reserved bytes (segments of the allocator) and pinned bytes.
 */
void prediction_timeline(const prediction *p, const bool *ranks, FILE *out, arena *a);

/*
 * The memory of a pipeline rank's steady iteration as a snapshot of PyTorch, a pickle that
 * memory_viz shows (traces/import/snapshot.c has the format's source). Blocks are those that the
 * plan requests; their frames are tensor, module, layer and pass.
 */
void prediction_snapshot(const prediction *p, uint32_t rank, FILE *out);

/*
 * One page for a browser, which needs nothing else: verdict, memory of each rank, and a timeline over
 * memory curves (docs/reference/html.md). `name`: of what was predicted. The prediction must have kept its
 * curves; `found` and `longest` as in prediction_json.
 */
void prediction_html(const prediction *p, const char *name, const suggestions *found,
                     int64_t longest, FILE *out, arena *a);

/* ---- all systems ---- */

void comparison_table(const comparison *c, FILE *out, arena *a);
void comparison_json(const comparison *c, FILE *out);

/* ---- a plan that was given as text ---- */

void plan_prediction_table(const plan_prediction *p, FILE *out, arena *a);
/* docs/reference/json.md, "A plan". */
void plan_prediction_json(const plan_prediction *p, FILE *out);

#endif
