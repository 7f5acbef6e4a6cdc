#include "cuda/calibrate/links.h"

#include <assert.h>

#include "cuda/calibrate/host_costs.h"
#include "sim/base/array.h"
#include "sim/base/units.h"

/* ==== samples ==== */

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

/* ---- a moment ---- */

static bool take_rate(link_samples *l, uint32_t gpus, copy_direction direction, diag *d)
{
  copy_run run = { gpus, direction, LARGE_COPY_BYTES, LARGE_COPIES };
  int64_t rate;
  assert(gpus > 0 && gpus <= l->copies.gpus);
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

bool link_samples_take_more(link_samples *l, calibration *to, calibrate_progress *progress,
                            void *context, diag *d)
{
  enum { MOMENTS = 16 };
  bool ok = true;
  for (uint32_t i = 1; i < MOMENTS && ok; i++) {
    progress(context, "copies", i, MOMENTS);
    ok = link_samples_take(l, to, d);
  }
  return ok;
}

/* ---- keys ---- */

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
  assert(gpus >= 2 && gpus < l->copies.gpus);
  sample_list *rates = l->rates_bytes_per_us[gpus - 1];
  return (contention){ gpus, sample_median(&rates[COPY_OUT]), sample_median(&rates[COPY_IN]),
                       sample_median(&rates[COPY_BOTH]) };
}

/* A small copy's time beyond its bytes at the full rate. */
static void put_latency(link_samples *l, calibration *to, const char *key, copy_direction direction)
{
  int64_t rate = sample_median(&l->rates_bytes_per_us[0][direction]);
  assert(rate > 0);
  int64_t bytes_ps = muldiv_i64(SMALL_COPY_BYTES, PS_PER_US, rate);
  calibration_put(to, "link", key,
                  max_i64(0, sample_median(&l->small_ps[direction]) - bytes_ps) / PS_PER_NS);
}

/* One group of all GPUs. */
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

/* ==== everything ==== */

/* The median of several times. */
enum { PAGEABLE_COPIES = 3, TIMES = 5 };

typedef struct bench {
  const gpu_driver *driver;
  uint32_t gpus;
  link_samples *links;
  calibration *to;
  calibrate_progress *progress;
  void *context;
  uint32_t step;
  diag *d;
} bench;

enum { BENCH_STEPS = 4 };

static void show(bench *b, const char *what)
{
  b->progress(b->context, what, b->step++, BENCH_STEPS);
}

static void put(bench *b, const char *section, const char *key, int64_t value)
{
  calibration_put(b->to, section, key, value);
}

static bool median_rate(copy_bench *b, const copy_run *run, int64_t *bytes_per_us, diag *d)
{
  int64_t rates[TIMES];
  for (int i = 0; i < TIMES; i++)
    if (!copy_rate(b, run, &rates[i], d)) return false;
  *bytes_per_us = median_i64(rates, TIMES);
  return true;
}

static bool measure_pageable(bench *b)
{
  copy_bench copies = { .driver = b->driver,
                        .gpus = 1,
                        .blocks = PAGEABLE_COPIES,
                        .pageable = true,
                        .bytes = LARGE_COPY_BYTES };
  copy_run out = { 1, COPY_OUT, LARGE_COPY_BYTES, PAGEABLE_COPIES }, in = out;
  int64_t d2h, h2d;
  in.direction = COPY_IN;
  show(b, "copies of pageable memory");
  bool ok = copy_bench_open(&copies, b->d) && median_rate(&copies, &out, &d2h, b->d) &&
            median_rate(&copies, &in, &h2d, b->d);
  copy_bench_close(&copies);
  if (!ok) return false;
  put(b, "link", "pageable_d2h_bytes_per_us", d2h);
  put(b, "link", "pageable_h2d_bytes_per_us", h2d);
  return true;
}

static bool measure_copies(bench *b)
{
  show(b, "copies of one, of some and of all GPUs at once");
  return link_samples_open(b->links, b->driver, b->gpus, b->d) &&
         link_samples_take(b->links, b->to, b->d);
}

static bool measure_peers(bench *b)
{
  peer_run run = {
    .driver = b->driver, .to = 1, .bytes = LARGE_COPY_BYTES, .copies = LARGE_COPIES
  };
  int64_t ps;
  show(b, "copies between GPUs");
  if (b->gpus < 2) return true;
  if (!time_peer_copies(&run, &ps, b->d)) return false;
  put(b, "nvlink", "one_way_bytes_per_us", muldiv_i64(run.bytes * run.copies, PS_PER_US, ps));
  run.bytes = SMALL_COPY_BYTES;
  run.copies = SMALL_COPIES;
  if (!time_peer_copies(&run, &ps, b->d)) return false;
  put(b, "nvlink", "latency_ns", ps / SMALL_COPIES / PS_PER_NS);
  return true;
}

static bool measure_issue(bench *b)
{
  host_costs c;
  show(b, "host time of driver calls");
  if (!measure_host_costs(b->driver, &c, b->d)) return false;
  put(b, "issue", "kernel_ns", c.launch_ps / PS_PER_NS);
  put(b, "issue", "event_ns", c.event_ps / PS_PER_NS);
  put(b, "issue", "copy_ns", c.copy_ps / PS_PER_NS);
  put(b, "issue", "driver_alloc_ns", c.map_ps / PS_PER_NS);
  put(b, "issue", "pinned_alloc_ns_per_gib", c.pinned_gib_ps / PS_PER_NS);
  return true;
}

static bool measure_memory(bench *b)
{
  int64_t free_bytes, total_bytes;
  const char *wrong = b->driver->use(0);
  if (wrong == NULL) wrong = b->driver->memory(0, &free_bytes, &total_bytes);
  if (wrong != NULL) return diag_refused(b->d, "the memory of GPU 0: %s", wrong);
  put(b, "gpu", "memory_bytes", total_bytes);
  put(b, "gpu", "reserved_by_system_bytes", total_bytes - free_bytes);
  return true;
}

#ifdef OFFSIM_WITH_CUDA
static bool open_bench(bench *b, uint32_t gpus)
{
  uint32_t found = 0;
  const char *wrong = gpu_driver_cuda.count(&found);
  b->driver = &gpu_driver_cuda;
  if (wrong != NULL || found == 0)
    return diag_refused(b->d, "there is no GPU to calibrate: %s",
                        wrong != NULL ? wrong : "none was found");
  if (gpus > found) return diag_refused(b->d, "%u GPUs were requested; there are %u", gpus, found);
  b->gpus = gpus == 0 ? found : gpus;
  wrong = b->driver->describe(0, b->to->gpu_name, sizeof b->to->gpu_name);
  return wrong == NULL || diag_refused(b->d, "the name of GPU 0: %s", wrong);
}
#else
static bool open_bench(bench *b, uint32_t gpus)
{
  (void)gpus;
  return diag_refused(b->d, "there is no GPU to calibrate: this offsim was built without CUDA; put "
                            "nvcc into $PATH and rebuild");
}
#endif

bool calibrate_links(uint32_t gpus, link_samples *links, calibration *c,
                     calibrate_progress *progress, void *context, diag *d)
{
  bench b = { .links = links, .to = c, .progress = progress, .context = context, .d = d };
  *c = (calibration){ .count = 0 };
  return open_bench(&b, gpus) && measure_memory(&b) && measure_pageable(&b) && measure_peers(&b) &&
         measure_issue(&b) && measure_copies(&b);
}
