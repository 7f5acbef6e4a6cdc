#include "sim/machine/error.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"

typedef struct rate_error {
  const char *name;
  int16_t permille
      [VALUE_SOURCES]; /* width, by source: assumed, published, measured, calibrated, exact */
} rate_error;

/*
 * Where the widths come from. Traces: four of Megatron-LM on H200s beside the shipped file
 * (docs/09-real-runs.md). Recorded runs: 38 of offsim's own (docs/08-real-gpu.md), calibrated within
 * 0.6 percent in the median, with shipped files within 2. What has no such comparison has the width of
 * the sources' own spread, named in the line.
 */
static const rate_error errors[RATE_CLASSES] = {
  /* traces: up to 10 percent; measured H200 and published H100 benchmarks agree within 4 */
  [RATE_PRODUCTS] = { "matrix products", { 100, 60, 40, 10, 0 } },
  /* published for 8 and 16 experts and two versions of Transformer Engine: 0.78 to 0.88 of one product */
  [RATE_GROUPED] = { "grouped products", { 200, 100, 60, 20, 0 } },
  /* traces: up to 4 percent; assumed in the ratio of products */
  [RATE_ATTENTION] = { "attention", { 100, 50, 40, 10, 0 } },
  /* traces: up to 8 percent; published norms reach 0.60 to 0.81 of a GB200's rate, assumed is 0.76 */
  [RATE_MEMORY] = { "memory-bound kernels", { 200, 120, 60, 20, 0 } },
  /* two H200s: one step took 361 and 367 ms; six runs on an H100, assumed as an H200: 8 percent */
  [RATE_POWER] = { "the power limit", { 100, 60, 30, 10, 0 } },
  /* Megatron-LM recorded 18 cases on H100 on several days: in 13 of them, all limited by the host,
   * steps of one day are 1.3 to 1.6 times those of another */
  [RATE_HOST] = { "host time", { 250, 200, 150, 30, 0 } },
  /* traces: up to 8 percent; links of a shared host were 37 percent slower */
  [RATE_COPIES] = { "copies", { 200, 120, 80, 20, 0 } },
  /* an all-to-all that was assumed at 155 GB/s was published at 337 */
  [RATE_NVLINK] = { "NVLink", { 350, 100, 50, 20, 0 } },
  [RATE_NETWORK] = { "the network", { 350, 100, 50, 20, 0 } },
  /* measured: slowdowns of 60 to 280 permille with a median of 120, of 330 to 780 with one of 560 */
  [RATE_OVERLAP] = { "slowdown by overlap", { 600, 500, 400, 200, 0 } },
};

const char *rate_class_name(rate_class c)
{
  assert(c > RATE_NONE && c < RATE_CLASSES);
  return errors[c].name;
}

machine machine_erring(const machine *m, rate_class c, bool slower)
{
  machine erring = *m;
  assert(c > RATE_NONE && c < RATE_CLASSES);
  for (uint32_t k = 0; k < MACHINE_KEYS; k++) {
    int rate = machine_keys[k].rate;
    if (rate != (int)c && rate != -(int)c) continue;
    int64_t value, wrong = 1000 + errors[c].permille[m->sources[k]];
    memcpy(&value, (const char *)m + machine_keys[k].offset, sizeof value);
    bool more = (rate > 0) != slower;
    value = more ? muldiv_i64(value, wrong, 1000) : muldiv_up_i64(value, 1000, wrong);
    memcpy((char *)&erring + machine_keys[k].offset, &value, sizeof value);
  }
  return erring;
}
