/*
 * Where the layers below an execution report that a driver call failed, or that memory is refused.
 * The execution installs each rank's sink; a queue and the memory above it know nothing else about
 * their execution.
 */
#ifndef OFFSIM_CUDA_QUEUE_SINK_H
#define OFFSIM_CUDA_QUEUE_SINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct failure_sink {
  void *context;
  /* `op` of the rank, NO_OP: none. The first report of all ranks is kept; then all stop. */
  void (*wrong)(void *context, uint32_t op, const char *why);
  void (*refused)(void *context, uint32_t op, const char *why);
  const atomic_bool *stopped; /* hosts stop issuing */
  _Atomic uint32_t at;        /* the op that the host thread issues, or NO_OP */
} failure_sink;

/* Reports about the current op. */
void sink_wrong(failure_sink *s, const char *why);
void sink_refused(failure_sink *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Checks the result of a driver call: true if it succeeded. */
static inline bool sink_ok(failure_sink *s, const char *answer)
{
  if (answer != NULL) sink_wrong(s, answer);
  return answer == NULL;
}

static inline bool sink_is_open(const failure_sink *s)
{
  return !atomic_load_explicit(s->stopped, memory_order_relaxed);
}

#endif
