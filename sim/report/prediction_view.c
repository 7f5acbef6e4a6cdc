#include "sim/report/prediction_view.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"

view view_new(const prediction *p, FILE *out, arena *a)
{
  view v = { .p = p, .out = out, .memory = a };
  int64_t largest = 0;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    largest = max_i64(largest, p->baseline.ranks[i].allocated_peak_bytes);
    v.offloads |= p->result.ranks[i].d2h_bytes > 0 || p->warmup.ranks[i].d2h_bytes > 0 ||
                  p->result.ranks[i].theoretical_saving_bytes != 0;
  }
  v.bytes = unit_of_bytes(largest);
  v.time = unit_of_time(p->result.step_ps);
  return v;
}

int64_t rank_value(const rank_prediction *r, size_t member)
{
  int64_t value;
  assert(member + sizeof value <= sizeof *r);
  memcpy(&value, (const char *)r + member, sizeof value);
  return value;
}

uint32_t rank_with_most(const prediction *p, size_t member)
{
  uint32_t most = 0;
  for (uint32_t i = 1; i < p->rank_count; i++)
    if (rank_value(&p->result.ranks[i], member) > rank_value(&p->result.ranks[most], member))
      most = i;
  return most;
}

const char *view_bytes(const view *v, int64_t bytes)
{
  return figure_with_unit(v->memory, bytes, v->bytes);
}
