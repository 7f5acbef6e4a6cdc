/*
 * When streams that wait cost copies time.
 *
 * A stream that waits for an event has its GPU look for that event again and again, it seems. One
 * does no harm. Where a second stream beside compute has work in hand too (it waits itself, or is
 * in an exchange whose other side is not there), copies between GPU and host get slower: on H200s
 * by 10 percent out and 3 back, for as long as that lasts. Pipelines with virtual stages and
 * overlapped exchanges are like that nearly all the time. How it was found: docs/06-real-gpu.md.
 */
#ifndef OFFSIM_SIM_ENGINE_WAITING_H
#define OFFSIM_SIM_ENGINE_WAITING_H

#include "sim/base/arena.h"
#include "sim/engine/slowdown.h"
#include "sim/engine/spans.h"

/* When two streams beside compute have work in hand and one of them waits; sorted. */
span_list waiting_spans(const undisturbed *u, arena *a);

#endif
