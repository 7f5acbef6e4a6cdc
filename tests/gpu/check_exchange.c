/*
 * Holds exchanges between ranks on GPUs (cuda/peers/exchange.h) against ref: plans that seeds draw,
 * by 2, 4 and 6 ranks on as many GPUs as are given.
 *
 *     check_exchange [--gpus N] [--seeds N] [--jitter] [--streams-pause] [--nccl] [--shape N]
 *
 * Without GPUs (--gpus 0) on the CPU in their place. Plans that NCCL cannot run (cuda/peers/turns.h)
 * are refused.
 *
 * Exit status 1: bits differ, or a call failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/exchange_bench.h"

typedef struct choices {
  uint32_t gpus;
  uint64_t seeds;
  uint32_t shape; /* stages x 10 + width; 0: all */
  bool jitter, streams_pause, nccl;
} choices;

static choices choices_of(int argc, char **argv)
{
  choices c = { .gpus = 1, .seeds = 20 };
  for (int i = 1; i < argc; i++) {
    c.jitter |= strcmp(argv[i], "--jitter") == 0;
    c.streams_pause |= strcmp(argv[i], "--streams-pause") == 0;
    c.nccl |= strcmp(argv[i], "--nccl") == 0;
    if (i + 1 == argc) break;
    if (strcmp(argv[i], "--gpus") == 0) c.gpus = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--shape") == 0) c.shape = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--seeds") == 0) c.seeds = strtoul(argv[i + 1], NULL, 10);
  }
  return c;
}

static double seconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bench_setup setup_of(const choices *c, uint32_t stages, uint32_t width)
{
  bool host = c->gpus == 0;
  return (bench_setup){ .driver = host ? &gpu_driver_host : &gpu_driver_cuda,
                        .collectives = host ? host_exact_collectives : cuda_exact_collectives,
                        .gpus = c->gpus,
                        .nccl = c->nccl,
                        .streams_pause = c->streams_pause,
                        .stages = stages,
                        .width = width,
                        .absent = BENCH_RANKS };
}

/* How many plans were wrong. */
static uint64_t check_shape(const choices *c, uint32_t stages, uint32_t width)
{
  uint64_t wrong_plans = 0, refused = 0;
  double begin = seconds();
  for (uint64_t seed = 1; seed <= c->seeds; seed++) {
    arena a = { 0 };
    bench_setup s = setup_of(c, stages, width);
    s.jitter = c->jitter ? seed : 0;
    const char *wrong = bench_check(&s, random_exchanges(seed, stages, width, &a), &a);
    if (wrong != NULL && strstr(wrong, "NCCL would wait forever") != NULL)
      refused++;
    else if (wrong != NULL && wrong_plans++ < 3)
      printf("  seed %llu: %s\n", (unsigned long long)seed, wrong);
    arena_release(&a);
  }
  printf("%u stages x %u on %u GPUs%s%s: %llu of %llu plans wrong, %llu refused, %.1f s\n", stages,
         width, c->gpus, c->nccl ? ", NCCL" : "", c->jitter ? ", jitter" : "",
         (unsigned long long)wrong_plans, (unsigned long long)c->seeds, (unsigned long long)refused,
         seconds() - begin);
  fflush(stdout);
  return wrong_plans;
}

/* A host that fails: all streams must come to an end. */
static uint64_t check_stop(const choices *c)
{
  arena a = { 0 };
  bench_setup s = setup_of(c, 2, 2);
  s.absent = 1;
  const char *wrong = bench_finding(&s, random_exchanges(1, 2, 2, &a), &a);
  bool good = wrong != NULL && strcmp(wrong, "stopped") == 0;
  printf("a host that fails: %s\n", good ? "all stop" : wrong == NULL ? "not noticed" : wrong);
  arena_release(&a);
  return !good;
}

int main(int argc, char **argv)
{
  static const uint32_t shapes[][2] = { { 1, 2 }, { 2, 1 }, { 1, 4 }, { 2, 2 }, { 4, 1 } };
  choices c = choices_of(argc, argv);
  uint64_t wrong = 0;
  uint32_t devices = 0;
  gpu_driver_cuda.expect_gates();
  const char *failure = c.gpus == 0 ? NULL : gpu_driver_cuda.count(&devices);
  if (failure != NULL || devices < c.gpus) {
    printf("%u GPUs: %s\n", devices, failure == NULL ? "too few" : failure);
    return 1;
  }
  for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    uint32_t ranks = shapes[i][0] * shapes[i][1];
    bool chosen = c.shape == 0 || c.shape == shapes[i][0] * 10 + shapes[i][1];
    if (chosen && ranks >= c.gpus && (!c.nccl || ranks == c.gpus))
      wrong += check_shape(&c, shapes[i][0], shapes[i][1]);
  }
  if (!c.nccl && c.shape == 0) wrong += check_stop(&c);
  return wrong > 0;
}
