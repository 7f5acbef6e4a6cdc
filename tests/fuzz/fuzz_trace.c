/*
 * Any bytes as a trace. What is one is the same as itself.
 */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdio.h>

#include "traces/compare.h"

static void check_comparison(const trace *t, arena *a)
{
  trace_comparison c;
  trace_compare(&c, t, t, a);
  assert(c.same_order && c.same_bytes && c.outputs_differ == 0);
  assert(c.pairs == t->ops.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  intern_table texts = { .memory = &a };
  trace t = { .ops = { 0 } };
  static uint8_t nothing[1];
  FILE *stream = fmemopen(size > 0 ? (void *)(uintptr_t)data : nothing, size > 0 ? size : 1, "rb");
  assert(stream != NULL);
  bool good = trace_read_stream(&t, "fuzz", stream, &texts, &d);
  assert(good == diag_ok(&d));
  if (good) check_comparison(&t, &a);
  fclose(stream);
  trace_release(&t);
  arena_release(&a);
  return 0;
}
