/* Copies of some GPUs at once, timed by the host's clock. */
#ifndef OFFSIM_CUDA_CALIBRATE_COPIES_H
#define OFFSIM_CUDA_CALIBRATE_COPIES_H

#include "cuda/device/device.h"
#include "sim/base/diag.h"
#include "sim/base/units.h"
#include "sim/calibrate/calibration.h"

typedef enum copy_direction { COPY_OUT, COPY_IN, COPY_BOTH, COPY_DIRECTIONS } copy_direction;

/* What is as long as a training step copies, and what shows the fixed part of a copy. */
#define LARGE_COPY_BYTES (256 * MIB)
#define SMALL_COPY_BYTES (256 * KIB)

/* Large ones: a round of all blocks. */
enum { COPY_BLOCKS = 18, LARGE_COPIES = COPY_BLOCKS, SMALL_COPIES = 400 };

/* What a GPU copies between; memory and stream of [COPY_OUT], [COPY_IN]. */
typedef struct copy_place {
  void *on_device[2], *on_host[COPY_BLOCKS];
  gpu_stream *streams[2];
} copy_place;

/* Of GPUs 0 .. gpus - 1, each with `blocks` of `bytes` on the host: near or far, as they come. One
 * copy after the other takes the next block, as in a training, where what was copied out comes back
 * from the same place: how fast GPUs copy depends on where their blocks lie. */
typedef struct copy_bench {
  const gpu_driver *driver;
  uint32_t gpus, blocks;
  bool pageable; /* memory of the host that is not page-locked */
  int64_t bytes;
  copy_place places[CALIBRATED_GPUS];
} copy_bench;

/* Takes the memory; each GPU's host thread takes its own. False after a diag error (status 3). */
bool copy_bench_open(copy_bench *b, diag *d);
void copy_bench_close(copy_bench *b);

typedef struct copy_run {
  uint32_t gpus; /* 0 .. gpus - 1 at once, each with a host thread of its own */
  copy_direction direction;
  int64_t bytes;   /* of one copy, at most the block's */
  uint32_t copies; /* of each GPU and direction */
} copy_run;

/* What the copies take while all of them copy, ps: one GPU's bytes over the mean of their rates. */
bool time_copies(copy_bench *b, const copy_run *run, int64_t *ps, diag *d);

/* Of all its GPUs and directions together, at least 1. */
bool copy_rate(copy_bench *b, const copy_run *run, int64_t *bytes_per_us, diag *d);

/* `copies` copies of `bytes` each from GPU `from` to GPU `to`. */
typedef struct peer_run {
  const gpu_driver *driver;
  uint32_t from, to;
  int64_t bytes;
  uint32_t copies;
} peer_run;

bool time_peer_copies(const peer_run *run, int64_t *ps, diag *d);

#endif
