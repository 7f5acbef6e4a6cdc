/*
 * Plans of nothing but exchanges, run by threads and streams as cuda/exec runs them, and by ref:
 * on the host driver in the unit tests, on GPUs in tests/gpu.
 *
 * A bench has `stages` x `width` ranks, stage by stage: the ranks of a stage are a group `tp`,
 * those of a pipeline `edp`, all together `world`.
 */
#ifndef OFFSIM_TESTS_UNIT_EXCHANGE_BENCH_H
#define OFFSIM_TESTS_UNIT_EXCHANGE_BENCH_H

#include "cuda/peers/exchange.h"
#include "sim/base/arena.h"

enum { BENCH_RANKS = 8, BENCH_STAGES = 4 };

typedef struct bench_setup {
  const gpu_driver *driver;
  const cuda_collective_row *collectives;
  uint32_t gpus; /* rank r runs on GPU r x gpus / ranks */
  bool nccl;
  uint32_t stages, width;
  uint64_t jitter;    /* seed of pauses; 0: none */
  bool streams_pause; /* streams, too, and not just hosts */
  uint32_t absent;    /* this rank's host issues nothing but stops the others; BENCH_RANKS: none */
} bench_setup;

/* NULL: every buffer of every rank ends with the same bits as in ref; otherwise what is wrong. */
const char *bench_check(const bench_setup *s, const char *text, arena *a);
/* The finding, or the message of a refusal, of a plan that is wrong; NULL: none. */
const char *bench_finding(const bench_setup *s, const char *text, arena *a);

/* A legal plan that a seed draws: collectives of all groups, messages, alone and in exchanges, on
 * several streams, issued by each stage in an order of its own. */
const char *random_exchanges(uint64_t seed, uint32_t stages, uint32_t width, arena *a);

#endif
