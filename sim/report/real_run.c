#include "sim/report/real_run.h"

#include <assert.h>
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/report/text.h"
#include "sim/text/json_text.h"

enum { OWNERS_SHOWN = 12 };

/* ==== for people ==== */

static const char *milliseconds(arena *a, int64_t ns)
{
  return figure(a, ns, NS_PER_S / 1000, 2);
}

static const char *bytes_text(arena *a, int64_t bytes)
{
  return figure_with_unit(a, bytes, unit_of_bytes(bytes));
}

static void set_heads(grid *g, uint32_t count, const char *const heads[2][16])
{
  assert(count <= 16);
  for (int line = 0; line < 2; line++)
    for (uint32_t i = 0; i < count; i++)
      g->head[line][i] = heads[line][i];
}

static void print_head(const run_summary *s, FILE *out, arena *a)
{
  const real_run *r = s->run;
  fprintf(out, "%s", r->sources);
  if (r->rank >= 0) fprintf(out, ", rank %" PRId64, r->rank);
  if (r->world_size >= 0) fprintf(out, " of %" PRId64, r->world_size);
  fputc('\n', out);
  if (r->has_profile && !r->has_times) {
    fprintf(out, "issued     within %s ms of the host; the record has no times of the GPU\n",
            milliseconds(a, s->end_ns - s->begin_ns));
    return;
  }
  for (uint32_t i = 0; i < s->step_count; i++)
    fprintf(out, "step       %s: %s ms\n",
            s->steps[i].name[0] != '\0' ? s->steps[i].name : "the whole trace",
            milliseconds(a, s->steps[i].end_ns - s->steps[i].begin_ns));
  if (!r->has_profile) return;
  int64_t whole_ns = s->end_ns - s->begin_ns;
  fprintf(out,
          "busy       kernels run for %s ms, any work of the GPU for %s ms; it is idle for %s ms, "
          "%s %%\n",
          milliseconds(a, s->kernel_busy_ns), milliseconds(a, s->work_busy_ns),
          milliseconds(a, whole_ns - s->work_busy_ns),
          figure_percent(a, whole_ns - s->work_busy_ns, whole_ns, 1));
  fputs("kernels    ", out);
  for (int c = 0; c < KERNEL_CLASS_COUNT; c++)
    fprintf(out, "%s%s %s ms (%" PRIu32 ")", c > 0 ? ", " : "", kernel_class_name((kernel_class)c),
            milliseconds(a, s->class_ns[c]), s->class_count[c]);
  fputc('\n', out);
}

/* ---- streams ---- */

enum { S_STREAM, S_ROLE, S_KERNELS, S_MEMSETS, S_D2H, S_H2D, S_D2D, S_WAITS, S_BUSY, S_COLUMNS };

static const char *stream_text(const real_run *r, uint32_t stream, arena *a)
{
  const real_track *t = &r->streams.items[stream];
  return t->name[0] != '\0' ? t->name : arena_printf(a, "%" PRId64, t->id);
}

static const char *count_text(arena *a, uint32_t count)
{
  return count > 0 ? arena_printf(a, "%" PRIu32, count) : "-";
}

static void print_streams(const run_summary *s, FILE *out, arena *a)
{
  static const char *const heads[2][16] = {
    { "", "", "", "", "", "", "copies", "", "busy," },
    { "stream", "role", "kernels", "memsets", "D2H", "H2D", "on GPU", "waits", "ms" },
  };
  grid g = grid_new(a, S_COLUMNS, s->run->streams.count);
  set_heads(&g, S_COLUMNS, heads);
  for (uint32_t i = 0; i < s->run->streams.count; i++) {
    const stream_summary *from = &s->streams[i];
    const char **cells = &g.cells[i * S_COLUMNS];
    cells[S_STREAM] = stream_text(s->run, i, a);
    cells[S_ROLE] = stream_role_name(from->role);
    cells[S_KERNELS] = count_text(a, from->kernels);
    cells[S_MEMSETS] = count_text(a, from->memsets);
    cells[S_D2H] = count_text(a, from->d2h.count);
    cells[S_H2D] = count_text(a, from->h2d.count);
    cells[S_D2D] = count_text(a, from->device_copies);
    cells[S_WAITS] = count_text(a, from->waits);
    cells[S_BUSY] = s->run->has_times ? milliseconds(a, from->busy_ns) : "-";
  }
  fputc('\n', out);
  grid_print(&g, out);
}

/* bytes / ns is GB/s */
static void print_copies(const run_summary *s, const char *name, uint32_t stream,
                         const copy_summary *c, FILE *out, arena *a)
{
  if (c->count == 0) {
    fprintf(out, "%s        no copies of offloading\n", name);
    return;
  }
  fprintf(out, "%s        %s on stream %s, %s", name, figure_count(a, c->count, "copy", "copies"),
          stream_text(s->run, stream, a), bytes_text(a, c->bytes));
  if (s->run->has_times)
    fprintf(out, ", busy %s ms (%s GB/s), exposed %s ms", milliseconds(a, c->busy_ns),
            c->busy_ns > 0 ? figure(a, c->bytes, c->busy_ns, 1) : "-",
            milliseconds(a, c->exposed_ns));
  if (c->pageable_count > 0)
    fprintf(out, "; %" PRIu32 " of host memory that is not page-locked", c->pageable_count);
  fputc('\n', out);
}

/* ---- passes ---- */

enum { P_PASS, P_ISSUED, P_FROM, P_TO, P_D2H, P_H2D, P_ALLOCATED, P_COLUMNS };

typedef struct pass_copies {
  uint32_t d2h, h2d;
} pass_copies;

static pass_copies *copies_by_pass(const run_summary *s, arena *a)
{
  pass_copies *of = ARENA_ARRAY(a, pass_copies, (size_t)s->run->passes.count + 1);
  for (uint32_t i = 0; i < s->run->spans.count; i++) {
    const real_span *w = &s->run->spans.items[i];
    if (!s->is_offload[i] || w->pass == REAL_NONE) continue;
    of[w->pass].d2h += w->kind == REAL_D2H;
    of[w->pass].h2d += w->kind == REAL_H2D;
  }
  return of;
}

static const char *pass_text(const real_pass *p, arena *a)
{
  if (p->kind == REAL_FINISH) return real_pass_name(p->kind);
  return arena_printf(a, "%s %" PRIu32, real_pass_name(p->kind), p->number);
}

static void print_passes(const run_summary *s, const run_memory *memory, FILE *out, arena *a)
{
  static const char *const heads[2][16] = {
    { "", "issued", "runs", "to,", "D2H", "H2D", "allocated" },
    { "pass", "at, ms", "from, ms", "ms", "copies", "copies", "then, GiB" },
  };
  const real_run *r = s->run;
  if (r->passes.count == 0) return;
  const pass_copies *copies = copies_by_pass(s, a);
  grid g = grid_new(a, P_COLUMNS, r->passes.count);
  set_heads(&g, P_COLUMNS, heads);
  for (uint32_t i = 0; i < r->passes.count; i++) {
    const real_pass *p = &r->passes.items[i];
    const char **cells = &g.cells[i * P_COLUMNS];
    bool runs = p->begin_ns <= p->end_ns && r->has_times;
    cells[P_PASS] = pass_text(p, a);
    cells[P_ISSUED] = milliseconds(a, p->issued_from_ns - s->begin_ns);
    cells[P_FROM] = runs ? milliseconds(a, p->begin_ns - s->begin_ns) : "-";
    cells[P_TO] = runs ? milliseconds(a, p->end_ns - s->begin_ns) : "-";
    cells[P_D2H] = count_text(a, copies[i].d2h);
    cells[P_H2D] = count_text(a, copies[i].h2d);
    cells[P_ALLOCATED] =
        memory == NULL ? "-" : figure(a, run_memory_at(memory, p->issued_to_ns), GIB, 3);
  }
  fputc('\n', out);
  grid_print(&g, out);
}

/* ---- memory ---- */

const char *real_frame_text(const real_run *r, uint32_t frame, arena *a)
{
  if (frame == REAL_NONE) return "allocated before the record, or without a stack";
  const real_frame *f = &r->frames.items[frame];
  return arena_printf(a, "%s:%" PRIu32 " %s", f->file, f->line, f->function);
}

static const char *pass_at(const real_run *r, int64_t time_ns, arena *a)
{
  for (uint32_t i = 0; i < r->passes.count; i++)
    if (r->passes.items[i].issued_from_ns <= time_ns && time_ns <= r->passes.items[i].issued_to_ns)
      return arena_printf(a, ", in %s", pass_text(&r->passes.items[i], a));
  return "";
}

static void print_peak(const run_summary *s, const memory_peak *p, const char *name, FILE *out,
                       arena *a)
{
  fprintf(out, "\nPeak of %s memory: %s (%" PRId64 " bytes)", name, bytes_text(a, p->bytes),
          p->bytes);
  if (s->run->has_profile)
    fprintf(out, ", at %s ms%s", milliseconds(a, p->time_ns - s->begin_ns),
            pass_at(s->run, p->time_ns, a));
  fputs("; it holds\n", out);
  uint32_t shown = p->owner_count < OWNERS_SHOWN ? p->owner_count : OWNERS_SHOWN;
  int64_t rest = p->bytes;
  for (uint32_t i = 0; i < shown; i++) {
    const memory_owner *o = &p->owners[i];
    fprintf(out, "  %10s MiB  %5" PRIu32 "  %s\n", figure(a, o->bytes, MIB, 2), o->count,
            real_frame_text(s->run, o->frame, a));
    rest -= o->bytes;
  }
  if (shown < p->owner_count)
    fprintf(out, "  %10s MiB         %" PRIu32 " other lines of code\n", figure(a, rest, MIB, 2),
            p->owner_count - shown);
}

static void print_memory(const run_summary *s, const run_memory *m, FILE *out, arena *a)
{
  print_peak(s, &m->allocated, "allocated", out, a);
  print_peak(s, &m->active, "active", out, a);
  fprintf(out, "\nreserved   %s at most; allocated at the end %s\n",
          bytes_text(a, m->reserved_peak_bytes), bytes_text(a, m->end_bytes));
}

void real_run_table(const run_summary *s, const run_memory *memory, FILE *out, arena *a)
{
  print_head(s, out, a);
  if (s->run->has_profile) {
    print_streams(s, out, a);
    fputc('\n', out);
    print_copies(s, "D2H", s->offload_stream, &s->d2h, out, a);
    print_copies(s, "H2D", s->reload_stream, &s->h2d, out, a);
    print_passes(s, memory, out, a);
  }
  if (memory != NULL) print_memory(s, memory, out, a);
}

/* ==== for programs ==== */

static void time_member(FILE *out, const char *key, int64_t ns)
{
  fprintf(out, "\"%s\": ", key);
  json_decimal(out, ns, 9);
}

static void json_copies(FILE *out, const char *key, const copy_summary *c)
{
  fprintf(out,
          "\"%s\": {\"copies\": %" PRIu32 ", \"pageable\": %" PRIu32 ", \"bytes\": %" PRId64 ", ",
          key, c->count, c->pageable_count, c->bytes);
  time_member(out, "busy_s", c->busy_ns);
  fputs(", ", out);
  time_member(out, "exposed_s", c->exposed_ns);
  fputc('}', out);
}

static void json_stream(FILE *out, const run_summary *s, uint32_t i)
{
  const stream_summary *from = &s->streams[i];
  const real_track *t = &s->run->streams.items[i];
  fprintf(out, "{\"stream\": %" PRId64 ", \"device\": %" PRId64 ", ", t->id, t->process);
  json_member(out, "name", t->name);
  fputs(", ", out);
  json_member(out, "role", stream_role_name(from->role));
  fprintf(out,
          ", \"kernels\": %" PRIu32 ", \"memsets\": %" PRIu32 ", \"device_copies\": %" PRIu32
          ", \"waits\": %" PRIu32 ", ",
          from->kernels, from->memsets, from->device_copies, from->waits);
  time_member(out, "busy_s", from->busy_ns);
  fputs(", ", out);
  json_copies(out, "d2h", &from->d2h);
  fputs(", ", out);
  json_copies(out, "h2d", &from->h2d);
  fputc('}', out);
}

static void json_pass(FILE *out, const run_summary *s, const run_memory *m, uint32_t i,
                      const pass_copies *copies)
{
  const real_pass *p = &s->run->passes.items[i];
  bool runs = p->begin_ns <= p->end_ns;
  fprintf(out, "{\"kind\": \"%s\", \"number\": %" PRIu32 ", ", real_pass_name(p->kind), p->number);
  time_member(out, "issued_from_s", p->issued_from_ns - s->begin_ns);
  fputs(", ", out);
  time_member(out, "issued_to_s", p->issued_to_ns - s->begin_ns);
  fputs(", ", out);
  time_member(out, "begin_s", runs ? p->begin_ns - s->begin_ns : 0);
  fputs(", ", out);
  time_member(out, "end_s", runs ? p->end_ns - s->begin_ns : 0);
  fprintf(out, ", \"d2h_copies\": %" PRIu32 ", \"h2d_copies\": %" PRIu32 ", \"allocated_bytes\": ",
          copies[i].d2h, copies[i].h2d);
  if (m != NULL)
    fprintf(out, "%" PRId64 "}", run_memory_at(m, p->issued_to_ns));
  else
    fputs("null}", out);
}

static void json_owner(FILE *out, const real_run *r, const memory_owner *o)
{
  const real_stack *stack = &r->stacks.items[o->stack];
  fprintf(out, "{\"bytes\": %" PRId64 ", \"blocks\": %" PRIu32 ", \"frames\": [", o->bytes,
          o->count);
  for (uint32_t i = 0; o->frame != REAL_NONE && i < stack->count; i++) {
    const real_frame *f = &r->frames.items[r->frame_numbers.items[stack->first + i]];
    fputs(i > 0 ? ", {" : "{", out);
    json_member(out, "file", f->file);
    fprintf(out, ", \"line\": %" PRIu32 ", ", f->line);
    json_member(out, "function", f->function);
    fputc('}', out);
  }
  fputs("]}", out);
}

static void json_peak(FILE *out, const run_summary *s, const char *key, const memory_peak *p)
{
  fprintf(out, "    \"%s\": {\"bytes\": %" PRId64 ", ", key, p->bytes);
  time_member(out, "at_s", s->run->has_profile ? p->time_ns - s->begin_ns : p->time_ns);
  fputs(", \"owners\": [", out);
  for (uint32_t i = 0; i < p->owner_count; i++) {
    fputs(i > 0 ? ",\n      " : "\n      ", out);
    json_owner(out, s->run, &p->owners[i]);
  }
  fputs("]},\n", out);
}

static void json_memory(FILE *out, const run_summary *s, const run_memory *m)
{
  fputs("  \"memory\": {\n", out);
  json_peak(out, s, "allocated_peak", &m->allocated);
  json_peak(out, s, "active_peak", &m->active);
  fprintf(out,
          "    \"reserved_peak_bytes\": %" PRId64 ",\n    \"allocated_begin_bytes\": %" PRId64
          ",\n    \"allocated_end_bytes\": %" PRId64 "\n  }\n",
          m->reserved_peak_bytes, m->begin_bytes, m->end_bytes);
}

static void json_steps(FILE *out, const run_summary *s)
{
  fputs("  \"steps\": [", out);
  for (uint32_t i = 0; i < s->step_count; i++) {
    fputs(i > 0 ? ", {" : "{", out);
    json_member(out, "name", s->steps[i].name);
    fputs(", ", out);
    time_member(out, "time_s", s->steps[i].end_ns - s->steps[i].begin_ns);
    fputc('}', out);
  }
  fputs("],\n", out);
}

static void json_times(FILE *out, const run_summary *s)
{
  fputs("  ", out);
  time_member(out, "time_s", s->end_ns - s->begin_ns);
  fputs(",\n  ", out);
  time_member(out, "kernel_busy_s", s->kernel_busy_ns);
  fputs(",\n  ", out);
  time_member(out, "work_busy_s", s->work_busy_ns);
  fputs(",\n  \"kernel_classes\": {", out);
  for (int c = 0; c < KERNEL_CLASS_COUNT; c++) {
    fprintf(out, "%s\"%s\": {\"kernels\": %" PRIu32 ", ", c > 0 ? ", " : "",
            kernel_class_name((kernel_class)c), s->class_count[c]);
    time_member(out, "time_s", s->class_ns[c]);
    fputc('}', out);
  }
  fputs("},\n  \"offload\": {", out);
  json_copies(out, "d2h", &s->d2h);
  fputs(", ", out);
  json_copies(out, "h2d", &s->h2d);
  fputs("},\n", out);
}

void real_run_json(const run_summary *s, const run_memory *memory, FILE *out)
{
  arena scratch = { 0 };
  const real_run *r = s->run;
  const pass_copies *copies = copies_by_pass(s, &scratch);
  fputs("{\n  \"format_version\": 1,\n  ", out);
  json_member(out, "sources", r->sources);
  fprintf(out, ",\n  \"rank\": %" PRId64 ",\n  \"world_size\": %" PRId64 ",\n", r->rank,
          r->world_size);
  fprintf(out, "  \"waits_resolved\": %s,\n  \"times_known\": %s,\n",
          r->waits_are_resolved ? "true" : "false", r->has_times ? "true" : "false");
  json_steps(out, s);
  json_times(out, s);
  fputs("  \"streams\": [", out);
  for (uint32_t i = 0; i < r->streams.count; i++) {
    fputs(i > 0 ? ",\n    " : "\n    ", out);
    json_stream(out, s, i);
  }
  fputs("],\n  \"passes\": [", out);
  for (uint32_t i = 0; i < r->passes.count; i++) {
    fputs(i > 0 ? ",\n    " : "\n    ", out);
    json_pass(out, s, memory, i, copies);
  }
  fputs("],\n", out);
  if (memory != NULL)
    json_memory(out, s, memory);
  else
    fputs("  \"memory\": null\n", out);
  fputs("}\n", out);
  arena_release(&scratch);
}
