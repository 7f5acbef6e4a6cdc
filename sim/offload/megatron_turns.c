/* Turns of the schedule in which Megatron-LM's offload manager does the same (turn_state.h). */
#include <string.h>

#include "sim/offload/megatron_manager.h"
#include "sim/offload/turn_state.h"

static void visit_list(turn_state *t, group_list *l)
{
  assert(l->count <= l->room);
  turn_plain(t, &l->count, sizeof l->count);
  turn_plain(t, l->groups, l->count * sizeof *l->groups);
}

static void visit_position(manager *m, turn_state *t, uint32_t position)
{
  handler *h = &m->handlers[position];
  uint32_t first = m->kept.base[position], count = m->kept.base[position + 1] - first;
  assert(count == groups_at(m, position)->count + 1);
  turn_plain(t, &h->started, sizeof h->started);
  visit_list(t, &h->pending);
  visit_list(t, &h->stack);
  visit_list(t, &h->coming);
  turn_plain(t, m->unmanaged + first, count * sizeof *m->unmanaged);
  turn_plain(t, m->left + first, count * sizeof *m->left);
  turn_plain(t, m->awaited + first, count * sizeof *m->awaited);
  turn_plain(t, m->back + first, count * sizeof *m->back);
  turn_plain(t, m->states + first, count * sizeof *m->states);
  turn_events(t, m->offloaded + first, count);
  turn_events(t, m->reloaded + first, count);
  if (m->max_inflight == UNSET) return;
  turn_plain(t, h->name_count, m->table.name_count * sizeof *h->name_count);
  turn_events(t, m->inflight + first, count);
}

/* Without groups no marker advances the order of backwards. */
static bool has_groups(const manager *m)
{
  assert(m->table.name_count > 0 && "name 0 is none");
  return m->table.name_count > 1;
}

void manager_visit(void *state, turn_state *t)
{
  manager *m = state;
  graph_replay_visit(&m->replay, t);
  if (!has_groups(m)) return;
  turn_shifted(t, &m->backward_next);
  turn_shifted(t, &m->backward_current);
  turn_shifted(t, &m->newest_forward);
  if (m->iteration == ITERATION_WARMUP) turn_shifted(t, &m->backward_known);
  turn_plain(t, &m->past_last_handler, sizeof m->past_last_handler);
  turn_plain(t, &m->back_now, sizeof m->back_now);
  turn_plain(t, &m->back_most, sizeof m->back_most);
  turn_tallies(t, &m->unmanaged_groups, 1);
  turn_tallies(t, &m->unordered_reloads, 1);
  turn_tallies(t, &m->late_groups, 1);
  turn_tallies(t, &m->early_entries, 1);
  turn_tallies(t, &m->groups_behind_kept, 1);
  for (uint32_t k = 0; k < t->in_flight_count; k++)
    visit_position(m, t, m->order.position[t->in_flight[k]]);
}

/* The rules keep the same groups of both chunks. */
static bool keeps_alike(const manager *m, uint32_t position, uint32_t before)
{
  uint32_t a = m->kept.base[position], b = m->kept.base[before];
  uint32_t count = m->kept.base[position + 1] - a;
  return count == m->kept.base[before + 1] - b &&
         memcmp(m->kept.keep + a, m->kept.keep + b, count * sizeof *m->kept.keep) == 0 &&
         memcmp(m->kept.margin + a, m->kept.margin + b, count * sizeof *m->kept.margin) == 0;
}

/* Whether the chunk `chunks` places earlier in the order of backwards is the one in its place a
 * turn earlier. */
static bool comes_back_alike(const manager *m, uint32_t place, uint32_t chunks)
{
  assert(place >= chunks);
  if (place >= m->order.backward_count) return false;
  uint32_t now = m->order.backward[place], before = m->order.backward[place - chunks];
  return now - before == chunks && keeps_alike(m, now, before);
}

static bool next_alike(const manager *m, uint32_t place, uint32_t chunks)
{
  assert(place >= chunks);
  for (name_id n = 0; n < m->table.name_count; n++) {
    uint32_t now = m->next_with[n][place], before = m->next_with[n][place - chunks];
    if (now - before != chunks || !comes_back_alike(m, now, chunks)) return false;
  }
  return true;
}

static bool forward_alike(const manager *m, uint32_t position, uint32_t chunks)
{
  assert(position >= chunks);
  const chunk_order *o = &m->order;
  return position < o->count && o->forward[position] - o->forward[position - chunks] == chunks &&
         o->known[position + 1] - o->known[position + 1 - chunks] == chunks &&
         keeps_alike(m, position, position - chunks);
}

static bool turn_alike(const manager *m, uint32_t position, uint32_t place, uint32_t chunks)
{
  for (uint32_t k = 0; k < chunks; k++)
    if (!forward_alike(m, position + k, chunks) || !comes_back_alike(m, place + k, chunks))
      return false;
  for (uint32_t k = 0; k <= chunks; k++)
    if (place + k > m->order.backward_count || !next_alike(m, place + k, chunks)) return false;
  return true;
}

uint32_t manager_turns_alike(const void *state, instance_id first, uint32_t chunks, uint32_t most)
{
  const manager *m = state;
  uint32_t position = m->order.position[first], place = m->backward_next, alike = 0;
  assert(chunks > 0 && position >= chunks);
  if (!has_groups(m)) return most;
  if (stopped(m) || place < chunks) return 0;
  while (alike < most && turn_alike(m, position, place, chunks)) {
    position += chunks;
    place += chunks;
    alike++;
  }
  return alike;
}
