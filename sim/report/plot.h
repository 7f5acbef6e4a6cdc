/*
 * Pictures: of a prediction, of a comparison of systems, of the best settings, of a prediction beside
 * a measurement.
 *
 * The file's name ends in .svg, .png or .pdf. Each returns false after a diag error: the file
 * cannot be written.
 */
#ifndef OFFSIM_SIM_REPORT_PLOT_H
#define OFFSIM_SIM_REPORT_PLOT_H

#include "sim/predict/comparison.h"
#include "sim/predict/safety.h"
#include "sim/tune/tune.h"
#include "traces/timing.h"

/* False after a diag error: the file's name ends neither in .svg nor .png nor .pdf. */
bool plot_check_path(const char *path, diag *d);

/* The steady iteration of one rank: its streams above, its memory below, one time axis. The
 * prediction must have kept its curves. */
bool prediction_plot(const prediction *p, uint32_t rank, const char *path, arena *a, diag *d);

/* Allocated memory beside step time, a point for each row. */
bool comparison_plot(const comparison *c, const char *path, arena *a, diag *d);

/* Reserved memory beside step time, a point for each setting that was found, with its place in the
 * table; at least one was. */
bool tuned_plot(const tuned *t, const machine *m, const char *path, arena *a, diag *d);

/* Draws the ops on the tensor of the first race (`second` >= 0: whose second op it is) and the edge
 * that it lacks; if there is no error, those on the first tensor that leaves. */
bool findings_plot(const verified_iteration *iterations, uint32_t count, int64_t second,
                   const char *path, arena *a, diag *d);

/* Predicted and measured streams of a rank above each other. */
bool timing_plot(const timing *t, uint32_t rank, const char *path, arena *a, diag *d);

#endif
