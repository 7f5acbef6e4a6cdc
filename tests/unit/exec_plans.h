/* For tests of executors: plans as texts, whose buffers are of eight fp32 numbers. */
#ifndef OFFSIM_TESTS_UNIT_EXEC_PLANS_H
#define OFFSIM_TESTS_UNIT_EXEC_PLANS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/exec/executor.h"
#include "sim/plan/text.h"

enum { ELEMENTS = 8, MAX_RANKS = 4 };

#define BUFFER(name) name " fp32[8] 32 bytes"
#define ONE_RANK     "offsim-plan 1\nranks 1\n\nrank 0\n"
#define FILL(buffer, value)                                                                        \
  "  kernel compute fill fp32 elements=8 value=" value " 32 bytes -> " buffer "\n"
#define ALLOC(number, name) "  alloc compute " number " " BUFFER(name) " saved\n"
#define HOST(number, class) "  host_alloc host " number " " BUFFER("x") " " class "\n"

static inline plan plan_of(arena *a, const char *text)
{
  diag d = { 0 };
  plan p;
  bool good = plan_parse(&p, "text", text, strlen(text), a, &d);
  assert_string_equal(d.message, "");
  assert_true(good);
  return p;
}

/* hooks.fill: sevens in buffer 0. `context`: an int that counts the calls. */
static inline bool fill_with_seven(void *context, uint32_t rank, uint32_t buffer, void *data,
                                   int64_t bytes)
{
  (void)rank;
  if (buffer != 0) return false;
  ++*(int *)context;
  assert_int_equal(bytes, ELEMENTS * sizeof(float));
  for (int i = 0; i < ELEMENTS; i++)
    ((float *)data)[i] = 7;
  return true;
}

/* Two pipelines of two stages; those of a stage are a tensor-parallel group. */
static inline exec_layout two_by_two(void)
{
  static exec_rank ranks[MAX_RANKS];
  static const uint32_t by_stage[2][2] = { { 0, 1 }, { 2, 3 } };
  static const uint32_t by_pipeline[2][2] = { { 0, 2 }, { 1, 3 } };
  static exec_members groups[MAX_RANKS], pipelines[MAX_RANKS];
  for (uint32_t i = 0; i < MAX_RANKS; i++) {
    ranks[i] = (exec_rank){ .global = i, .stage = i / 2 };
    ranks[i].group[GROUP_TP] = (exec_position){ .index = i % 2, .size = 2 };
    groups[i] = (exec_members){ by_stage[i / 2], 2 };
    pipelines[i] = (exec_members){ by_pipeline[i % 2], 2 };
  }
  exec_layout layout = { .rank_count = MAX_RANKS, .ranks = ranks, .pipelines = pipelines };
  layout.groups[GROUP_TP] = groups;
  return layout;
}

/* Through host memory and a file, and back into another buffer. */
#define AWAY_AND_BACK                                                                              \
  ONE_RANK ALLOC("%0", "x") FILL("%0", "3") HOST("%1", "pageable_host")                            \
      HOST("%2", "disk") "  d2h compute %0 -> %1\n"                                                \
                         "  free compute %0\n"                                                     \
                         "  disk_write compute %1 -> %2\n"                                         \
                         "  host_free host %1\n" HOST(                                             \
                             "%3", "pageable_host") "  disk_read compute %2 -> %3\n"               \
                                                    "  record compute e0\n"                        \
                                                    "  host_wait host e0\n"                        \
                                                    "  host_free host %2\n" ALLOC(                 \
                                                        "%4", "x") "  h2d compute %3 -> %4\n"

#endif
