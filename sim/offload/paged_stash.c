/*
 * Megatron-LM's paged stash of grouped experts (megatron/core/transformer/moe/paged_stash.py at
 * d98e8a64). With static buffers the experts' saved tensors are as large as a rank's whole
 * capacity; the stash keeps only the rows with a token, in pages of an arena on the device, and
 * frees the padded tensors.
 *
 * The first iteration cuts saved tensors to their rows at once and pads them again when they are
 * needed, all on the compute stream, and records the order of groups. Later iterations work in that
 * order, on a separate stream that compute joins at the next group:
 *
 *   commit            the group is packed, unless its own backward is next; if a backward is next,
 *                     that group is unpacked
 *   start.backward    the group whose backward is next is unpacked
 *   commit.backward   compute waits for it
 */
#include <assert.h>
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/config/expert_rows.h"
#include "sim/offload/actions.h"
#include "sim/offload/systems.h"

/*
 * ---- arenas: one for each type and width of row, sized from what the first iteration keeps
 * (on_save_for_backward and allocate_stash_buffers) ----
 */

typedef struct stash_arena {
  uint8_t element_bytes;
  int64_t entry_bytes; /* of the packed tensors, with their padding */
  uint32_t most;       /* most of them alive at once, in the first iteration */
  int64_t device_pages, host_pages;
  /* of the policy */
  device_buffer memory;
  int64_t free_pages;
  bool *used; /* by slot for a tensor */
} stash_arena;

typedef struct stash_arenas {
  stash_arena *items;
  uint32_t count;
  int64_t page_rows;
  int64_t capacity, arriving; /* rows of a tensor, and rows with a token */
} stash_arenas;

/* Whether a saved tensor is packed: the marked group's saved tensors except weights. */
static bool stash_takes(const saved_entry *e)
{
  return !e->parameter && !e->of_parameter && !e->discarded;
}

static stash_arena *stash_arena_of(const stash_arenas *s, const saved_entry *e)
{
  assert(stash_takes(e) && e->element_bytes > 0);
  for (uint32_t k = 0; k < s->count; k++)
    if (s->items[k].element_bytes == e->element_bytes && s->items[k].entry_bytes == e->bytes)
      return &s->items[k];
  return NULL;
}

/* The most tensors of the arena that are alive at once. `tensors`: room, by chunk. */
static uint32_t most_alive(const stash_arenas *s, const stash_arena *of, const rank_shape *r,
                           int64_t *tensors)
{
  for (uint32_t c = 0; c < r->chunk_count; c++) {
    tensors[c] = 0;
    for (uint32_t i = 1; i < r->chunks[c].entry_count; i++) {
      const saved_entry *e = &r->chunks[c].entries[i];
      tensors[c] += e->group != 0 && stash_takes(e) && stash_arena_of(s, e) == of;
    }
  }
  return (uint32_t)schedule_most_in_flight(r->schedule, tensors);
}

static void make_arenas(stash_arenas *s, const rank_shape *r)
{
  assert(s->count == 0);
  for (uint32_t c = 0; c < r->chunk_count; c++)
    for (uint32_t i = 1; i < r->chunks[c].entry_count; i++) {
      const saved_entry *e = &r->chunks[c].entries[i];
      if (e->group != 0 && stash_takes(e) && stash_arena_of(s, e) == NULL)
        s->items[s->count++] =
            (stash_arena){ .element_bytes = e->element_bytes, .entry_bytes = e->bytes };
    }
}

/* A positive factor multiplies a balanced load, a negative one the real load. */
static int64_t pages_of(const stash_arenas *s, const stash_arena *of, double factor, int64_t mean)
{
  assert(mean >= 0 && s->arriving >= 0 && s->page_rows > 0);
  int64_t rows = of->most * (factor >= 0 ? mean : s->arriving);
  double scaled = (double)rows * (factor >= 0 ? factor : -factor);

  return ceil_div((int64_t)scaled, s->page_rows);
}

static stash_arenas stash_arenas_new(const rank_shape *r, arena *a)
{
  const struct offload_settings *o = &r->settings->offload;
  static_rows rows = static_expert_rows(r->settings);
  stash_arenas s = { .page_rows = o->moe_paged_stash_page_size,
                     .capacity = rows.capacity,
                     .arriving = rows.arriving };
  uint32_t entries = 0;

  assert(rows.arriving <= rows.capacity && s.page_rows > 0);
  for (uint32_t c = 0; c < r->chunk_count; c++)
    entries += r->chunks[c].entry_count;
  s.items = ARENA_ARRAY(a, stash_arena, entries + 1);
  make_arenas(&s, r);
  int64_t *tensors = ARENA_ARRAY(a, int64_t, r->chunk_count);
  for (uint32_t k = 0; k < s.count; k++) {
    stash_arena *of = &s.items[k];
    of->most = most_alive(&s, of, r, tensors);
    of->device_pages = pages_of(&s, of, o->moe_paged_stash_buffer_size_factor_cuda, rows.mean);
    of->host_pages = pages_of(&s, of, o->moe_paged_stash_buffer_size_factor_cpu, rows.mean);
  }
  return s;
}

/* The pages of one tensor. */
static int64_t stash_entry_pages(const stash_arenas *s)
{
  assert(s->arriving <= s->capacity && s->page_rows > 0);
  return ceil_div(s->arriving, s->page_rows);
}

/* ... and the bytes of `rows` of its rows. */
static int64_t stash_bytes(const stash_arenas *s, const stash_arena *of, int64_t rows)
{
  assert(rows >= 0 && s->capacity > 0);
  return of->entry_bytes / s->capacity * rows +
         ceil_div(of->entry_bytes % s->capacity * rows, s->capacity);
}

static int64_t stash_device_bytes(const stash_arenas *s)
{
  int64_t bytes = 0;

  for (uint32_t k = 0; k < s->count; k++)
    bytes += stash_bytes(s, &s->items[k], s->items[k].device_pages * s->page_rows);
  assert(bytes >= 0);
  return bytes;
}

/* ---- the policy ---- */

typedef struct visit {
  instance_id instance;
  uint32_t group;
  bool backward;
} visit;

typedef struct stash {
  const rank_shape *rank;
  iteration_kind iteration;
  diag *diag;
  stash_arenas arenas;
  const visit *visits; /* every group's forward and backward, in order */
  uint32_t visit_count, at;
  visit packing; /* the packing that compute has not joined yet; group 0: none */
  bool fetching;
  bool **packed;    /* by instance and group */
  uint32_t **place; /* by instance and entry: its slot in the arena */
} stash;

/* ---- begin ---- */

static void add_visits(stash *s, visit *visits, const schedule_step *step)
{
  assert(step->chunk < s->rank->chunk_count);
  uint32_t groups = s->rank->chunks[step->chunk].group_count;
  instance_id i = step->microbatch * s->rank->chunk_count + step->chunk;

  if (step->kind == STEP_FORWARD)
    for (uint32_t g = 1; g < groups; g++)
      visits[s->visit_count++] = (visit){ i, g, false };
  if (step->kind == STEP_BACKWARD)
    for (uint32_t g = groups; g-- > 1;)
      visits[s->visit_count++] = (visit){ i, g, true };
}

static void note_order(stash *s, arena *a)
{
  const schedule *order = s->rank->schedule;
  uint32_t room = 0, instances = 0;

  for (uint32_t k = 0; k < order->count; k++)
    if (order->steps[k].kind == STEP_FORWARD || order->steps[k].kind == STEP_BACKWARD) {
      room += s->rank->chunks[order->steps[k].chunk].group_count;
      instances += order->steps[k].kind == STEP_FORWARD;
    }
  visit *visits = ARENA_ARRAY(a, visit, room + 1);
  for (uint32_t k = 0; k < order->count; k++)
    add_visits(s, visits, &order->steps[k]);
  s->visits = visits;
  assert(s->visit_count <= room && s->at == 0);
  s->packed = ARENA_ARRAY(a, bool *, instances);
  s->place = ARENA_ARRAY(a, uint32_t *, instances);
  for (uint32_t i = 0; i < instances; i++) {
    const chunk_shape *c = instance_chunk(s->rank, i);
    s->packed[i] = ARENA_ARRAY(a, bool, c->group_count);
    s->place[i] = ARENA_ARRAY(a, uint32_t, c->entry_count + 1);
  }
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  stash *s = ARENA_NEW(a, stash);

  *s = (stash){ .rank = r, .iteration = iteration, .diag = d, .arenas = stash_arenas_new(r, a) };
  for (uint32_t k = 0; k < s->arenas.count; k++) {
    stash_arena *of = &s->arenas.items[k];
    of->used = ARENA_ARRAY(a, bool, (size_t)(of->device_pages / stash_entry_pages(&s->arenas)) + 1);
  }
  note_order(s, a);
  assert(s->visit_count % 2 == 0 && "each forward has a backward");
  return s;
}

static void lasting_memory(void *state, walk *w)
{
  stash *s = state;
  assert(s->packing.group == 0 && !s->fetching && "nothing moves between iterations");

  for (uint32_t k = 0; k < s->arenas.count; k++) {
    stash_arena *of = &s->arenas.items[k];
    int64_t rows = of->device_pages * s->arenas.page_rows;
    int64_t rows_on_host = of->host_pages * s->arenas.page_rows;
    of->free_pages = of->device_pages;
    of->memory = act_own_memory(w, "paged_stash", stash_bytes(&s->arenas, of, rows), false);
    if (rows_on_host > 0)
      act_own_memory(w, "paged_stash_on_host", stash_bytes(&s->arenas, of, rows_on_host), true);
  }
}

/* ---- packing ---- */

static const saved_entry *taken(const stash *s, instance_id i, uint32_t entry)
{
  const saved_entry *e = instance_entry(s->rank, i, entry);

  return stash_takes(e) ? e : NULL;
}

static int64_t packed_bytes(const stash *s, const saved_entry *e)
{
  assert(stash_takes(e) && stash_arena_of(&s->arenas, e) != NULL);
  return stash_bytes(&s->arenas, stash_arena_of(&s->arenas, e), s->arenas.arriving);
}

static bool has_pages(const stash *s, const stash_arena *of)
{
  assert(of->free_pages >= 0);
  const char *factor = "moe_paged_stash_buffer_size_factor_cuda";
  int64_t needed = stash_entry_pages(&s->arenas);

  if (of->free_pages >= needed) return true;
  diag_error(s->diag, s->rank->settings->at[KEY_offload_moe_paged_stash_buffer_size_factor_cuda],
             "pipeline rank %u: the paged stash overflows: a tensor needs %" PRId64
             " pages of %" PRId64 " rows, and %" PRId64
             " are free; Megatron-LM would run every step a second time without the stash, or "
             "spill to the host, which is not modelled; raise %s",
             s->rank->pp_rank, needed, s->arenas.page_rows, of->free_pages, factor);
  return false;
}

static int64_t place_offset(const stash *s, const stash_arena *of, uint32_t at)
{
  int64_t rows = stash_entry_pages(&s->arenas) * s->arenas.page_rows;
  return stash_bytes(&s->arenas, of, rows * at);
}

/* The lowest free slot: every tensor of an arena has the same number of pages. */
static uint32_t take_place(const stash *s, stash_arena *of)
{
  uint32_t at = 0;
  while (of->used[at])
    at++;
  of->used[at] = true;
  assert(place_offset(s, of, at + 1) <=
         stash_bytes(&s->arenas, of, of->device_pages * s->arenas.page_rows));
  of->free_pages -= stash_entry_pages(&s->arenas);
  return at;
}

static void give_place_back(const stash *s, stash_arena *of, uint32_t at)
{
  assert(of->used[at]);
  of->used[at] = false;
  of->free_pages += stash_entry_pages(&s->arenas);
  assert(of->free_pages <= of->device_pages);
}

static void pack(stash *s, walk *w, visit v)
{
  const saved_group *g = instance_group(s->rank, v.instance, v.group);

  assert(!s->packed[v.instance][v.group] && s->packing.group == 0 && "one group at a time");
  act_join(w, STREAM_PACK, STREAM_COMPUTE);
  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++) {
    const saved_entry *entry = taken(s, v.instance, e);
    if (entry == NULL) continue;
    stash_arena *of = stash_arena_of(&s->arenas, entry);
    if (!diag_ok(s->diag) || !has_pages(s, of)) return;
    uint32_t at = s->place[v.instance][e] = take_place(s, of);
    act_stash(w, v.instance, e, (packed_place){ of->memory, place_offset(s, of, at) },
              packed_bytes(s, entry), STREAM_PACK);
  }
  s->packed[v.instance][v.group] = true;
  s->packing = v;
}

/* Compute joins the packing in flight, and the padded tensors are freed. */
static void finish_packing(stash *s, walk *w)
{
  if (s->packing.group == 0) return;
  const saved_group *g = instance_group(s->rank, s->packing.instance, s->packing.group);
  assert(s->packed[s->packing.instance][s->packing.group]);

  act_join(w, STREAM_COMPUTE, STREAM_PACK);
  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++)
    if (taken(s, s->packing.instance, e) != NULL) act_release(w, s->packing.instance, e);
  s->packing.group = 0;
}

static void fetch(stash *s, walk *w, visit v, bool packed_just_now)
{
  const saved_group *g = instance_group(s->rank, v.instance, v.group);

  assert(v.backward && v.group > 0 && "its backward is next");
  if (!packed_just_now) act_join(w, STREAM_PACK, STREAM_COMPUTE);
  s->fetching = true;
  if (!s->packed[v.instance][v.group]) return;
  act_join(w, STREAM_PACK, STREAM_COMPUTE);
  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++) {
    const saved_entry *entry = taken(s, v.instance, e);
    if (entry == NULL) continue;
    stash_arena *of = stash_arena_of(&s->arenas, entry);
    uint32_t at = s->place[v.instance][e];
    act_unstash(w, v.instance, e, place_offset(s, of, at), packed_bytes(s, entry), STREAM_PACK);
    give_place_back(s, of, at);
    assert(act_place(w, v.instance, e) == PLACE_DEVICE);
  }
  s->packed[v.instance][v.group] = false;
}

/* ---- hooks ---- */

static bool is_idle(const stash *s)
{
  return s->iteration == ITERATION_WARMUP || !diag_ok(s->diag);
}

/* The next visit in the order of the first iteration. */
static bool is_visit(const stash *s, instance_id i, uint32_t group, bool backward)
{
  assert(s->at <= s->visit_count);
  const visit *v = &s->visits[s->at];

  return s->at < s->visit_count && v->instance == i && v->group == group && v->backward == backward;
}

/* The first iteration: copies without padding replace the tensors. */
static void cut(const stash *s, walk *w, instance_id i, uint32_t group)
{
  assert(s->iteration == ITERATION_WARMUP && group < instance_chunk(s->rank, i)->group_count);
  const saved_group *g = instance_group(s->rank, i, group);

  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++) {
    const saved_entry *entry = taken(s, i, e);
    if (entry == NULL) continue;
    act_stash(w, i, e, (packed_place){ NO_OWN_MEMORY, 0 }, packed_bytes(s, entry), STREAM_COMPUTE);
    act_release(w, i, e);
  }
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  stash *s = state;
  assert(s->iteration == ITERATION_WARMUP || !diag_ok(s->diag) ||
         act_place(w, i, entry) != PLACE_HOST);

  if (act_place(w, i, entry) == PLACE_HOST)
    act_unstash(w, i, entry, 0, packed_bytes(s, taken(s, i, entry)), STREAM_COMPUTE);
}

static void group_start(void *state, walk *w, instance_id i, uint32_t group)
{
  stash *s = state;
  assert(group > 0 && group < instance_chunk(s->rank, i)->group_count);

  if (!is_idle(s)) finish_packing(s, w);
}

static void group_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  stash *s = state;

  if (s->iteration == ITERATION_WARMUP) cut(s, w, i, group);
  if (is_idle(s)) return;
  assert(is_visit(s, i, group, false));
  visit next = s->visits[++s->at]; /* every forward is followed by a backward */
  if (next.backward && next.instance == i && next.group == group) return;
  pack(s, w, (visit){ i, group, false });
  if (next.backward) fetch(s, w, next, true);
}

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  stash *s = state;

  if (is_idle(s)) return;
  assert(is_visit(s, i, group, true));
  s->at++;
  finish_packing(s, w);
  if (s->fetching) act_join(w, STREAM_COMPUTE, STREAM_PACK);
  s->fetching = false;
}

static void group_backward_start(void *state, walk *w, instance_id i, uint32_t group)
{
  stash *s = state;
  assert(group > 0 && group < instance_chunk(s->rank, i)->group_count);

  if (!is_idle(s) && s->at < s->visit_count && s->visits[s->at].backward)
    fetch(s, w, s->visits[s->at], false);
}

/* ---- theory ---- */

static bool theory_group(const offload_theory *t, uint32_t position, uint32_t group)
{
  uint32_t in_flight = schedule_in_flight_at_first_backward(t->rank->schedule);
  const chunk_groups *c = &t->table.chunks[chunk_at(&t->order, position)];
  assert(group > 0 && group <= c->count);
  bool at_the_turn = position + 1 == in_flight || t->order.backward[0] == position;

  return !at_the_turn || group != c->count;
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  (void)t;

  return stash_takes(&c->entries[entry]);
}

/* The bytes of the arenas, which stay allocated. */
static int64_t theory_costs(const offload_theory *t, arena *a)
{
  stash_arenas arenas = stash_arenas_new(t->rank, a);

  return stash_device_bytes(&arenas);
}

const offload_descriptor paged_stash_system = {
  .policy = {
    .begin = begin,
    .lasting_memory = lasting_memory,
    .group_start = group_start,
    .group_commit = group_commit,
    .group_backward_commit = group_backward_commit,
    .unpack = unpack,
    .group_backward_start = group_backward_start,
  },
  .theory = { .group_leaves = theory_group, .entry_leaves = theory_entry, .costs = theory_costs },
  .streams = {
    .leaves = "experts' rows, within the device",
    .waits_for_copy_out = "compute, at the next group",
    .memory_goes = "then",
    .comes_back = "when its backward is next",
    .into_pool_of = "compute",
  },
};
