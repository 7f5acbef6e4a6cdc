#include "traces/races/races.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/plan/intern.h"
#include "traces/issued/clocks.h"
#include "traces/issued/issued.h"

static const struct {
  const char *name, *meaning;
} kinds[] = {
#define X(id, name, meaning) { name, meaning },
  RACES(X)
#undef X
};

const char *race_kind_name(race_kind kind)
{
  assert(kind < RACE_KINDS);
  return kinds[kind].name;
}

const char *race_kind_meaning(race_kind kind)
{
  assert(kind < RACE_KINDS);
  return kinds[kind].meaning;
}

const char *use_kind_name(use_kind kind)
{
  static const char *const names[] = { "kernel", "D2H copy", "H2D copy", "D2D copy", "set" };
  assert(kind < sizeof names / sizeof *names);
  return names[kind];
}

/* How often an address was handed out or taken back. */
typedef struct seen_address {
  uint32_t blocks, history; /* in the record, in the snapshot */
  uint32_t now;             /* of the record, so far */
  uint32_t first_event;     /* the list of its allocations in the snapshot */
} seen_address;

typedef struct checker {
  races *races;
  arena *memory_of;
  diag *d;
  clocks clocks;
  memory memory;
  uint32_t row;
  intern_table different; /* races */
  intern_table addresses; /* of blocks */
  struct {
    seen_address *items; /* by number in `addresses` */
    uint32_t count, capacity;
  } seen;
  uint32_t *next_event; /* [events of the snapshot]: the next one of the same address */
} checker;

static bool is_over(const void *context, const use *u)
{
  const checker *c = context;
  return clocks_over(&c->clocks, u->stream, u->number);
}

static bool is_ordered(const checker *c, const use *earlier, const use *later)
{
  return clocks_ordered(&c->clocks, earlier->stream, earlier->number, later->stream);
}

/* ---- findings ---- */

static void report(checker *c, race_kind kind, const use *earlier, const use *later,
                   const generation *g, uint64_t address, uint32_t earlier_stack)
{
  const uint32_t key[] = { kind,        earlier->kind, earlier->name, earlier->stream, later->kind,
                           later->name, later->stream, g->stack,      earlier_stack };
  c->races->found++;
  if (c->races->count == RACES_KEPT && c->different.count >= RACES_KEPT) return;
  uint32_t number = intern(&c->different, key, sizeof key);
  if (number < c->races->count) {
    c->races->items[number].count++;
    return;
  }
  c->races->items[c->races->count++] = (race){ .kind = kind,
                                               .earlier = *earlier,
                                               .later = *later,
                                               .address = address,
                                               .space = g->space,
                                               .stack = g->stack,
                                               .earlier_stack = earlier_stack,
                                               .count = 1 };
}

/* ---- uses of a generation ---- */

/* The generation at the address that an operation may use; NULL: none, or a pointer that was
 * left over in the arguments: its block was given back before. */
static generation *generation_at(checker *c, uint64_t address)
{
  uint32_t number = memory_find(&c->memory, address);
  if (number == MEMORY_NONE || memory_at(&c->memory, number)->is_freed) return NULL;
  return memory_at(&c->memory, number);
}

/* The first use by a stream has to come after the uses of the generations before. Those that follow
 * on the stream then do, too. */
static void touch_generation(checker *c, generation *g, const use *by, uint64_t address)
{
  memory *m = &c->memory;
  for (uint32_t i = g->touches; i != MEMORY_NONE; i = m->touches.items[i].next)
    if (m->touches.items[i].by.stream == by->stream) {
      m->touches.items[i].by = *by;
      return;
    }
  memory_add_touch(m, &g->touches)->by = *by;
  for (uint32_t i = g->past; i != MEMORY_NONE; i = m->touches.items[i].next) {
    const touch *t = &m->touches.items[i];
    if (!is_ordered(c, &t->by, by)) report(c, RACE_REUSED, &t->by, by, g, address, t->stack);
  }
}

/* Copies that may be under way into or out of [begin, end). What is over is forgotten. */
static void meet_passages(checker *c, generation *g, const use *by, uint64_t begin, uint64_t end,
                          bool writes, race_kind kind)
{
  memory *m = &c->memory;
  for (uint32_t *link = &g->passages; *link != MEMORY_NONE;) {
    passage *p = &m->passages.items[*link];
    if (is_over(c, &p->by)) {
      memory_drop_passage(m, link);
      continue;
    }
    if ((writes || p->writes) && p->begin < end && begin < p->end && !is_ordered(c, &p->by, by))
      report(c, kind, &p->by, by, g, begin > p->begin ? begin : p->begin, 0);
    link = &p->next;
  }
}

static void note_spot(checker *c, generation *g, const use *by, uint64_t address)
{
  memory *m = &c->memory;
  uint32_t part = memory_part(g, address);
  for (uint32_t i = g->spots; i != MEMORY_NONE; i = m->spots.items[i].next) {
    spot *s = &m->spots.items[i];
    if (s->part != part || s->last.stream != by->stream) continue;
    s->lowest = s->lowest < address ? s->lowest : address;
    s->highest = s->highest > address ? s->highest : address;
    s->last = *by;
    return;
  }
  spot *s = memory_add_spot(m, &g->spots);
  s->lowest = s->highest = address;
  s->first = s->last = *by;
  s->part = part;
}

static void kernel_uses(checker *c, const use *by, uint64_t address)
{
  generation *g = generation_at(c, address);
  if (g == NULL) return;
  touch_generation(c, g, by, address);
  /* A kernel may only read. */
  if (g->passages != MEMORY_NONE)
    meet_passages(c, g, by, address, address + 1, false, RACE_NOT_ARRIVED);
  note_spot(c, g, by, address);
}

static bool spot_is_within(const spot *s, uint64_t begin, uint64_t end)
{
  return begin <= s->lowest && s->highest < end;
}

/* The kernel that made what a copy reads is the first one that points to it, unless a copy or set
 * came before: then kernels may only read. */
static void check_made(checker *c, const generation *g, const use *by, uint64_t begin, uint64_t end)
{
  const spot *first = NULL;
  for (uint32_t i = g->spots; i != MEMORY_NONE; i = c->memory.spots.items[i].next) {
    const spot *s = &c->memory.spots.items[i];
    if (spot_is_within(s, begin, end) && (first == NULL || s->first.row < first->first.row))
      first = s;
  }
  if (first != NULL && first->first.row < g->first_set && !is_ordered(c, &first->first, by))
    report(c, RACE_NOT_MADE, &first->first, by, g, begin, 0);
}

static void check_overwritten(checker *c, const generation *g, const use *by, uint64_t begin,
                              uint64_t end)
{
  for (uint32_t i = g->spots; i != MEMORY_NONE; i = c->memory.spots.items[i].next) {
    const spot *s = &c->memory.spots.items[i];
    if (spot_is_within(s, begin, end) && !is_ordered(c, &s->last, by))
      report(c, RACE_OVERWRITTEN, &s->last, by, g, begin, 0);
  }
}

/* In place of an earlier one of the stream on the same bytes, which is over before. */
static void note_passage(checker *c, generation *g, const use *by, uint64_t begin, uint64_t end,
                         bool writes)
{
  passage *p = NULL;
  for (uint32_t i = g->passages; i != MEMORY_NONE && p == NULL;
       i = c->memory.passages.items[i].next)
    if (c->memory.passages.items[i].begin == begin && c->memory.passages.items[i].end == end &&
        c->memory.passages.items[i].writes == writes &&
        c->memory.passages.items[i].by.stream == by->stream)
      p = &c->memory.passages.items[i];
  if (p == NULL) p = memory_add_passage(&c->memory, &g->passages);
  p->begin = begin;
  p->end = end;
  p->writes = writes;
  p->by = *by;
}

static void copy_uses(checker *c, const use *by, uint64_t begin, uint64_t bytes, bool writes)
{
  generation *g = generation_at(c, begin);
  if (g == NULL || bytes == 0) return;
  uint64_t end = bytes < g->end - begin ? begin + bytes : g->end;
  touch_generation(c, g, by, begin);
  meet_passages(c, g, by, begin, end, writes, RACE_COPIES);
  if (writes)
    check_overwritten(c, g, by, begin, end);
  else
    check_made(c, g, by, begin, end);
  if (writes && g->first_set == MEMORY_NONE) g->first_set = by->row;
  note_passage(c, g, by, begin, end, writes);
}

/* ---- rows ---- */

static bool stream_of(checker *c, const issued_row *row, input *in, uint32_t *stream)
{
  if (row->word[0] >= c->clocks.streams.count)
    return input_wrong(in, input_offset(in),
                       "a row \"%s\" of stream %" PRIu64 "; %" PRIu32 " are known",
                       issued_kind_name(row->kind), row->word[0], c->clocks.streams.count);
  *stream = (uint32_t)row->word[0];
  return true;
}

static use issue(checker *c, uint32_t stream, use_kind kind, uint32_t name)
{
  return (use){ stream, clocks_issue(&c->clocks, stream), c->row, name, kind };
}

static void take_kernel(checker *c, const issued_row *row, uint32_t stream)
{
  use by = issue(c, stream, USE_KERNEL, (uint32_t)row->word[1]);
  c->races->kernels++;
  c->races->unseen += (row->flags & ISSUED_UNSEEN) != 0;
  for (uint32_t i = 2; i < row->count; i++)
    kernel_uses(c, &by, row->word[i]);
}

/* Memory that no allocation has is the host's, and pageable. */
static bool is_host(checker *c, uint64_t address)
{
  uint32_t number = memory_find(&c->memory, address);
  return number == MEMORY_NONE || memory_at(&c->memory, number)->space == ISSUED_HOST;
}

/* Of a rectangle that is not contiguous, the first row counts. */
static void take_copy(checker *c, const issued_row *row, uint32_t stream)
{
  uint64_t to = row->word[1], from = row->word[2], width = row->word[3], lines = row->word[4];
  uint64_t to_bytes = row->word[5] == width ? width * lines : width;
  uint64_t from_bytes = row->word[6] == width ? width * lines : width;
  use_kind kind = is_host(c, to) ? USE_D2H : is_host(c, from) ? USE_H2D : USE_D2D;
  use by = issue(c, stream, kind, 0);
  c->races->copies++;
  copy_uses(c, &by, from, from_bytes, false);
  copy_uses(c, &by, to, to_bytes, true);
  if ((row->flags & ISSUED_WAITED) != 0) clocks_stream_done(&c->clocks, stream);
}

static void take_set(checker *c, const issued_row *row, uint32_t stream)
{
  uint64_t width = row->word[2];
  use by = issue(c, stream, USE_SET, 0);
  c->races->sets++;
  copy_uses(c, &by, row->word[1], row->word[4] == width ? width * row->word[3] : width, true);
}

static void take_on_stream(checker *c, const issued_row *row, uint32_t stream)
{
  switch (row->kind) {
  case ISSUED_KERNEL: take_kernel(c, row, stream); break;
  case ISSUED_COPY: take_copy(c, row, stream); break;
  case ISSUED_SET: take_set(c, row, stream); break;
  case ISSUED_GRAPH:
    c->races->graphs++;
    clocks_issue(&c->clocks, stream);
    break;
  case ISSUED_HOST_CALL: clocks_issue(&c->clocks, stream); break;
  case ISSUED_EVENT_RECORD: clocks_record(&c->clocks, stream, row->word[1]); break;
  case ISSUED_EVENT_WAIT:
    c->races->waits++;
    clocks_wait(&c->clocks, stream, row->word[1]);
    break;
  case ISSUED_STREAM_DONE: clocks_stream_done(&c->clocks, stream); break;
  case ISSUED_NOTHING:
  case ISSUED_FILLER:
  case ISSUED_END:
  case ISSUED_NAME:
  case ISSUED_STREAM:
  case ISSUED_EVENT_DONE:
  case ISSUED_EVENT_GONE:
  case ISSUED_CONTEXT_DONE:
  case ISSUED_ALLOC:
  case ISSUED_FREE:
  case ISSUED_BLOCK:
  case ISSUED_BLOCK_FREE:
  case ISSUED_SNAPSHOT:
  case ISSUED_KINDS: assert(0 && "not on a stream"); break;
  }
}

static bool take_alloc(checker *c, const issued_row *row, input *in)
{
  uint64_t begin = row->word[0], bytes = row->word[1];
  if (bytes == 0) return true;
  if (begin > UINT64_MAX - bytes || row->word[2] > ISSUED_MANAGED)
    return input_wrong(in, input_offset(in), "an allocation of %" PRIu64 " bytes at %#" PRIx64,
                       bytes, begin);
  const generation g = {
    .begin = begin, .end = begin + bytes, .row = c->row, .space = (issued_space)row->word[2]
  };
  memory_put(&c->memory, &g, NULL, NULL);
  return true;
}

static void take_free(checker *c, const issued_row *row)
{
  uint64_t begin = row->word[0], bytes = row->word[1];
  if (row->word[2] != 0) clocks_all_done(&c->clocks);
  if (bytes > 0 && bytes <= UINT64_MAX - begin) memory_remove(&c->memory, begin, begin + bytes);
}

/* ---- PyTorch's blocks ---- */

static seen_address *seen_at(checker *c, uint64_t address)
{
  uint32_t number = intern(&c->addresses, &address, sizeof address);
  if (number == c->seen.count) *ARRAY_PUSH(&c->seen) = (seen_address){ .first_event = MEMORY_NONE };
  return &c->seen.items[number];
}

static int64_t rounded(int64_t bytes)
{
  return bytes <= 512 ? 512 : (bytes + 511) / 512 * 512;
}

/* The allocations of an address in the record are those in the snapshot, compared from the last
 * one: either may lack the first ones. */
static const real_memory_event *event_of(checker *c, uint64_t address)
{
  seen_address *s = seen_at(c, address);
  uint32_t left = s->blocks - s->now++;
  if (left > s->history) return NULL;
  while (s->history > left) {
    s->first_event = c->next_event[s->first_event];
    s->history--;
  }
  return &c->races->run.events.items[s->first_event];
}

static issued_space space_at(checker *c, uint64_t address)
{
  uint32_t number = memory_find(&c->memory, address);
  return number == MEMORY_NONE ? ISSUED_DEVICE : memory_at(&c->memory, number)->space;
}

static void take_block(checker *c, uint64_t address)
{
  const real_memory_event *e = event_of(c, address);
  int64_t bytes = e == NULL ? 512 : rounded(min_i64(e->bytes, INT64_MAX / 2));
  if (address > UINT64_MAX / 2) return; /* damaged */
  c->races->blocks++;
  c->races->without_size += e == NULL;
  const generation g = { .begin = address,
                         .end = address + (uint64_t)bytes,
                         .row = c->row,
                         .stack = e == NULL ? 0 : e->stack,
                         .space = space_at(c, address),
                         .is_block = true };
  memory_put(&c->memory, &g, is_over, c);
}

static void take_block_free(checker *c, uint64_t address)
{
  uint32_t number = memory_find(&c->memory, address);
  if (number == MEMORY_NONE) return;
  generation *g = memory_at(&c->memory, number);
  if (g->is_block && g->begin == address) g->is_freed = true;
}

/* ---- all ---- */

static bool take_stream(checker *c, const issued_row *row, input *in)
{
  if (row->word[0] != c->clocks.streams.count ||
      !clocks_add_stream(&c->clocks, row->word[1], row->word[2]))
    return input_wrong(in, input_offset(in),
                       "stream %" PRIu64 " after %" PRIu32 "; they are numbered in order, up to %d",
                       row->word[0], c->clocks.streams.count, CLOCK_STREAMS);
  c->races->streams++;
  return true;
}

static bool take_row(checker *c, const issued_row *row, input *in)
{
  uint32_t stream = 0;
  if (issued_is_on_stream(row->kind)) {
    if (!stream_of(c, row, in, &stream)) return false;
    if ((row->flags & ISSUED_CAPTURED) != 0)
      c->races->captured++;
    else
      take_on_stream(c, row, stream);
  } else if (row->kind == ISSUED_STREAM) {
    return take_stream(c, row, in);
  } else if (row->kind == ISSUED_ALLOC) {
    return take_alloc(c, row, in);
  } else if (row->kind == ISSUED_FREE) {
    take_free(c, row);
  } else if (row->kind == ISSUED_BLOCK) {
    take_block(c, row->word[0]);
  } else if (row->kind == ISSUED_BLOCK_FREE) {
    take_block_free(c, row->word[0]);
  } else if (row->kind == ISSUED_EVENT_DONE) {
    clocks_event_done(&c->clocks, row->word[0]);
  } else if (row->kind == ISSUED_EVENT_GONE) {
    clocks_event_gone(&c->clocks, row->word[0]);
  } else if (row->kind == ISSUED_CONTEXT_DONE) {
    clocks_context_done(&c->clocks, row->word[0]);
  }
  return true;
}

/* ---- the first pass: names, and the snapshot, which comes last ---- */

static bool take_name(checker *c, const issued_row *row, input *in)
{
  races *r = c->races;
  if (row->word[0] != r->name_count)
    return input_wrong(in, input_offset(in), "name %" PRIu64 " after %" PRIu32, row->word[0],
                       r->name_count);
  size_t length;
  const char *text = issued_name(row, &length);
  if ((r->name_count & (r->name_count - 1)) == 0) {
    const char **names =
        ARENA_ARRAY(c->memory_of, const char *, r->name_count == 0 ? 1 : 2 * (size_t)r->name_count);
    if (r->name_count > 0) memcpy(names, r->names, r->name_count * sizeof *names);
    r->names = names;
  }
  r->names[r->name_count++] = arena_strndup(c->memory_of, text, length);
  return true;
}

/* Blocks after the snapshot are not in it. */
static bool look_ahead(checker *c, input *in, issued_bytes *snapshot)
{
  issued_reader *reader = arena_alloc(c->memory_of, 1, sizeof *reader);
  issued_row row;
  bool ok = issued_open(reader, in);
  while (ok && issued_next(reader, &row)) {
    if (c->races->rows++ == UINT32_MAX - 1)
      ok = input_wrong(in, input_offset(in), "more than %" PRIu32 " rows", UINT32_MAX - 1);
    else if (row.kind == ISSUED_NAME)
      ok = take_name(c, &row, in);
    else if (row.kind == ISSUED_SNAPSHOT)
      ok = issued_take_snapshot(&row, snapshot, in);
    else if (row.kind == ISSUED_BLOCK && snapshot->count == 0)
      seen_at(c, row.word[0])->blocks++;
    else if (row.kind == ISSUED_KERNEL && row.word[1] >= c->races->name_count)
      ok = input_wrong(in, input_offset(in), "a kernel of name %" PRIu64 "; %" PRIu32 " are known",
                       row.word[1], c->races->name_count);
  }
  c->races->ended = reader->ended;
  return ok && !in->failed;
}

/* Lists the allocations of each address, from the first. */
static void index_history(checker *c)
{
  const real_memory_array *events = &c->races->run.events;
  c->next_event = ARENA_ARRAY(c->memory_of, uint32_t, events->count + 1);
  for (uint32_t i = events->count; i-- > 0;) {
    if (events->items[i].kind != REAL_ALLOC) continue;
    seen_address *s = seen_at(c, events->items[i].address);
    c->next_event[i] = s->first_event;
    s->first_event = i;
    s->history++;
  }
}

static bool read_snapshot(checker *c, const issued_bytes *snapshot)
{
  races *r = c->races;
  r->has_snapshot = snapshot->count > 0;
  if (r->has_snapshot && !real_run_read_bytes(&r->run, "the record's memory snapshot",
                                              snapshot->items, snapshot->count, c->d))
    return false;
  index_history(c);
  return true;
}

static bool check_rows(checker *c, input *in)
{
  issued_reader *reader = arena_alloc(c->memory_of, 1, sizeof *reader);
  issued_row row;
  bool ok = issued_open(reader, in);
  for (; ok && issued_next(reader, &row); c->row++)
    ok = take_row(c, &row, in);
  return ok && !in->failed;
}

/* `in` twice, from its begin. */
typedef bool open_again(input *in, const void *from, diag *d);

static bool find(races *r, open_again *open_input, const void *from, arena *a, diag *d)
{
  input in;
  issued_bytes snapshot = { 0 };
  *r = (races){ .items = ARENA_ARRAY(a, race, RACES_KEPT) };
  real_run_init(&r->run, a);
  checker *c = ARENA_NEW(a, checker);
  c->races = r;
  c->memory_of = a;
  c->d = d;
  c->different.memory = c->addresses.memory = a;
  memory_init(&c->memory);
  bool ok = open_input(&in, from, d);
  if (ok) {
    ok = look_ahead(c, &in, &snapshot) && read_snapshot(c, &snapshot);
    input_close(&in);
  }
  ok = ok && open_input(&in, from, d);
  if (ok) {
    ok = check_rows(c, &in);
    if (ok && r->rows == 0)
      ok = diag_error(
          d, (source_pos){ in.name, 0, 0 },
          "the record has no rows: the program was stopped before it used CUDA, so there "
          "is nothing to check");
    input_close(&in);
  }
  ARRAY_FREE(&snapshot);
  ARRAY_FREE(&c->seen);
  memory_release(&c->memory);
  clocks_release(&c->clocks);
  return ok;
}

static bool open_path(input *in, const void *from, diag *d)
{
  return input_open(in, from, d);
}

typedef struct byte_range {
  const uint8_t *bytes;
  size_t count;
} byte_range;

static bool open_bytes(input *in, const void *from, diag *d)
{
  const byte_range *range = from;
  input_of_bytes(in, "record", range->bytes, range->count, d);
  return true;
}

bool races_find(races *r, const char *path, arena *a, diag *d)
{
  return find(r, open_path, path, a, d);
}

bool races_find_bytes(races *r, const uint8_t *bytes, size_t count, arena *a, diag *d)
{
  return find(r, open_bytes, &(byte_range){ bytes, count }, a, d);
}

void races_release(races *r)
{
  real_run_release(&r->run);
}

bool races_is_record(const char *path)
{
  input in;
  const uint8_t *bytes;
  diag ignored = { .quiet = true };
  if (strcmp(path, "-") == 0 || !input_open(&in, path, &ignored)) return false;
  size_t count = input_look(&in, &bytes);
  bool is = issued_looks_like(bytes, count);
  input_close(&in);
  return is;
}
