#include "sim/offload/stash_arenas.h"

#include "sim/base/units.h"
#include "sim/config/expert_rows.h"

stash_arena *stash_arena_of(const stash_arenas *s, const saved_entry *e)
{
  for (uint32_t k = 0; k < s->count; k++)
    if (s->items[k].element_bytes == e->element_bytes && s->items[k].entry_bytes == e->bytes)
      return &s->items[k];
  return NULL;
}

/* Counts a chunk's tensors in or out. */
static void count_chunk(stash_arenas *s, const chunk_shape *c, int32_t step, int32_t *live)
{
  for (uint32_t i = 1; i < c->entry_count; i++) {
    const saved_entry *e = &c->entries[i];
    if (e->group == 0 || !stash_takes(e)) continue;
    stash_arena *of = stash_arena_of(s, e);
    int32_t *count = &live[of - s->items];
    *count += step;
    if (*count > (int32_t)of->most) of->most = (uint32_t)*count;
  }
}

static void make_arenas(stash_arenas *s, const rank_shape *r)
{
  for (uint32_t c = 0; c < r->chunk_count; c++)
    for (uint32_t i = 1; i < r->chunks[c].entry_count; i++) {
      const saved_entry *e = &r->chunks[c].entries[i];
      if (e->group != 0 && stash_takes(e) && stash_arena_of(s, e) == NULL)
        s->items[s->count++] =
            (stash_arena){ .element_bytes = e->element_bytes, .entry_bytes = e->bytes };
    }
}

/* A positive factor is over a balanced load, a negative one over the real load. */
static int64_t pages_of(const stash_arenas *s, const stash_arena *of, double factor, int64_t mean)
{
  int64_t rows = of->most * (factor >= 0 ? mean : s->arriving);
  double scaled = (double)rows * (factor >= 0 ? factor : -factor);

  return ceil_div((int64_t)scaled, s->page_rows);
}

stash_arenas stash_arenas_new(const rank_shape *r, arena *a)
{
  const struct offload_settings *o = &r->settings->offload;
  static_rows rows = static_expert_rows(r->settings);
  stash_arenas s = { .page_rows = o->moe_paged_stash_page_size,
                     .capacity = rows.capacity,
                     .arriving = rows.arriving };
  uint32_t entries = 0;

  for (uint32_t c = 0; c < r->chunk_count; c++)
    entries += r->chunks[c].entry_count;
  s.items = ARENA_ARRAY(a, stash_arena, entries + 1);
  make_arenas(&s, r);
  int32_t *live = ARENA_ARRAY(a, int32_t, s.count + 1);
  for (uint32_t i = 0; i < r->schedule->count; i++) {
    const schedule_step *step = &r->schedule->steps[i];
    if (step->kind == STEP_FORWARD) count_chunk(&s, &r->chunks[step->chunk], 1, live);
    if (step->kind == STEP_BACKWARD) count_chunk(&s, &r->chunks[step->chunk], -1, live);
  }
  for (uint32_t k = 0; k < s.count; k++) {
    stash_arena *of = &s.items[k];
    of->device_pages = pages_of(&s, of, o->moe_paged_stash_buffer_size_factor_cuda, rows.mean);
    of->host_pages = pages_of(&s, of, o->moe_paged_stash_buffer_size_factor_cpu, rows.mean);
  }
  return s;
}

int64_t stash_entry_pages(const stash_arenas *s)
{
  return ceil_div(s->arriving, s->page_rows);
}

int64_t stash_bytes(const stash_arenas *s, const stash_arena *of, int64_t rows)
{
  return of->entry_bytes / s->capacity * rows +
         ceil_div(of->entry_bytes % s->capacity * rows, s->capacity);
}

int64_t stash_device_bytes(const stash_arenas *s)
{
  int64_t bytes = 0;

  for (uint32_t k = 0; k < s->count; k++)
    bytes += stash_bytes(s, &s->items[k], s->items[k].device_pages * s->page_rows);
  return bytes;
}
