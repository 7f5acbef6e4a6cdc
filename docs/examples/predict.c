/*
 * Predicts a run from C: how much memory, and does it fit?
 *
 *     cc predict.c $(pkg-config --cflags --libs offsim) -o predict
 *     ./predict one-layer.yaml num_layers=8
 */
#include <inttypes.h>
#include <offsim.h>
#include <stdio.h>

int main(int argc, char **argv)
{
  if (argc < 2) {
    fprintf(stderr, "usage: predict SCENARIO.yaml [KEY=VALUE...]\n");
    return 2;
  }
  offsim_figures found;
  offsim_run *run = offsim_run_new();
  offsim_run_give(run, "scenario", argv[1]);
  for (int i = 2; i < argc; i++)
    offsim_run_give(run, "set", argv[i]);
  if (offsim_predict_figures(run, &found, sizeof found))
    printf("%" PRId64 " bytes reserved of which offload saves %" PRId64 ", %s; %" PRId64
           " us a step, %" PRId64 " without offload\n",
           found.reserved_peak_bytes, found.saving_bytes, found.fits ? "fits" : "does not fit",
           found.step_ps / 1000000, found.step_without_offload_ps / 1000000);
  else
    fputs(offsim_errors(run), stderr);
  int status = offsim_status(run);
  offsim_run_delete(run);
  return status;
}
