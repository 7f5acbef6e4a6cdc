/*
 * Chrome's trace-event JSON, which Perfetto (ui.perfetto.dev) opens: written event by event,
 * without keeping events in memory.
 *
 *     chrome_trace t = chrome_begin(stream);
 *     chrome_process(&t, 0, "rank 0");
 *     chrome_thread(&t, 0, 1, "compute");
 *     chrome_slice(&t, 0, 1, "kernel", "gemm", start_ps, end_ps, args, 2);
 *     chrome_end(&t);
 *
 * A process is a rank, a thread a track below it; both are sorted by their numbers. Times are
 * picoseconds here and microseconds with six decimals in the file, which is exact.
 */
#ifndef OFFSIM_TRACES_CHROME_H
#define OFFSIM_TRACES_CHROME_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct chrome_trace {
  FILE *out;
  bool any; /* an event was written */
} chrome_trace;

/* What a click on a slice shows: a text, or a number if `text` is NULL. */
typedef struct chrome_arg {
  const char *key;
  const char *text;
  int64_t number;
} chrome_arg;

/* `rank` of `world_size`: as analysers of several ranks' traces want them. */
chrome_trace chrome_begin(FILE *out, uint32_t rank, uint32_t world_size);
void chrome_end(chrome_trace *t);

void chrome_process(chrome_trace *t, uint32_t process, const char *name);
void chrome_thread(chrome_trace *t, uint32_t process, uint32_t thread, const char *name);

void chrome_slice(chrome_trace *t, uint32_t process, uint32_t thread, const char *category,
                  const char *name, int64_t start_ps, int64_t end_ps, const chrome_arg *args,
                  uint32_t arg_count);

/* A curve's value from `at_ps` on, `value` / 10^digits; `series` says its unit: "GB/s". */
void chrome_counter(chrome_trace *t, uint32_t process, const char *name, const char *series,
                    int64_t at_ps, int64_t value, int digits);

/* An arrow from the slice that begins at one place to the slice that begins at another: both ends
 * have the same name and `id`, which no other arrow of that name has. */
typedef enum chrome_flow_end { CHROME_FLOW_FROM, CHROME_FLOW_TO } chrome_flow_end;
void chrome_flow(chrome_trace *t, chrome_flow_end end, uint32_t process, uint32_t thread,
                 const char *name, uint64_t id, int64_t at_ps);

#endif
