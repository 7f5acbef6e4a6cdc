#include "traces/align.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/text.h"

trace_slice trace_slice_of(const trace *t, uint32_t rank, uint32_t ranks)
{
  assert(rank < ranks);
  uint32_t own = t->header.ranks, low = 0, high = t->ops.count;
  bool of_stages = strcmp(t->header.source, "sim") == 0 && own < ranks && ranks % own == 0;
  if (of_stages) rank /= ranks / own;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (t->ops.items[middle].rank < rank)
      low = middle + 1;
    else
      high = middle;
  }
  trace_slice s = { t, low, 0 };
  while (low + s.count < t->ops.count && t->ops.items[low + s.count].rank == rank)
    s.count++;
  return s;
}

/* Texts are compared as addresses, because both traces share them; places are compared as bytes. */
typedef struct place {
  const char *kind, *call, *module, *phase;
  uint32_t step, microbatch, chunk, layer;
  const char *outputs[TRACE_OUTPUTS]; /* only the first ones are set */
} place;

/* The ops of both traces at one place, in order. */
typedef struct place_ops {
  uint32_t first[2], last[2], count[2];
} place_ops;

typedef struct aligner {
  intern_table places;
  place_ops *ops_at; /* by number of the place */
  uint32_t *next[2]; /* by op: the next one at its place */
} aligner;

/* Copies have no counterpart. */
static bool is_aligned(const trace_op *o)
{
  static const char *const kinds[] = { "kernel", "collective", "send", "recv", NULL };
  return is_one_of(o->kind, kinds);
}

static uint32_t place_of(aligner *x, const trace *t, const trace_op *o, uint32_t first_step)
{
  place p;
  memset(&p, 0, offsetof(place, outputs));
  p.kind = o->kind;
  p.call = o->call;
  p.module = o->module;
  p.phase = o->phase;
  p.step = o->step - first_step;
  p.microbatch = o->microbatch;
  p.chunk = o->chunk;
  p.layer = (uint32_t)o->layer;
  for (uint32_t i = 0; i < o->output_count; i++)
    p.outputs[i] = t->outputs.items[o->first_output + i].buffer;
  return intern(&x->places, &p, offsetof(place, outputs) + o->output_count * sizeof *p.outputs);
}

static void collect(aligner *x, int side, const trace_slice *s)
{
  for (uint32_t i = 0; i < s->count; i++) {
    const trace_op *o = &s->trace->ops.items[s->first + i];
    x->next[side][i] = ALIGN_NONE;
    if (!is_aligned(o)) continue;
    place_ops *m = &x->ops_at[place_of(x, s->trace, o, s->trace->ops.items[s->first].step)];
    if (m->count[side]++ == 0)
      m->first[side] = i;
    else
      x->next[side][m->last[side]] = i;
    m->last[side] = i;
  }
}

static void pair_up(const aligner *x, const place_ops *m, uint32_t *partners)
{
  uint32_t a = m->first[0], b = m->first[1];
  if (m->count[0] != m->count[1]) return;
  for (uint32_t i = 0; i < m->count[0]; i++, a = x->next[0][a], b = x->next[1][b]) {
    assert(partners[a] == ALIGN_NONE);
    partners[a] = b;
  }
}

uint32_t *align_ops(const trace_slice *a, const trace_slice *b, arena *memory)
{
  uint32_t *partners = ARENA_ARRAY(memory, uint32_t, a->count);
  arena scratch = { 0 };
  aligner x = { .places = { .memory = &scratch },
                .ops_at = ARENA_ARRAY(&scratch, place_ops, (size_t)a->count + b->count),
                .next = { ARENA_ARRAY(&scratch, uint32_t, a->count),
                          ARENA_ARRAY(&scratch, uint32_t, b->count) } };
  collect(&x, 0, a);
  collect(&x, 1, b);
  for (uint32_t i = 0; i < a->count; i++)
    partners[i] = ALIGN_NONE;
  for (uint32_t i = 0; i < x.places.count; i++)
    pair_up(&x, &x.ops_at[i], partners);
  arena_release(&scratch);
  return partners;
}
