#include "sim/compile/combined.h"

#include <assert.h>

/* ---- one part ------------------------------------------------------------------------------- */

static const program_part_array *parts_of(const walk *w, const part_cursor *c)
{
  const chunk_program *p = walk_program(w, c->instance);
  assert(c->direction == MARK_FORWARD || c->direction == MARK_BACKWARD);
  return c->direction == MARK_FORWARD ? &p->forward_parts : &p->backward_parts;
}

/* NULL: no part is left. */
static const program_part *next_part(const walk *w, const part_cursor *c)
{
  const program_part_array *parts = parts_of(w, c);
  assert(c->next <= parts->count);
  return c->next < parts->count ? &parts->items[c->next] : NULL;
}

static void wait_for_part_before(walk *w, const instance *in, plan_stream stream)
{
  assert(in->part_done < w->rank->events && stream < STREAM_HOST);
  if (in->part_stream != stream) act_wait(w, stream, in->part_done);
}

static void run_part(walk *w, part_cursor *c)
{
  const chunk_program *p = walk_program(w, c->instance);
  const program_part *part = next_part(w, c);
  instance *in = walk_instance(w, c->instance);
  assert(part->first <= part->end && w->stream == STREAM_COMPUTE && "one part runs at a time");
  walk_mark(w, c->direction, c->instance);
  if (!part->weight_gradients) wait_for_part_before(w, in, (plan_stream)part->stream);
  w->stream = (plan_stream)part->stream;
  walk_run(w, c->instance, c->direction == MARK_FORWARD ? &p->forward : &p->backward, part->first,
           part->end);
  w->stream = STREAM_COMPUTE;
  c->next++;
  if (part->weight_gradients) return;
  in->part_stream = (plan_stream)part->stream;
  in->part_done = act_record(w, in->part_stream);
}

/* The first part may need what the current stream has waited for so far, including the exchange's
 * messages (model_chunk_schedule_plan.py, run: record_current_stream). */
static part_cursor cursor_new(walk *w, instance_id i, mark_kind direction)
{
  assert(w->stream == STREAM_COMPUTE && "no part runs");
  instance *in = walk_instance(w, i);
  in->part_stream = STREAM_COMPUTE;
  in->part_done = act_record(w, STREAM_COMPUTE);
  return (part_cursor){ .instance = i, .direction = direction };
}

static void run_rest(walk *w, part_cursor *c)
{
  assert(w->stream == STREAM_COMPUTE && c->next <= parts_of(w, c)->count);
  while (next_part(w, c) != NULL)
    run_part(w, c);
  wait_for_part_before(w, walk_instance(w, c->instance), STREAM_COMPUTE);
}

void combined_run(walk *w, instance_id i, mark_kind direction)
{
  assert(w->ahead.next == 0 || !w->exchanges_of_pair);
  part_cursor c = cursor_new(w, i, direction);
  run_rest(w, &c);
}

/* ---- a layer of each ------------------------------------------------------------------------ */

static bool is_of_layer(part_kind kind)
{
  return kind != PART_PREPROCESS && kind != PART_POSTPROCESS;
}

/* The last layer's backward ends with weight gradients, which wait for the exchanges. */
static bool ends_the_layers(const walk *w, const part_cursor *c)
{
  const program_part_array *parts = parts_of(w, c);
  assert(c->next < parts->count);
  return parts->items[c->next].weight_gradients &&
         (c->next + 1 == parts->count || !is_of_layer((part_kind)parts->items[c->next + 1].kind));
}

static bool has_layer(const walk *w, const part_cursor *c)
{
  const program_part *part = next_part(w, c);
  return part != NULL && is_of_layer((part_kind)part->kind) && !ends_the_layers(w, c);
}

/* The order of the parts of a forward layer and a backward layer. A layer skips the parts that it
 * does not have. */
typedef struct turn {
  mark_kind direction;
  part_kind kind;
  bool weight_gradients;
  bool early; /* only with ep_overlap_early_attn_memory_release */
} turn;

static const turn turns[] = {
  { MARK_BACKWARD, PART_MTP_POST, false, false },
  { MARK_BACKWARD, PART_COMBINE, false, false },
  { MARK_FORWARD, PART_PRE_DISPATCH, false, false },
  { MARK_FORWARD, PART_POST_ATTENTION, false, false },
  { MARK_BACKWARD, PART_MLP, false, false },
  { MARK_FORWARD, PART_DISPATCH, false, false },
  { MARK_BACKWARD, PART_MLP, true, false },
  { MARK_BACKWARD, PART_DISPATCH, false, false },
  { MARK_BACKWARD, PART_PRE_DISPATCH, false, true },
  { MARK_FORWARD, PART_MLP, false, false },
  { MARK_FORWARD, PART_COMBINE, false, false },
  { MARK_BACKWARD, PART_POST_ATTENTION, false, false },
  { MARK_BACKWARD, PART_PRE_DISPATCH, false, false },
  { MARK_FORWARD, PART_MTP_POST, false, false },
  { MARK_BACKWARD, PART_PRE_DISPATCH, true, false },
};

static void take_turn(walk *w, part_cursor *c, const turn *t)
{
  assert(c->direction == t->direction);
  if (!has_layer(w, c)) return;
  if (t->early && !w->settings->parallel.ep_overlap_early_attn_memory_release) return;
  const program_part *part = next_part(w, c);
  if (part->kind == t->kind && part->weight_gradients == t->weight_gradients) run_part(w, c);
}

static void run_layers(walk *w, bool forward, bool backward)
{
  uint32_t ahead = w->ahead.next, back = w->back.next;
  for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
    if (turns[i].direction == MARK_FORWARD && forward) take_turn(w, &w->ahead, &turns[i]);
    if (turns[i].direction == MARK_BACKWARD && backward) take_turn(w, &w->back, &turns[i]);
  }
  assert((!forward || w->ahead.next > ahead || !has_layer(w, &w->ahead)) &&
         (!backward || w->back.next > back || !has_layer(w, &w->back)) && "every part has a turn");
}

void combined_layers(walk *w)
{
  assert(w->ahead.direction == MARK_FORWARD && w->back.direction == MARK_BACKWARD);
  while (has_layer(w, &w->ahead) && has_layer(w, &w->back))
    run_layers(w, true, true);
  while (has_layer(w, &w->back))
    run_layers(w, false, true);
  while (has_layer(w, &w->ahead))
    run_layers(w, true, false);
  wait_for_part_before(w, walk_instance(w, w->ahead.instance), STREAM_A2A);
  wait_for_part_before(w, walk_instance(w, w->back.instance), STREAM_COMPUTE);
  w->exchanges_of_pair = true;
}

/* ---- a chunk of each ------------------------------------------------------------------------ */

static void run_while(walk *w, part_cursor *c, part_kind kind)
{
  while (next_part(w, c) != NULL && next_part(w, c)->kind == kind)
    run_part(w, c);
}

void combined_begin_forward(walk *w, instance_id i)
{
  assert(!w->exchanges_of_pair && "the last pair is finished");
  w->ahead = cursor_new(w, i, MARK_FORWARD);
  run_while(w, &w->ahead, PART_PREPROCESS);
}

void combined_begin_backward(walk *w, instance_id i)
{
  assert(!w->exchanges_of_pair && w->ahead.direction == MARK_FORWARD);
  w->back = cursor_new(w, i, MARK_BACKWARD);
  run_while(w, &w->back, PART_POSTPROCESS);
}

void combined_finish(walk *w)
{
  assert(w->exchanges_of_pair && "the pair's layers are done");
  w->exchanges_of_pair = false;
  run_while(w, &w->back, PART_PRE_DISPATCH);
  run_rest(w, &w->ahead);
  run_rest(w, &w->back);
}
