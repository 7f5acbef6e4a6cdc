#include "cuda/calibrate/link_samples.h"

#include "sim/base/array.h"
#include "sim/base/units.h"

bool link_samples_open(link_samples *l, const gpu_driver *driver, uint32_t gpus, diag *d)
{
  l->copies = (copy_bench){
    .driver = driver, .gpus = gpus, .blocks = COPY_BLOCKS, .bytes = LARGE_COPY_BYTES
  };
  return copy_bench_open(&l->copies, d);
}

void link_samples_close(link_samples *l)
{
  copy_bench_close(&l->copies);
  for (uint32_t gpus = 1; gpus <= l->copies.gpus; gpus++)
    for (int i = 0; i < COPY_DIRECTIONS; i++)
      ARRAY_FREE(&l->rates_bytes_per_us[gpus - 1][i]);
  for (int i = 0; i < COPY_BOTH; i++)
    ARRAY_FREE(&l->small_ps[i]);
}

/* ---- a moment -------------------------------------------------------------------------------- */

static bool take_rate(link_samples *l, uint32_t gpus, copy_direction direction, diag *d)
{
  copy_run run = { gpus, direction, LARGE_COPY_BYTES, LARGE_COPIES };
  int64_t rate;
  if (!copy_rate(&l->copies, &run, &rate, d)) return false;
  *ARRAY_PUSH(&l->rates_bytes_per_us[gpus - 1][direction]) = rate;
  return true;
}

static bool take_small(link_samples *l, copy_direction direction, diag *d)
{
  copy_run run = { 1, direction, SMALL_COPY_BYTES, SMALL_COPIES };
  int64_t ps;
  if (!time_copies(&l->copies, &run, &ps, d)) return false;
  *ARRAY_PUSH(&l->small_ps[direction]) = ps / SMALL_COPIES;
  return true;
}

/* All numbers of eight GPUs would take several seconds each time. */
static bool is_due(const link_samples *l, uint32_t gpus)
{
  uint32_t all = l->copies.gpus;
  return l->moments == 0 || gpus == 1 || gpus == all || gpus == 2 + l->moments % (all - 2);
}

bool link_samples_take(link_samples *l, calibration *to, diag *d)
{
  bool ok = true;
  for (uint32_t gpus = 1; gpus <= l->copies.gpus && ok; gpus++)
    for (int i = 0; i < COPY_DIRECTIONS && is_due(l, gpus) && ok; i++)
      ok = take_rate(l, gpus, (copy_direction)i, d);
  l->moments++;
  for (int i = 0; i < COPY_BOTH && ok; i++)
    ok = take_small(l, (copy_direction)i, d);
  if (ok) link_samples_put(l, to);
  return ok;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void put_rates(link_samples *l, calibration *to, const char *section, uint32_t gpus)
{
  static const char *const keys[] = { [COPY_OUT] = "d2h_bytes_per_us",
                                      [COPY_IN] = "h2d_bytes_per_us",
                                      [COPY_BOTH] = "duplex_bytes_per_us" };
  for (int i = 0; i < COPY_DIRECTIONS; i++) {
    sample_list *rates = &l->rates_bytes_per_us[gpus - 1][i];
    int64_t rate = sample_median(rates); /* sorts them */
    calibration_put_range(to, section, keys[i], rate, rates->items[0],
                          rates->items[rates->count - 1]);
  }
}

static contention at_once(link_samples *l, uint32_t gpus)
{
  sample_list *rates = l->rates_bytes_per_us[gpus - 1];
  return (contention){ gpus, sample_median(&rates[COPY_OUT]), sample_median(&rates[COPY_IN]),
                       sample_median(&rates[COPY_BOTH]) };
}

/* What a small copy takes beyond its bytes at the full rate. */
static void put_latency(link_samples *l, calibration *to, const char *key, copy_direction direction)
{
  int64_t rate = sample_median(&l->rates_bytes_per_us[0][direction]);
  int64_t bytes_ps = muldiv_i64(SMALL_COPY_BYTES, PS_PER_US, rate);
  calibration_put(to, "link", key,
                  max_i64(0, sample_median(&l->small_ps[direction]) - bytes_ps) / PS_PER_NS);
}

/* One group: that of all GPUs. */
static void put_host(link_samples *l, calibration *to)
{
  uint32_t all = l->copies.gpus;
  calibration_put(to, "host", "gpus", all);
  calibration_put(to, "host", "gpus_per_group", all);
  calibration_put(to, "host", "group_d2h_bytes_per_us", 0);
  calibration_put(to, "host", "group_h2d_bytes_per_us", 0);
  calibration_put(to, "host", "group_duplex_bytes_per_us", 0);
  put_rates(l, to, "host", all);
}

void link_samples_put(link_samples *l, calibration *to)
{
  put_rates(l, to, "link", 1);
  put_latency(l, to, "d2h_latency_ns", COPY_OUT);
  put_latency(l, to, "h2d_latency_ns", COPY_IN);
  put_host(l, to);
  to->at_once_count = 0;
  for (uint32_t gpus = 2; gpus < l->copies.gpus; gpus++)
    to->at_once[to->at_once_count++] = at_once(l, gpus);
}
