/*
 * Any bytes as a plan. What is a plan prints to a text that reads back and prints the same.
 */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/plan/text.h"

typedef struct printed_text {
  char *bytes;
  size_t length;
} printed_text;

static printed_text print(const plan *p)
{
  printed_text t = { 0 };
  FILE *out = open_memstream(&t.bytes, &t.length);
  plan_print(out, p, NULL);
  fclose(out);
  return t;
}

static void check_round_trip(const plan *p, arena *a)
{
  diag d = { .quiet = true };
  plan again;
  printed_text first = print(p);
  bool good = plan_parse(&again, "printed", first.bytes, first.length, a, &d);
  assert(good && "what is printed reads back");
  printed_text second = print(&again);
  assert(first.length == second.length && memcmp(first.bytes, second.bytes, first.length) == 0);
  plan_release(&again);
  free(first.bytes);
  free(second.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  plan p;
  bool good = plan_parse(&p, "fuzz", (const char *)data, size, &a, &d);
  assert(good == diag_ok(&d));
  if (good) {
    check_round_trip(&p, &a);
    plan_release(&p);
  }
  arena_release(&a);
  return 0;
}
