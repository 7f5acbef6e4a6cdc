#include "sim/compile/turns.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/leftovers.h"
#include "sim/compile/renamed_turns.h"

/* A rank whose first turns do not repeat may never repeat. */
enum { MOST_WALKED = 8, FEWEST_LEFT = 3 };

/* ---- which steps repeat -------------------------------------------------------------------------- */

static bool is_exchange(const schedule_step *s)
{
  assert(s->kind <= STEP_FINISH);
  return s->kind >= STEP_SEND_FORWARD && s->kind <= STEP_RECV_BACKWARD;
}

/* The step is the one a turn earlier, of later micro-batches. */
static bool repeats(const schedule_step *now, const turns *t)
{
  const schedule_step *before = now - t->steps;
  if (now->kind != before->kind || now->paired != before->paired || now->chunk != before->chunk)
    return false;
  switch ((step_kind)now->kind) {
  case STEP_SYNCHRONIZE:
  case STEP_LAYERS:
  case STEP_FINISH: return true;
  case STEP_WAIT: return now->target - before->target == t->steps;
  case STEP_SEND_FORWARD:
  case STEP_RECV_FORWARD:
  case STEP_SEND_BACKWARD:
  case STEP_RECV_BACKWARD:
    if (now->batch - before->batch != t->batches) return false;
    break;
  case STEP_FORWARD:
  case STEP_BACKWARD:
  case STEP_RELEASE_OUTPUT: break;
  }
  return now->microbatch - before->microbatch == t->microbatches;
}

static uint32_t batches_of_turn(const schedule_step *steps, uint32_t first, uint32_t count)
{
  uint32_t at = first;
  while (at < first + count && !is_exchange(&steps[at]))
    at++;
  return at == first + count || !is_exchange(&steps[at + count])
             ? 0
             : steps[at + count].batch - steps[at].batch;
}

/* The turns around `middle`, if the turn that begins there ends where `next` begins. */
static turns turns_around(const schedule *s, uint32_t middle, uint32_t next)
{
  const schedule_step *steps = s->steps;
  uint32_t first = middle, end = next;
  turns t = { .steps = next - middle,
              .microbatches = steps[next].microbatch - steps[middle].microbatch };
  if (t.steps <= s->count - next) t.batches = batches_of_turn(steps, middle, t.steps);
  while (end < s->count && repeats(&steps[end], &t))
    end++;
  while (first > 0 && first - 1 + t.steps < end && repeats(&steps[first - 1 + t.steps], &t))
    first--;
  t.first = middle - (middle - first) / t.steps * t.steps;
  t.last = t.first + (end - 1 - t.first) / t.steps * t.steps;
  return t;
}

static bool may_begin_next(const schedule_step *now, const schedule_step *middle)
{
  return now->kind == STEP_FORWARD && now->chunk == middle->chunk &&
         now->microbatch > middle->microbatch;
}

/* The steps that repeat longest around the forward in the middle; those of more than half of the schedule
 * are not looked for twice. */
static turns longest_turns(const schedule *s)
{
  turns best = { 0 };
  uint32_t middle = s->count / 2;
  while (middle < s->count && s->steps[middle].kind != STEP_FORWARD)
    middle++;
  for (uint32_t next = middle + 1; next < s->count; next++) {
    if (!may_begin_next(&s->steps[next], &s->steps[middle])) continue;
    turns t = turns_around(s, middle, next);
    if (t.last - t.first > best.last - best.first) best = t;
    if (best.last - best.first > s->count / 2) break;
  }
  return best;
}

/* Whether turns_visit knows all that a turn may read. */
static bool is_known(const walk *w)
{
  bool without_state = w->policy->begin == NULL;
  return !uses_hf(w->settings) && w->fsdp == NULL && w->buckets == NULL && w->weights == NULL &&
         w->beside == NULL && (without_state || w->policy->turn_visit != NULL);
}

turns turns_of(const walk *w)
{
  assert(w->schedule.count > 0 && !w->forward_seen);
  if (!is_known(w) || w->every_turn) return (turns){ 0 };
  return longest_turns(&w->schedule);
}

static void turn_begin_release(turn_begin *b)
{
  turn_state_release(&b->state);
  ARRAY_FREE(&b->references);
}

void turns_release(turns *t)
{
  turn_begin_release(&t->now);
  turn_begin_release(&t->before);
  t->steps = 0;
}

/* ---- the walk's state ---------------------------------------------------------------------------- */

static void visit_held(turn_state *t, held_buffers *held)
{
  assert(held->count <= HELD_BUFFERS);
  turn_plain(t, &held->count, sizeof held->count);
  turn_buffers(t, held->items, held->count);
}

/* Hooks compare these with chunks in flight alone. */
static void visit_instance(const walk *w, turn_state *t, instance_id *i)
{
  bool is_in_flight = w->instances[*i] != NULL;
  turn_plain(t, &is_in_flight, sizeof is_in_flight);
  if (is_in_flight) turn_shifted(t, i);
}

static void visit_frames(walk *w, turn_state *t)
{
  visit_held(t, &w->held_by_popped);
  visit_held(t, &w->held_gradient);
  visit_held(t, &w->held_to_end);
  visit_instance(w, t, &w->first_steady);
  turn_plain(t, &w->batches.count, sizeof w->batches.count);
  turn_buffers(t, w->batches.items, w->batches.count);
  turn_plain(t, &w->stashed.count, sizeof w->stashed.count);
  for (uint32_t k = 0; k < leftovers_layers(w); k++) {
    visit_instance(w, t, &w->left[k].newest);
    visit_held(t, &w->left[k].buffers);
  }
  for (uint32_t c = 0; w->attributes != NULL && c < w->chunk_count; c++) {
    turn_plain(t, &w->attributes[c].count, sizeof w->attributes[c].count);
    turn_buffers(t, w->attributes[c].items, w->attributes[c].count);
  }
}

/* A backward sets `unpacked` before it reads it, and a pair what its parts have done. */
static void visit_chunk(walk *w, turn_state *t, instance_id i)
{
  instance *in = walk_instance(w, i);
  const chunk_program *p = walk_program(w, i);
  turn_shifted(t, &i);
  turn_buffers(t, in->buffer_of, p->places.count);
  turn_buffers(t, in->host_of, p->entries.count);
  turn_buffers(t, in->file_of, p->entries.count);
  turn_plain(t, in->packed_alone, p->entries.count * sizeof *in->packed_alone);
  turn_plain(t, in->alone, p->entries.count * sizeof *in->alone);
}

static void visit_of_chunks(walk *w, turn_state *t)
{
  for (uint32_t c = 0; c < w->chunk_count; c++) {
    turn_buffers(t, w->weight_of[c], w->programs[c]->parameters.count);
    turn_buffers(t, w->gradient_of[c], w->programs[c]->parameters.count);
    turn_tallies(t, w->copied_bytes[c], w->programs[c]->groups.count);
  }
  turn_tallies(t, &w->offloaded_groups, 1);
  visit_instance(w, t, &w->last_offloaded);
  turn_plain(t, &w->last_group, sizeof w->last_group);
}

static uint32_t instance_count(const walk *w)
{
  assert(w->settings->derived.num_microbatches > 0);
  return (uint32_t)w->settings->derived.num_microbatches * w->chunk_count;
}

static void find_in_flight(walk *w, turn_state *t)
{
  instance_id *found = ARENA_ARRAY(w->memory, instance_id, instance_count(w));
  t->in_flight = found;
  t->in_flight_count = 0;
  for (instance_id i = 0; i < instance_count(w); i++)
    if (w->instances[i] != NULL) found[t->in_flight_count++] = i;
  assert(t->in_flight_count <= instance_count(w));
}

/* What the walk of a turn may read, except of exchanges. No pair is open when a turn begins. */
static void visit(walk *w, turn_state *t)
{
  assert(w->stream == STREAM_COMPUTE && !w->exchanges_of_pair && !w->stashing);
  find_in_flight(w, t);
  visit_frames(w, t);
  for (uint32_t k = 0; k < t->in_flight_count; k++)
    visit_chunk(w, t, t->in_flight[k]);
  visit_of_chunks(w, t);
  if (w->policy->turn_visit != NULL) w->policy->turn_visit(w->state, t);
}

static void save_posted(walk *w, const turns *t, uint32_t step, turn_state *to)
{
  const schedule_step *steps = w->schedule.steps;
  for (uint32_t i = step; i < step + t->steps; i++)
    if (steps[i].kind == STEP_WAIT && steps[i].target < step)
      turn_events(to, &w->posted[steps[i].target], 1);
}

static instance_id instance_of(const walk *w, uint32_t step)
{
  const schedule_step *s = &w->schedule.steps[step];
  assert(s->kind == STEP_FORWARD && "with which a turn begins");
  return s->microbatch * w->chunk_count + s->chunk;
}

static void save_begin(walk *w, const turns *t, uint32_t step, turn_begin *to)
{
  turn_state_clear(&to->state);
  to->state.first = instance_of(w, step);
  to->plan = (plan_part){ .ops = w->rank->ops.count,
                          .operands = w->rank->operands.count,
                          .buffers = w->rank->buffers.count,
                          .events = w->rank->events,
                          .marks = w->rank->marks.count };
  to->references.count = 0;
  assert(w->references.count == to->plan.buffers && to->plan.buffers > 0);
  memcpy(ARRAY_EXTEND(&to->references, w->references.count), w->references.items,
         w->references.count * sizeof *w->references.items);
  visit(w, &to->state);
  save_posted(w, t, step, &to->state);
}

/* ---- copying ------------------------------------------------------------------------------------- */

/* Chunks in flight are `by` instances later. */
static void shift_instances(walk *w, uint32_t by)
{
  assert(by > 0);
  for (instance_id i = instance_count(w); i-- > 0;) {
    if (w->instances[i] == NULL) continue;
    assert(i + by < instance_count(w) && w->instances[i + by] == NULL);
    w->instances[i + by] = w->instances[i];
    w->instances[i] = NULL;
  }
}

static void shift_posted(walk *w, const turns *t, const renamed_turns *r, uint32_t step)
{
  for (uint32_t i = step; i < step + t->steps * r->turns; i++)
    if (is_exchange(&w->schedule.steps[i]))
      w->posted[i] = renamed(&r->events, w->posted[i - t->steps]);
}

/* How many turns from the one that begins with `step` on the policy decides alike in advance. */
static uint32_t turns_alike(const walk *w, const turns *t, uint32_t step)
{
  uint32_t all = (t->last - step) / t->steps;
  assert(step <= t->last);
  if (w->policy->turns_alike == NULL) return all;
  return w->policy->turns_alike(w->state, instance_of(w, step), t->microbatches * w->chunk_count,
                                all);
}

static void go_on_from(walk *w, uint32_t step, turn_state *state)
{
  shift_instances(w, instance_of(w, step) - state->first);
  state->first = instance_of(w, step);
  state->puts_back = true;
  visit(w, state);
  w->mark = w->rank->marks.count - 1;
  assert(w->references.count == w->rank->buffers.count);
}

/* Returns the step that follows. */
static uint32_t copy(walk *w, turns *t, renamed_turns *r, uint32_t step)
{
  r->messages = w->plan->messages.count > 0 ? 2 * t->microbatches : 0; /* one of each direction */
  r->microbatches = t->microbatches;
  turns_write(r, w, &t->before, &t->now);
  shift_posted(w, t, r, step);
  step += r->turns * t->steps;
  t->copied += r->turns;
  go_on_from(w, step, &t->now.state);
  return step;
}

static bool begins_turn(const walk *w, const turns *t, uint32_t step)
{
  if (t->steps == 0 || step < t->first || step + FEWEST_LEFT * t->steps > t->last) return false;
  return (step - t->first) % t->steps == 0 && w->backward_seen && w->deferred.count == 0;
}

uint32_t turns_copy(walk *w, turns *t, uint32_t step)
{
  if (!begins_turn(w, t, step)) return step;
  turn_begin newer = t->before;
  t->before = t->now;
  save_begin(w, t, step, &newer);
  t->now = newer;
  bool has_before = t->walked++ > 0;
  uint32_t goes_to = step;
  renamed_turns r;
  if (has_before && turns_are_renamed(&r, w, &t->before, &t->now)) {
    r.turns = turns_alike(w, t, step);
    if (r.turns > 0) goes_to = copy(w, t, &r, step);
    renamed_turns_release(&r);
  }
  if (goes_to > step) t->walked = 0;
  if (t->walked == MOST_WALKED) turns_release(t);
  return goes_to;
}
