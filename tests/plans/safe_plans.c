/*
 * Whether many plans are safe. A process of `offsim check` for each takes five times as long.
 *
 *     safe_plans <PLANS
 *
 * PLANS are texts, each ended by NUL. Prints a line for each: safe or unsafe.
 */
#include <stdlib.h>

#include "sim/plan/text.h"
#include "sim/verify/verify.h"

static bool print_safety(const char *text, size_t length)
{
  arena a = { 0 };
  diag d = { 0 };
  plan p;
  verification v;
  bool read = plan_parse(&p, "-", text, length, &a, &d);
  if (read) {
    verify_plan(&v, &p, NULL, 1, &a);
    puts(v.safe ? "safe" : "unsafe");
    verification_release(&v);
    plan_release(&p);
  }
  diag_print(&d, stderr);
  arena_release(&a);
  return read;
}

int main(void)
{
  char *text = NULL;
  size_t capacity = 0;
  ssize_t length;
  bool read = true;
  while (read && (length = getdelim(&text, &capacity, '\0', stdin)) > 0)
    read = print_safety(text, (size_t)length - 1);
  free(text);
  return !read;
}
