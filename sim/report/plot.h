/*
 * The steady iteration of one rank as a picture: its streams above, its memory below, one time axis.
 */
#ifndef OFFSIM_SIM_REPORT_PLOT_H
#define OFFSIM_SIM_REPORT_PLOT_H

#include "sim/report/prediction.h"

/* False after a diag error: the file's name ends neither in .svg nor .png nor .pdf. */
bool plot_check_path(const char *path, diag *d);

/* The prediction must have kept its curves. False after a diag error: the file cannot be written. */
bool prediction_plot(const prediction *p, uint32_t rank, const char *path, arena *a, diag *d);

#endif
