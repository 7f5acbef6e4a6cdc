/* Prints what liboffsim answers: api_texts CALL SCENARIO [KEY=VALUE...]; CALL is one of the table. */
#include <stdio.h>
#include <string.h>

#include "sim/api/offsim.h"

static const char *plan_of_first(offsim_run *run)
{
  return offsim_plan(run, true);
}

static const char *plan_of_later(offsim_run *run)
{
  return offsim_plan(run, false);
}

static const struct {
  const char *name;
  const char *(*call)(offsim_run *run);
} calls[] = {
  { "predict", offsim_predict },   { "page", offsim_predict_html },
  { "check", offsim_check },       { "findings", offsim_check_text },
  { "scenario", offsim_scenario }, { "first-plan", plan_of_first },
  { "plan", plan_of_later },
};

int main(int argc, char **argv)
{
  if (argc < 3) return 2;
  offsim_run *run = offsim_run_new();
  offsim_run_be_quiet(run);
  offsim_run_use_threads(run, 2);
  offsim_run_give(run, "scenario", argv[2]);
  for (int i = 3; i < argc; i++)
    offsim_run_give(run, "set", argv[i]);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    if (strcmp(argv[1], calls[i].name) != 0) continue;
    for (int twice = 0; twice < 2; twice++) { /* a run can be asked again */
      const char *text = calls[i].call(run);
      if (text != NULL && twice) fputs(text, stdout);
    }
    fputs(offsim_errors(run), stderr);
  }
  int status = (int)offsim_status(run);
  offsim_run_delete(run);
  offsim_run_delete(NULL);
  return status;
}
