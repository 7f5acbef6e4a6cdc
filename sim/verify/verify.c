#include "sim/verify/verify.h"

#include <stdlib.h>

#include "sim/verify/findings.h"

static const struct {
  const char *name, *meaning;
  finding_severity severity;
} rows[FINDING_KINDS] = {
#define X(kind, name, severity, meaning) [FINDING_##kind] = { name, meaning, SEVERITY_##severity },
  VERIFY_FINDINGS(X)
#undef X
};

const char *finding_name(finding_kind kind)
{
  return rows[kind].name;
}

const char *finding_meaning(finding_kind kind)
{
  return rows[kind].meaning;
}

finding_severity finding_severity_of(finding_kind kind)
{
  return rows[kind].severity;
}

const char *severity_name(finding_severity severity)
{
  static const char *const names[SEVERITIES] = { "error", "warning", "advice" };
  return names[severity];
}

static int by_place(const void *left, const void *right)
{
  const finding *a = left, *b = right;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  if (a->second != b->second) return a->second < b->second ? -1 : 1;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  if (a->buffer != b->buffer) return a->buffer < b->buffer ? -1 : 1;
  return a->stream < b->stream ? -1 : a->stream > b->stream;
}

void verify_plan(verification *v, const plan *p, const plan *before, arena *a)
{
  *v = (verification){ .plan = p, .order = plan_order_new(p, a) };
  for (uint32_t r = 0; r < p->rank_count; r++) {
    find_buffer_races(v, r, before, a);
    find_event_faults(v, r, a);
    find_leaks(v, r, a);
  }
  if (v->findings.count > 0)
    qsort(v->findings.items, v->findings.count, sizeof *v->findings.items, by_place);
  for (uint32_t i = 0; i < v->findings.count; i++)
    v->counts[finding_severity_of((finding_kind)v->findings.items[i].kind)]++;
  v->safe = v->counts[SEVERITY_ERROR] == 0;
}

void verification_release(verification *v)
{
  ARRAY_FREE(&v->findings);
}
