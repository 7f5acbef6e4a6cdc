#include "cuda/calibrate/calibrate.h"
#include "cuda/calibrate/copies.h"
#include "cuda/calibrate/host_costs.h"
#include "sim/base/median.h"
#include "sim/base/units.h"

/* What is as long as a training step copies, and what shows the fixed part of a copy. */
#define LARGE_BYTES (256 * MIB)
#define SMALL_BYTES (256 * KIB)
enum { LARGE_COPIES = 2 * COPY_BLOCKS, PAGEABLE_COPIES = 3, SMALL_COPIES = 400 };

/* The middle one counts: others use the host's memory, too. */
enum { TIMES = 5 };

typedef struct bench {
  const gpu_driver *driver;
  uint32_t gpus;
  copy_bench copies;
  calibration *to;
  calibrate_progress *progress;
  void *context;
  uint32_t step;
  diag *d;
} bench;

enum { BENCH_STEPS = 6 };

static void tell(bench *b, const char *what)
{
  b->progress(b->context, what, b->step++, BENCH_STEPS);
}

static void put(bench *b, const char *section, const char *key, int64_t value)
{
  calibration_put(b->to, section, key, value);
}

static bool median_time(copy_bench *b, const copy_run *run, int64_t *ps, diag *d)
{
  int64_t times_ps[TIMES];
  for (int i = 0; i < TIMES; i++)
    if (!time_copies(b, run, &times_ps[i], d)) return false;
  *ps = median_i64(times_ps, TIMES);
  return true;
}

/* Of all GPUs and directions together. */
static bool rate_of(copy_bench *b, uint32_t gpus, copy_direction direction, int64_t *rate, diag *d)
{
  copy_run run = { .gpus = gpus,
                   .direction = direction,
                   .bytes = LARGE_BYTES,
                   .copies = b->pageable ? PAGEABLE_COPIES : LARGE_COPIES };
  int64_t ps, ways = direction == COPY_BOTH ? 2 : 1;
  if (!median_time(b, &run, &ps, d)) return false;
  *rate = max_i64(1, muldiv_i64(run.bytes * run.copies * gpus * ways, PS_PER_US, ps));
  return true;
}

static bool rates_of(bench *b, uint32_t gpus, contention *c)
{
  copy_bench *copies = &b->copies;
  c->gpus = gpus;
  return rate_of(copies, gpus, COPY_OUT, &c->d2h_bytes_per_us, b->d) &&
         rate_of(copies, gpus, COPY_IN, &c->h2d_bytes_per_us, b->d) &&
         rate_of(copies, gpus, COPY_BOTH, &c->duplex_bytes_per_us, b->d);
}

static bool put_rates(bench *b, const char *section, uint32_t gpus)
{
  contention c;
  if (!rates_of(b, gpus, &c)) return false;
  put(b, section, "d2h_bytes_per_us", c.d2h_bytes_per_us);
  put(b, section, "h2d_bytes_per_us", c.h2d_bytes_per_us);
  put(b, section, "duplex_bytes_per_us", c.duplex_bytes_per_us);
  return true;
}

/* What a small copy takes beyond its bytes at the full rate. */
static bool put_latency(bench *b, const char *key, copy_direction direction, const char *rate_key)
{
  copy_run run = {
    .gpus = 1, .direction = direction, .bytes = SMALL_BYTES, .copies = SMALL_COPIES
  };
  int64_t ps, rate = calibration_find(b->to, "link", rate_key)->value;
  if (!median_time(&b->copies, &run, &ps, b->d)) return false;
  int64_t fixed = ps / SMALL_COPIES - muldiv_i64(SMALL_BYTES, PS_PER_US, rate);
  put(b, "link", key, max_i64(0, fixed / PS_PER_NS));
  return true;
}

static bool measure_link(bench *b)
{
  tell(b, "copies of one GPU");
  bool ok = put_rates(b, "link", 1);
  tell(b, "small copies");
  return ok && put_latency(b, "d2h_latency_ns", COPY_OUT, "d2h_bytes_per_us") &&
         put_latency(b, "h2d_latency_ns", COPY_IN, "h2d_bytes_per_us");
}

static bool measure_pageable(bench *b)
{
  copy_bench copies = { .driver = b->driver,
                        .gpus = 1,
                        .blocks = PAGEABLE_COPIES,
                        .pageable = true,
                        .bytes = LARGE_BYTES };
  int64_t d2h, h2d;
  tell(b, "copies of pageable memory");
  bool ok = copy_bench_open(&copies, b->d) && rate_of(&copies, 1, COPY_OUT, &d2h, b->d) &&
            rate_of(&copies, 1, COPY_IN, &h2d, b->d);
  copy_bench_close(&copies);
  if (!ok) return false;
  put(b, "link", "pageable_d2h_bytes_per_us", d2h);
  put(b, "link", "pageable_h2d_bytes_per_us", h2d);
  return true;
}

/* One group: that of all GPUs. */
static bool measure_host(bench *b)
{
  tell(b, "copies of some and of all GPUs at once");
  put(b, "host", "gpus", b->gpus);
  put(b, "host", "gpus_per_group", b->gpus);
  put(b, "host", "group_d2h_bytes_per_us", 0);
  put(b, "host", "group_h2d_bytes_per_us", 0);
  put(b, "host", "group_duplex_bytes_per_us", 0);
  for (uint32_t gpus = 2; gpus < b->gpus; gpus++)
    if (!rates_of(b, gpus, &b->to->at_once[b->to->at_once_count++])) return false;
  return put_rates(b, "host", b->gpus);
}

static bool measure_copies(bench *b)
{
  b->copies = (copy_bench){
    .driver = b->driver, .gpus = b->gpus, .blocks = COPY_BLOCKS, .bytes = LARGE_BYTES
  };
  bool ok = copy_bench_open(&b->copies, b->d) && measure_link(b) && measure_host(b);
  copy_bench_close(&b->copies);
  return ok && measure_pageable(b);
}

static bool measure_peers(bench *b)
{
  peer_run run = { .driver = b->driver, .to = 1, .bytes = LARGE_BYTES, .copies = LARGE_COPIES };
  int64_t ps;
  tell(b, "copies between GPUs");
  if (b->gpus < 2) return true;
  if (!time_peer_copies(&run, &ps, b->d)) return false;
  put(b, "nvlink", "one_way_bytes_per_us", muldiv_i64(run.bytes * run.copies, PS_PER_US, ps));
  run.bytes = SMALL_BYTES;
  run.copies = SMALL_COPIES;
  if (!time_peer_copies(&run, &ps, b->d)) return false;
  put(b, "nvlink", "latency_ns", ps / SMALL_COPIES / PS_PER_NS);
  return true;
}

static bool measure_issue(bench *b)
{
  host_costs c;
  tell(b, "what the driver costs the host");
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
  if (gpus > found) return diag_refused(b->d, "%u GPUs were asked for, there are %u", gpus, found);
  b->gpus = gpus == 0 ? found : gpus;
  wrong = b->driver->describe(0, b->to->gpu_name, sizeof b->to->gpu_name);
  return wrong == NULL || diag_refused(b->d, "the name of GPU 0: %s", wrong);
}
#else
static bool open_bench(bench *b, uint32_t gpus)
{
  (void)gpus;
  return diag_refused(b->d,
                      "this offsim was built without CUDA; with nvcc in $PATH, run gn gen again");
}
#endif

bool calibrate_links(uint32_t gpus, calibration *c, calibrate_progress *progress, void *context,
                     diag *d)
{
  bench b = { .to = c, .progress = progress, .context = context, .d = d };
  *c = (calibration){ .count = 0 };
  return open_bench(&b, gpus) && measure_memory(&b) && measure_copies(&b) && measure_peers(&b) &&
         measure_issue(&b);
}
