/*
 * What a real run shows at a glance: its streams and their roles, copies, busy and idle time.
 */
#ifndef OFFSIM_TRACES_IMPORT_RUN_SUMMARY_H
#define OFFSIM_TRACES_IMPORT_RUN_SUMMARY_H

#include "traces/import/classes.h"
#include "traces/import/real_run.h"

/* By what runs longest on a stream. */
typedef enum stream_role {
  ROLE_COMPUTE, /* of the streams with kernels, the one where they take longest */
  ROLE_KERNELS, /* another one with kernels */
  ROLE_COMMUNICATION,
  ROLE_D2H,
  ROLE_H2D,
  ROLE_OTHER, /* copies on the device, memsets; or only waits */
  STREAM_ROLES
} stream_role;

const char *stream_role_name(stream_role role);

/* Copies of one direction on one stream. */
typedef struct copy_summary {
  uint32_t count, pageable_count;
  int64_t bytes;
  int64_t busy_ns;    /* at least one is under way */
  int64_t exposed_ns; /* ... and no kernel runs on any stream */
} copy_summary;

typedef struct stream_summary {
  stream_role role;
  uint32_t kernels, memsets, device_copies, waits;
  int64_t busy_ns; /* at least one op is under way */
  copy_summary d2h, h2d;
} stream_summary;

/* Of the step named by the profiler ("ProfilerStep#5"); without names, the whole record. */
typedef struct step_summary {
  const char *name;
  int64_t begin_ns, end_ns;
} step_summary;

typedef struct run_summary {
  const real_run *run;
  int64_t begin_ns, end_ns; /* of everything on streams and of the host's calls */
  step_summary *steps;
  uint32_t step_count;
  stream_summary *streams; /* [streams] */
  uint32_t compute;        /* the stream of that role; REAL_NONE: no kernel */
  int64_t kernel_busy_ns;  /* a kernel runs on any stream, NCCL's too */
  int64_t work_busy_ns;    /* a kernel, copy or memset runs */
  /* Copies of offloading: the streams that move most bytes to the host and back, REAL_NONE if none
   * does; what of their copies counts, by span; and together. */
  uint32_t offload_stream, reload_stream;
  bool *is_offload; /* [spans] */
  copy_summary d2h, h2d;
  int64_t class_ns[KERNEL_CLASS_COUNT]; /* sums over kernels */
  uint32_t class_count[KERNEL_CLASS_COUNT];
} run_summary;

/*
 * Of a finished run; everything is in the arena.
 *
 * All copies of a stream that runs no kernels count as offloading. Where offloading shares a stream
 * with kernels (save_on_cpu), so do losses, token counts and batches: there, copies out count from
 * 64 KiB on, and copies back if one of that size went out.
 */
run_summary run_summary_of(const real_run *r, arena *a);

#endif
