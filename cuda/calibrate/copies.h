/* Copies of some GPUs at once, timed by the host's clock. */
#ifndef OFFSIM_CUDA_CALIBRATE_COPIES_H
#define OFFSIM_CUDA_CALIBRATE_COPIES_H

#include "cuda/device/device.h"
#include "sim/base/diag.h"
#include "sim/base/units.h"
#include "sim/calibrate/calibration.h"

typedef enum copy_direction { COPY_OUT, COPY_IN, COPY_BOTH, COPY_DIRECTIONS } copy_direction;

/* A size as in training, and a size that shows the fixed part of a copy. */
#define LARGE_COPY_BYTES (256 * MIB)
#define SMALL_COPY_BYTES (256 * KIB)

/* Large ones: a round of all blocks. */
enum { COPY_BLOCKS = 18, LARGE_COPIES = COPY_BLOCKS, SMALL_COPIES = 400 };

/* A GPU's ends of copies: memory and stream of [COPY_OUT], [COPY_IN]. */
typedef struct copy_place {
  void *on_device[2], *on_host[COPY_BLOCKS];
  gpu_stream *streams[2];
} copy_place;

/* Copies of GPUs 0 .. gpus - 1, each with `blocks` of `bytes` on the host, wherever the system puts
 * them. Each copy takes the next block, as in a training, where a tensor comes back from the block
 * that it was copied to: the rate depends on the blocks' memory node. */
typedef struct copy_bench {
  const gpu_driver *driver;
  uint32_t gpus, blocks;
  bool pageable; /* host memory that is not page-locked */
  int64_t bytes;
  copy_place places[CALIBRATED_GPUS];
} copy_bench;

/* Allocates the memory; each GPU's host thread allocates its own. False after a diag error (status
 * 3). */
bool copy_bench_open(copy_bench *b, diag *d);
void copy_bench_close(copy_bench *b);

typedef struct copy_run {
  uint32_t gpus; /* 0 .. gpus - 1 at once, each with its own host thread */
  copy_direction direction;
  int64_t bytes;   /* of one copy, at most the block's */
  uint32_t copies; /* of each GPU and direction */
} copy_run;

/* These are false after a diag error: what the driver says. */

/* The time of the copies while all GPUs copy, ps: one GPU's bytes over the mean of their rates. */
bool time_copies(copy_bench *b, const copy_run *run, int64_t *ps, diag *d);

/* The total rate of its GPUs and directions, at least 1. */
bool copy_rate(copy_bench *b, const copy_run *run, int64_t *bytes_per_us, diag *d);

/* `copies` copies of `bytes` each from GPU `from` to GPU `to`. */
typedef struct peer_run {
  const gpu_driver *driver;
  uint32_t from, to;
  int64_t bytes;
  uint32_t copies;
} peer_run;

/* The time of all its copies, ps. */
bool time_peer_copies(const peer_run *run, int64_t *ps, diag *d);

#endif
