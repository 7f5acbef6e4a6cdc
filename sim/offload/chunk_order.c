#include "sim/offload/chunk_order.h"

#include <assert.h>

typedef struct backward_builder {
  uint32_t chunk_count;
  uint32_t **staged; /* by chunk: positions that are staged */
  uint32_t *staged_count;
  uint32_t *backward;
  uint32_t backward_count, forwards;
  const char *defect;
} backward_builder;

static void expect(backward_builder *b, uint32_t position)
{
  assert(position < b->forwards);
  assert(b->backward_count < b->forwards);
  b->backward[b->backward_count++] = position;
}

/* All staged positions become expected, if the first and last stage have had equally many. */
static void flush(backward_builder *b)
{
  uint32_t last = b->chunk_count - 1;

  assert(b->chunk_count > 0);
  if (b->staged_count[0] != b->staged_count[last]) return;
  for (uint32_t c = 0; c < b->chunk_count; c++)
    if (b->staged_count[c] != b->staged_count[0])
      b->defect = "All stages must have same chunk count";
  b->staged_count[last] = 0; /* these were expected at once */
  for (uint32_t c = b->chunk_count; c-- > 0;) {
    for (uint32_t i = 0; i < b->staged_count[c]; i++)
      expect(b, b->staged[c][i]);
    b->staged_count[c] = 0;
  }
}

static void forward_begins(backward_builder *b, uint32_t position, uint32_t chunk)
{
  bool last_stage = chunk == b->chunk_count - 1;

  if (last_stage) flush(b);
  assert(b->staged_count[chunk] < b->forwards / b->chunk_count);
  b->staged[chunk][b->staged_count[chunk]++] = position;
  if (last_stage) {
    expect(b, position);
    flush(b);
  }
}

static uint32_t count_forwards(const schedule *s)
{
  assert(s->count > 0);
  uint32_t forwards = 0;

  for (uint32_t i = 0; i < s->count; i++)
    forwards += s->steps[i].kind == STEP_FORWARD;
  return forwards;
}

static backward_builder new_builder(uint32_t chunk_count, uint32_t forwards, arena *a)
{
  assert(forwards % chunk_count == 0 && "each micro-batch runs every chunk");
  backward_builder b = { .chunk_count = chunk_count,
                         .forwards = forwards,
                         .staged = ARENA_ARRAY(a, uint32_t *, chunk_count),
                         .staged_count = ARENA_ARRAY(a, uint32_t, chunk_count),
                         .backward = ARENA_ARRAY(a, uint32_t, forwards) };

  for (uint32_t c = 0; c < chunk_count; c++)
    b.staged[c] = ARENA_ARRAY(a, uint32_t, forwards / chunk_count);
  return b;
}

chunk_order chunk_order_new(const schedule *s, uint32_t chunk_count, arena *a)
{
  uint32_t forwards = count_forwards(s), done = 0;
  instance_id *forward = ARENA_ARRAY(a, instance_id, forwards);
  uint32_t *position = ARENA_ARRAY(a, uint32_t, forwards);
  uint32_t *known = ARENA_ARRAY(a, uint32_t, forwards + 1);
  backward_builder b = new_builder(chunk_count, forwards, a);

  for (uint32_t i = 0; i < s->count; i++) {
    const schedule_step *step = &s->steps[i];
    if (step->kind != STEP_FORWARD) continue;
    instance_id instance = step->microbatch * chunk_count + step->chunk;
    assert(step->chunk < chunk_count && instance < forwards);
    forward[done] = instance;
    position[instance] = done;
    forward_begins(&b, done, step->chunk);
    known[++done] = b.backward_count;
  }
  assert(done == forwards);
  if (b.backward_count != forwards && b.defect == NULL)
    b.defect = "Cached chunks forward and backward must have the same length";
  return (chunk_order){ .count = forwards,
                        .chunk_count = chunk_count,
                        .forward = forward,
                        .position = position,
                        .backward = b.backward,
                        .backward_count = b.backward_count,
                        .known = known,
                        .defect = b.defect };
}
