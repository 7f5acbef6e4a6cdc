#include "traces/import/run_summary.h"

#include <assert.h>

#include "sim/base/text.h"
#include "sim/base/units.h"

enum { SHARED_LEAST_BYTES = 64 * 1024 };

const char *stream_role_name(stream_role role)
{
  static const char *const names[STREAM_ROLES] = { "compute", "kernels", "communication",
                                                   "D2H",     "H2D",     "other" };
  return names[role];
}

/* ---- unions of spans, which are sorted by their begins ---- */

/* The time that at least one of a sequence of spans covers. */
typedef struct cover {
  int64_t total_ns, end_ns;
} cover;

static void cover_add(cover *c, int64_t begin_ns, int64_t end_ns)
{
  begin_ns = max_i64(begin_ns, c->end_ns);
  if (end_ns <= begin_ns) return;
  c->total_ns += end_ns - begin_ns;
  c->end_ns = end_ns;
}

/* ---- streams ---- */

/* Longest first wins; D2H before H2D before kernels of equal time. */
static stream_role role_of(const int64_t by_role[STREAM_ROLES])
{
  static const stream_role order[] = { ROLE_D2H, ROLE_H2D, ROLE_COMMUNICATION, ROLE_KERNELS };
  stream_role best = ROLE_OTHER;
  int64_t most = 0;
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    if (by_role[order[i]] > most) {
      most = by_role[order[i]];
      best = order[i];
    }
  return best;
}

static void add_copy(copy_summary *c, const real_span *s)
{
  c->count++;
  c->pageable_count += s->pageable;
  c->bytes += s->bytes;
}

static stream_role note_work(run_summary *to, stream_summary *s, const real_span *w)
{
  switch ((real_span_kind)w->kind) {
  case REAL_D2H: add_copy(&s->d2h, w); return ROLE_D2H;
  case REAL_H2D: add_copy(&s->h2d, w); return ROLE_H2D;
  case REAL_D2D: s->device_copies++; return ROLE_OTHER;
  case REAL_MEMSET: s->memsets++; return ROLE_OTHER;
  case REAL_WAIT:
  case REAL_RECORD:
  case REAL_STREAM_DONE:
  case REAL_EVENT_DONE:
  case REAL_ALL_DONE:
  case REAL_CALL:
  case REAL_OP:
  case REAL_ANNOTATION:
  case REAL_SPAN_KINDS:
  case REAL_KERNEL: break;
  }
  kernel_class class = kernel_class_of(w->name);
  s->kernels++;
  to->class_ns[class] += w->end_ns - w->begin_ns;
  to->class_count[class]++;
  return class == CLASS_COMMUNICATION ? ROLE_COMMUNICATION : ROLE_KERNELS;
}

static void summarize_streams(run_summary *to, arena *a)
{
  const real_run *r = to->run;
  size_t count = r->streams.count;
  cover *covers = ARENA_ARRAY(a, cover, count + 1);
  int64_t(*by_role)[STREAM_ROLES] = arena_alloc(a, count + 1, sizeof *by_role);
  to->streams = ARENA_ARRAY(a, stream_summary, count + 1);
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    if (s->kind == REAL_WAIT) to->streams[s->track].waits++;
    if (!real_span_is_work((real_span_kind)s->kind)) continue;
    stream_role role = note_work(to, &to->streams[s->track], s);
    /* Without times, one piece of work counts as much as another. */
    by_role[s->track][role] += r->has_times ? s->end_ns - s->begin_ns : 1;
    cover_add(&covers[s->track], s->begin_ns, s->end_ns);
  }
  int64_t longest = 0;
  to->compute = REAL_NONE;
  for (uint32_t i = 0; i < count; i++) {
    to->streams[i].busy_ns = covers[i].total_ns;
    to->streams[i].role = role_of(by_role[i]);
    if (to->streams[i].role != ROLE_KERNELS || by_role[i][ROLE_KERNELS] <= longest) continue;
    longest = by_role[i][ROLE_KERNELS];
    to->compute = i;
  }
  if (to->compute != REAL_NONE) to->streams[to->compute].role = ROLE_COMPUTE;
}

/* ---- copies ---- */

/* Stretches in which a kernel runs, in order. */
typedef struct stretch {
  int64_t begin_ns, end_ns;
} stretch;

typedef struct stretch_array {
  stretch *items;
  uint32_t count, capacity;
} stretch_array;

static void add_stretch(stretch_array *to, const real_span *s)
{
  stretch *last = to->count > 0 ? &to->items[to->count - 1] : NULL;
  if (last != NULL && s->begin_ns <= last->end_ns)
    last->end_ns = max_i64(last->end_ns, s->end_ns);
  else
    *ARRAY_PUSH(to) = (stretch){ s->begin_ns, s->end_ns };
}

/* What of the copies' stretches the kernels' do not cover; both in order. */
static int64_t exposed(const stretch_array *copies, const stretch_array *kernels)
{
  int64_t total_ns = 0;
  uint32_t k = 0;
  for (uint32_t i = 0; i < copies->count; i++) {
    int64_t at_ns = copies->items[i].begin_ns, end_ns = copies->items[i].end_ns;
    while (k < kernels->count && kernels->items[k].end_ns <= at_ns)
      k++;
    for (uint32_t j = k; at_ns < end_ns; j++) {
      int64_t next_ns = j < kernels->count ? min_i64(kernels->items[j].begin_ns, end_ns) : end_ns;
      total_ns += max_i64(0, next_ns - at_ns);
      at_ns = j < kernels->count ? max_i64(at_ns, kernels->items[j].end_ns) : end_ns;
    }
  }
  return total_ns;
}

static int64_t total_of(const stretch_array *s)
{
  int64_t total_ns = 0;
  for (uint32_t i = 0; i < s->count; i++)
    total_ns += s->items[i].end_ns - s->items[i].begin_ns;
  return total_ns;
}

/* `stream` REAL_NONE: what counts as offloading. */
static void time_copies(const run_summary *s, copy_summary *to, real_span_kind kind,
                        uint32_t stream, const stretch_array *kernels)
{
  stretch_array copies = { 0 };
  for (uint32_t i = 0; i < s->run->spans.count; i++) {
    const real_span *w = &s->run->spans.items[i];
    if (w->kind != kind) continue;
    if (stream == REAL_NONE ? !s->is_offload[i] : w->track != stream) continue;
    if (stream == REAL_NONE) add_copy(to, w);
    add_stretch(&copies, w);
  }
  to->busy_ns = total_of(&copies);
  to->exposed_ns = exposed(&copies, kernels);
  ARRAY_FREE(&copies);
}

static uint32_t busiest(const run_summary *s, real_span_kind kind)
{
  uint32_t best = REAL_NONE;
  int64_t most = 0;
  for (uint32_t i = 0; i < s->run->streams.count; i++) {
    int64_t bytes = kind == REAL_D2H ? s->streams[i].d2h.bytes : s->streams[i].h2d.bytes;
    if (bytes <= most) continue;
    most = bytes;
    best = i;
  }
  return best;
}

static bool is_shared(const run_summary *s, uint32_t stream)
{
  return s->streams[stream].role != ROLE_D2H && s->streams[stream].role != ROLE_H2D;
}

static void find_offload(run_summary *s, arena *a)
{
  const real_span_array *spans = &s->run->spans;
  intern_table sizes = { .memory = a };
  s->offload_stream = busiest(s, REAL_D2H);
  s->reload_stream = busiest(s, REAL_H2D);
  s->is_offload = ARENA_ARRAY(a, bool, (size_t)spans->count + 1);
  for (uint32_t i = 0; i < spans->count; i++) {
    const real_span *w = &spans->items[i];
    if (w->kind != REAL_D2H || w->track != s->offload_stream) continue;
    s->is_offload[i] = !is_shared(s, w->track) || w->bytes >= SHARED_LEAST_BYTES;
    if (s->is_offload[i]) intern(&sizes, &w->bytes, sizeof w->bytes);
  }
  uint32_t known = sizes.count;
  for (uint32_t i = 0; i < spans->count; i++) {
    const real_span *w = &spans->items[i];
    if (w->kind != REAL_H2D || w->track != s->reload_stream) continue;
    s->is_offload[i] =
        !is_shared(s, w->track) || intern(&sizes, &w->bytes, sizeof w->bytes) < known;
  }
}

static void summarize_copies(run_summary *to, arena *a)
{
  stretch_array kernels = { 0 };
  for (uint32_t i = 0; i < to->run->spans.count; i++)
    if (to->run->spans.items[i].kind == REAL_KERNEL)
      add_stretch(&kernels, &to->run->spans.items[i]);
  to->kernel_busy_ns = total_of(&kernels);
  for (uint32_t i = 0; i < to->run->streams.count; i++) {
    stream_summary *s = &to->streams[i];
    if (s->d2h.count > 0) time_copies(to, &s->d2h, REAL_D2H, i, &kernels);
    if (s->h2d.count > 0) time_copies(to, &s->h2d, REAL_H2D, i, &kernels);
  }
  find_offload(to, a);
  time_copies(to, &to->d2h, REAL_D2H, REAL_NONE, &kernels);
  time_copies(to, &to->h2d, REAL_H2D, REAL_NONE, &kernels);
  ARRAY_FREE(&kernels);
}

/* ---- steps ---- */

static bool is_step(const real_span *s)
{
  return s->kind == REAL_ANNOTATION && begins_with(s->name, "ProfilerStep#");
}

static void find_steps(run_summary *to, arena *a)
{
  const real_run *r = to->run;
  cover works = { .end_ns = INT64_MIN };
  bool any = false;
  uint32_t named = 0;
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    named += is_step(s);
    if (real_span_is_work((real_span_kind)s->kind)) cover_add(&works, s->begin_ns, s->end_ns);
    to->begin_ns = any ? min_i64(to->begin_ns, s->begin_ns) : s->begin_ns;
    to->end_ns = any ? max_i64(to->end_ns, s->end_ns) : s->end_ns;
    any = true;
  }
  to->work_busy_ns = works.total_ns;
  to->steps = ARENA_ARRAY(a, step_summary, (size_t)named + 1);
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    if (is_step(s)) to->steps[to->step_count++] = (step_summary){ s->name, s->begin_ns, s->end_ns };
  }
  if (named == 0 && any)
    to->steps[to->step_count++] = (step_summary){ "", to->begin_ns, to->end_ns };
}

run_summary run_summary_of(const real_run *r, arena *a)
{
  assert(r->is_finished);
  run_summary s = { .run = r };
  find_steps(&s, a);
  summarize_streams(&s, a);
  summarize_copies(&s, a);
  return s;
}
