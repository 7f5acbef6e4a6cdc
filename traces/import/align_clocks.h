/*
 * Clocks of several ranks' traces, from the collectives and messages in which ranks meet: no rank's part of
 * one ends before every other rank's part has begun, and a message is not received before its sending has
 * begun. So each of them bounds the offset between two clocks; together they leave an interval, whose
 * middle is the estimate and whose half is its uncertainty. An interval that is turned round (its lower
 * bound is above the upper one) shows that the clocks drift, by at least its length.
 */
#ifndef OFFSIM_TRACES_IMPORT_ALIGN_CLOCKS_H
#define OFFSIM_TRACES_IMPORT_ALIGN_CLOCKS_H

#include "traces/import/real_run.h"

typedef struct rank_clock {
  bool is_known;          /* it meets the first rank, or a rank that does */
  int64_t offset_ns;      /* to be added to its times, so that they are the first rank's */
  int64_t uncertainty_ns; /* at most this more or less */
  bool drifts;
  uint32_t via;       /* the rank that it was compared with; of the first rank itself */
  uint32_t meetings;  /* with that rank */
  uint32_t unmatched; /* collectives and messages that the two have in different numbers */
  int64_t wait_ns;    /* of its collectives: until the last of these ranks began its part */
} rank_clock;

/* Of finished runs with a profile; [count], from the arena. */
rank_clock *align_clocks(const real_run *const *runs, uint32_t count, arena *a);

#endif
