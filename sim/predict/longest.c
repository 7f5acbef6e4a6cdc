#include "sim/predict/longest.h"

#include "sim/base/units.h"
#include "sim/offload/systems.h"
#include "sim/predict/prediction.h"

enum { GRAIN_TOKENS = 32 };

static bool fits(const settings *given, int64_t length, const machine *m)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  settings s = *given;
  prediction p = { 0 };

  s.training.seq_length = length;
  bool predicted =
      settings_resolve(&s, offload_conditions, &a, &d) && predict_alone(&p, &s, m, &a, &d);
  bool found = predicted && p.fits_device && p.fits_host;
  prediction_release(&p);
  arena_release(&a);
  return found;
}

/* Memory grows with the length, so that halving the interval finds the longest. */
int64_t longest_that_fits(const settings *given, const machine *m)
{
  const struct parallel_settings *p = &given->parallel;
  int64_t parts = 2 * p->context_parallel_size * p->tensor_model_parallel_size;
  int64_t grain = least_common_multiple(GRAIN_TOKENS, parts);
  int64_t low = 0, high = ceil_div(given->training.seq_length, grain);

  while (low + 1 < high) {
    int64_t middle = low + (high - low) / 2;
    if (fits(given, middle * grain, m)) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low * grain;
}
