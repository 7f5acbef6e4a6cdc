#include "sim/cli/processes.h"

#include <stdio.h>

#include "sim/world/world.h"

static bool all_know; /* that the input is wrong */

bool processes_join(diag *d)
{
  if (!world_open(d)) return false;
  if (world_of().number == 0) return true;
  d->quiet = true;
  return freopen("/dev/null", "w", stdout) != NULL || diag_refused(d, "/dev/null cannot be opened");
}

bool processes_agree(diag *d)
{
  bool first = world_of().number == 0, wrong = !diag_ok(d);
  int64_t all_and_first[] = { wrong, wrong && first };
  world_add(all_and_first, 2);
  if (all_and_first[1] > 0 && !first) diag_forget(d);
  all_know = all_and_first[0] > 0;
  return !all_know;
}

int processes_finish(const diag *d)
{
  int status = diag_finish(d);
  if (status != 0 && world_of().processes > 1 && !all_know) world_abort(status);
  world_close();
  return status;
}
