#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/record.h"
#include "traces/record_line.h"

/* The longest line has the durations of TRACE_STEPS steps. */
enum { FIRST_CAPACITY_BYTES = 1 << 16, LINE_LIMIT_BYTES = 1 << 25 };

/* Zeroed. */
static void *array_of(uint32_t count, size_t size)
{
  void *items = calloc(count, size);
  if (items == NULL)
    die_refused("memory: requested %zu bytes, the system has none left", count * size);
  return items;
}

static bool read_header(trace_header *h, record_line *l)
{
  int64_t version, ranks = 0, steps = 0;
  bool ok =
      record_expect(l, "{") &&
      record_number(l, "format_version", TRACE_FORMAT_VERSION, TRACE_FORMAT_VERSION, &version) &&
      record_text(l, "source", &h->source) && record_text(l, "scenario", &h->scenario) &&
      record_number(l, "ranks", 1, TRACE_RANKS, &ranks) &&
      record_number(l, "steps", 1, TRACE_STEPS, &steps) && record_expect(l, "}") && record_end(l);
  h->ranks = (uint32_t)ranks;
  h->steps = (uint32_t)steps;
  return ok;
}

static bool read_output(trace *t, record_line *l)
{
  trace_output o = { .known = false };
  bool ok = record_expect(l, "{") && record_text(l, "buffer", &o.buffer) &&
            record_fingerprint(l, "fingerprint", &o.known, o.fingerprint) && record_expect(l, "}");
  if (ok) *ARRAY_PUSH(&t->outputs) = o;
  return ok;
}

static bool read_outputs(trace *t, trace_op *op, record_line *l)
{
  op->first_output = t->outputs.count;
  if (!record_key(l, "outputs") || !record_expect(l, "[")) return false;
  if (record_has(l, ']')) return true;
  do {
    if (op->output_count == TRACE_OUTPUTS) return record_wrong(l, "no more outputs of one op");
    if (!read_output(t, l)) return false;
    op->output_count++;
  } while (record_has(l, ','));
  return record_expect(l, "]");
}

static bool read_figures(trace *t, record_line *l)
{
  uint32_t rank = 0;
  if (!record_count(l, "figures_of_rank", t->header.ranks - 1, &rank)) return false;
  assert(rank < t->header.ranks);
  trace_figures *f = &t->figures[rank];
#define READ(name, meaning)                                                                        \
  if (!record_number(l, #name, -1, INT64_MAX, &f->name)) return false;
  TRACE_FIGURES(READ)
#undef READ
  return record_expect(l, "}") && record_end(l);
}

static bool read_steps(trace *t, record_line *l)
{
  if (!record_key(l, "steps_ps") || !record_expect(l, "[")) return false;
  for (uint32_t i = 0; i < t->header.steps; i++)
    if ((i > 0 && !record_expect(l, ",")) || !record_value(l, 0, INT64_MAX, &t->steps_ps[i]))
      return false;
  return record_expect(l, "]") && record_expect(l, "}") && record_end(l);
}

static bool read_place(const trace_header *h, trace_op *op, record_line *l)
{
  return record_count(l, "step", h->steps - 1, &op->step) &&
         record_count(l, "rank", h->ranks - 1, &op->rank) &&
         record_count(l, "op", UINT32_MAX, &op->op);
}

static bool read_site(trace_op *op, record_line *l)
{
  int64_t layer = -1;
  if (!record_number(l, "layer", -1, INT32_MAX, &layer)) return false;
  op->layer = (int32_t)layer;
  return record_text(l, "module", &op->module) && record_text(l, "phase", &op->phase) &&
         record_count(l, "microbatch", UINT32_MAX, &op->microbatch) &&
         record_count(l, "chunk", UINT32_MAX, &op->chunk);
}

static bool read_op(trace *t, record_line *l)
{
  trace_op op = { .place = t->ops.count };
  bool ok = read_place(&t->header, &op, l) && record_text(l, "kind", &op.kind) &&
            record_text(l, "name", &op.name) && record_text(l, "call", &op.call) &&
            record_text(l, "stream", &op.stream) && read_site(&op, l) &&
            record_number(l, "begin_ps", 0, INT64_MAX, &op.begin_ps) &&
            record_number(l, "end_ps", 0, INT64_MAX, &op.end_ps) &&
            record_number(l, "requested_bytes", 0, INT64_MAX, &op.requested_bytes) &&
            record_number(l, "live_bytes", 0, INT64_MAX, &op.live_bytes) &&
            record_number(l, "reserved_bytes", 0, INT64_MAX, &op.reserved_bytes) &&
            record_number(l, "host_bytes", 0, INT64_MAX, &op.host_bytes) &&
            read_outputs(t, &op, l) && record_expect(l, "}") && record_end(l);
  if (ok) *ARRAY_PUSH(&t->ops) = op;
  return ok;
}

static bool read_entry(trace *t, record_line *l)
{
  if (!record_expect(l, "{")) return false;
  if (record_comes(l, "steps_ps")) return read_steps(t, l);
  if (record_comes(l, "figures_of_rank")) return read_figures(t, l);
  return read_op(t, l);
}

/* ---- the file ---- */

static bool begin(trace *t, record_line *l)
{
  if (!read_header(&t->header, l)) return false;
  assert(t->figures == NULL && t->header.ranks > 0 && t->header.steps > 0);
  t->figures = array_of(t->header.ranks, sizeof *t->figures);
  t->steps_ps = array_of(t->header.steps, sizeof *t->steps_ps);
  for (uint32_t r = 0; r < t->header.ranks; r++)
    t->figures[r] = trace_no_figures();
  return true;
}

static int compare_numbers(uint32_t a, uint32_t b)
{
  return a < b ? -1 : a > b;
}

static int by_rank_step_op(const void *left, const void *right)
{
  const trace_op *a = left, *b = right;
  int order = compare_numbers(a->rank, b->rank);
  if (order == 0) order = compare_numbers(a->step, b->step);
  if (order == 0) order = compare_numbers(a->op, b->op);
  return order != 0 ? order : compare_numbers(a->place, b->place);
}

/* The places of ops say their lines, as every line is read. */
static bool sort_ops(trace *t, const char *path, diag *d)
{
  bool once = true;
  if (t->ops.count > 0) qsort(t->ops.items, t->ops.count, sizeof *t->ops.items, by_rank_step_op);
  for (uint32_t i = 1; i < t->ops.count; i++) {
    const trace_op *a = &t->ops.items[i - 1], *b = &t->ops.items[i];
    if (a->rank == b->rank && a->step == b->step && a->op == b->op)
      once = diag_step(d, diag_error(d, (source_pos){ path, (int)b->place + 2, 1 },
                                     "op %u of rank %u in step %u is already on line %u", b->op,
                                     b->rank, b->step, a->place + 2));
  }
  return once;
}

/* The lines of a stream, NUL bytes included. */
typedef struct line_buffer {
  FILE *stream;
  char *text;
  size_t begin, end, capacity; /* what is read and not given yet */
} line_buffer;

/* Space for more of the line that begins at `begin`. */
static bool make_room(line_buffer *b, const record_line *l)
{
  if (b->begin > 0) memmove(b->text, b->text + b->begin, b->end - b->begin);
  b->end -= b->begin;
  b->begin = 0;
  if (b->end < b->capacity) return true;
  if (b->capacity == LINE_LIMIT_BYTES)
    return diag_error(l->d, (source_pos){ l->file, l->number + 1, 1 },
                      "is longer than %d bytes, the limit for a line", LINE_LIMIT_BYTES);
  b->capacity = b->capacity == 0 ? FIRST_CAPACITY_BYTES : 2 * b->capacity;
  char *more = realloc(b->text, b->capacity);
  if (more == NULL)
    die_refused("memory: requested %zu bytes, the system has none left", b->capacity);
  b->text = more;
  return true;
}

/* The next line, without its end; false: there is none, or *ok is false after a diag error. */
static bool next_line(line_buffer *b, record_line *l, bool *ok)
{
  for (size_t searched = 0;;) {
    size_t length = b->end - b->begin;
    const char *text = b->text == NULL ? "" : b->text + b->begin;
    const char *end = memchr(text + searched, '\n', length - searched);
    if (end == NULL && !feof(b->stream)) {
      searched = length;
      *ok = make_room(b, l);
      if (!*ok) return false;
      b->end += fread(b->text + b->end, 1, b->capacity - b->end, b->stream);
      *ok = !ferror(b->stream) ||
            diag_error(l->d, (source_pos){ l->file, 0, 0 }, "cannot read it: %s", strerror(errno));
      if (!*ok) return false;
      continue;
    }
    if (end == NULL && length == 0) return false;
    l->begin = l->next = text;
    l->end = end != NULL ? end : text + length;
    l->number++;
    b->begin += (size_t)(l->end - text) + (end != NULL);
    return true;
  }
}

/* Without a header no line can be read; other lines do not depend on each other. */
static bool read_lines(trace *t, FILE *stream, record_line *l)
{
  line_buffer lines = { .stream = stream };
  bool ok = true, good = true;
  while (ok && next_line(&lines, l, &ok))
    if (l->number == 1)
      ok = begin(t, l);
    else
      good = diag_step(l->d, read_entry(t, l)) && good;
  free(lines.text);
  return ok && good &&
         (l->number > 0 || diag_error(l->d, (source_pos){ l->file, 1, 1 },
                                      "is empty; expected the header of a trace"));
}

bool trace_read_stream(trace *t, const char *file, FILE *stream, intern_table *texts, diag *d)
{
  *t = (trace){ .ops = { 0 } };
  record_line l = { .file = file, .texts = texts, .d = d };
  return read_lines(t, stream, &l) && sort_ops(t, file, d);
}

bool trace_read(trace *t, const char *path, intern_table *texts, diag *d)
{
  *t = (trace){ .ops = { 0 } };
  if (strcmp(path, "-") == 0) return trace_read_stream(t, path, stdin, texts, d);
  FILE *stream = fopen(path, "rb");
  if (stream == NULL)
    return diag_error(d, (source_pos){ path, 0, 0 }, "cannot open it: %s", strerror(errno));
  file_note_read(stream);
  bool ok = trace_read_stream(t, path, stream, texts, d);
  fclose(stream);
  return ok;
}

void trace_release(trace *t)
{
  ARRAY_FREE(&t->ops);
  ARRAY_FREE(&t->outputs);
  free(t->figures);
  free(t->steps_ps);
}
