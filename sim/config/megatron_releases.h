/*
 * Released Megatron-LM: its versions (software.megatron), and which defects of its fine-grained activation
 * offloading each of them has.
 *
 * Read in fine_grained_activation_offload.py at the tags core_v0.16.0, core_v0.16.1, core_v0.17.0,
 * core_v0.17.1, core_v0.18.0, core_v0.18.2 and core_v0.19.0, and in main at d98e8a64 (22 August 2026).
 */
#ifndef OFFSIM_SIM_CONFIG_MEGATRON_RELEASES_H
#define OFFSIM_SIM_CONFIG_MEGATRON_RELEASES_H

#include "sim/config/settings.h"

/*
 * Oldest first. A day of main (software.megatron_day) has the code of one version, and a version is the code of
 * one day:
 *
 *   version   the first day on which main had its offload manager   the day on which the release left main
 *
 * 0: the newest day that offsim knows. 0.16 and 0.17 have the same manager, so 0.17's first
 * day is the one after 0.16 left. That of 0.18 is #4692, that of 0.19 #3697, that of main #6553.
 */
/* clang-format off */
#define MEGATRON_VERSIONS(X)            \
  X(CORE_V0_16, 20260115, 20260202)     \
  X(CORE_V0_17, 20260203, 20260331)     \
  X(CORE_V0_18, 20260521, 20260601)     \
  X(CORE_V0_19, 20260702, 20260728)     \
  X(MAIN_2026_08, 20260818, 0)
/* clang-format on */

/* The day of a version, as a number: 20260202; 0: the newest. */
int megatron_version_day(uint32_t version);
/* The version whose code main had on a day; the oldest on days before it. */
uint32_t megatron_version_on(int day);
/* Main had no fine-grained activation offloading before this day. */
int megatron_first_day(void);

/*
 *   name   first version   last version   upstream   what it changes
 */
/* clang-format off */
#define MEGATRON_DEFECTS(X)                                                                                       \
  X(INLINE_RELOAD, CORE_V0_16, MAIN_2026_08, "#7398, fix #7399",                                                  \
    "a copy back on the compute stream does not wait for the copy to the host")                                   \
  X(LATE_GROUP, CORE_V0_16, MAIN_2026_08, "not reported",                                                         \
    "nothing waits for a group that comes back after its commit marker")                                          \
  X(EARLY_READ, CORE_V0_16, MAIN_2026_08, "not reported",                                                         \
    "a recomputation reads a group that is on its way back, or stops before a chunk's first marker")              \
  X(FINISHED_EARLY, CORE_V0_16, MAIN_2026_08, "fix #6783",                                                        \
    "a chunk whose first group is kept counts as finished: \"Chunk mismatch\"")                                   \
  X(KEPT_RELOADS, CORE_V0_19, MAIN_2026_08, "fix #7575",                                                          \
    "a group that delta or fraction keeps brings another one back too early")                                     \
  X(STORAGE_ADDRESS, MAIN_2026_08, MAIN_2026_08, "not reported",                                                  \
    "the first forward stops at the fp8 copy of a weight, which has no storage")                                  \
  X(GATHERED_VIEW, CORE_V0_16, CORE_V0_19, "mended in main",                                                      \
    "a view with gaps is gathered into a new tensor on the copying stream, even if it is most of its storage")    \
  X(KEPT_PENDING, CORE_V0_16, CORE_V0_18, "mended by #3697",                                                      \
    "a kept group stays pending: the group around it is not offloaded, and its chunk is not finished")            \
  X(RECOMPUTED_GROUP, CORE_V0_16, MAIN_2026_08, "not reported",                                                   \
    "full recomputation runs a layer's markers twice: reloads begin too late, pipelines stop: \"Chunk mismatch\"")
/* clang-format on */

typedef enum megatron_defect {
#define NAMED(name, ...) MEGATRON_##name,
  MEGATRON_DEFECTS(NAMED)
#undef NAMED
      MEGATRON_DEFECT_COUNT
} megatron_defect;

typedef struct megatron_defect_row {
  const char *name;
  uint32_t first, last; /* constants of software.megatron */
  const char *upstream, *effect;
} megatron_defect_row;

extern const megatron_defect_row megatron_defects[MEGATRON_DEFECT_COUNT];

/* Whether the run has it: offload.mode as_released, and a version between the two. */
bool megatron_has(const settings *s, megatron_defect defect);

#endif
