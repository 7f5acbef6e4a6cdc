#include "sim/verify/gap.h"

#include <assert.h>

const op_gap *no_gaps(const plan *p, arena *a)
{
  op_gap *gaps = ARENA_ARRAY(a, op_gap, p->rank_count);
  for (uint32_t r = 0; r < p->rank_count; r++)
    gaps[r].begin = gaps[r].end = p->ranks[r].ops.count;
  return gaps;
}

op_gap gap_of_turns(const rank_plan *r, uint32_t begin, uint32_t turns)
{
  const plan_repeat *repeat = &r->repeat;
  uint32_t end = begin + turns * repeat->ops;
  assert(begin > 0 && turns > 0 && end <= repeat_end(repeat));
  op_gap g = { .begin = begin,
               .end = end,
               .buffers = { .earlier = repeat->earlier_buffers.items,
                            .turns = turns,
                            .first = buffers_before(r, repeat->first),
                            .growth = repeat->buffers,
                            .before = buffers_before(r, begin),
                            .after = buffers_before(r, end) },
               .events = { .earlier = repeat->earlier_events.items,
                           .turns = turns,
                           .first = events_before(r, repeat->first),
                           .growth = repeat->events,
                           .before = events_before(r, begin),
                           .after = events_before(r, end) } };
  assert(g.buffers.after - g.buffers.before == turns * repeat->buffers);
  assert(g.events.after - g.events.before == turns * repeat->events);
  return g;
}

uint32_t gap_earlier_name(const gap_ids *ids, uint32_t id)
{
  assert(id < ids->after);
  uint32_t left = ids->turns, name = id;
  if (name >= ids->first && ids->growth > 0) {
    uint32_t turn = (name - ids->first) / ids->growth, back = turn < left ? turn : left;
    name -= back * ids->growth;
    left -= back;
  }
  for (; left > 0 && ids->earlier[name] != name; left--) {
    if (ids->earlier[name] == NO_ID) return name == id && id < ids->before ? id : NO_ID;
    name = ids->earlier[name];
  }
  return name < ids->before ? name : NO_ID;
}
