#include "sim/plan/text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/plan/parser.h"
#include "sim/plan/repeats.h"

#define FIRST_LINE "a plan begins with \"offsim-plan\" and the version of its format"

/* Words that begin a line of a rank: ops, then phases, then "resident". The text of the op "mark"
 * is the phase that it begins. */
#define X(id, name, ...) name,
static const char *const line_names[] = { PLAN_OPS(X) PLAN_MARKS(X) "resident" };
#undef X

enum { LINE_RESIDENT = OP_KINDS + MARK_KINDS, LINES };

enum { STREAM_NAME_LIMIT = 31, NAMED_STREAMS = 8 };

/* ---- rows of the tables --------------------------------------------------------------------- */

dtype word_dtype(const plan_word *w)
{
  uint32_t i = 0;
  while (i < DTYPES && !word_is(w, dtype_name((dtype)i)))
    i++;
  return (dtype)i;
}

uint32_t site_row(parser *p, int32_t layer, const plan_word *module)
{
  struct {
    int32_t layer;
    uint32_t name;
  } key;
  key.layer = layer;
  key.name = intern(&p->names, module->text, module->length);
  uint32_t row = intern(&p->sites, &key, sizeof key);
  assert(row <= p->plan->sites.count && layer >= -1);
  if (row == p->plan->sites.count)
    *ARRAY_PUSH(&p->plan->sites) =
        (plan_site){ .module = p->names.keys[key.name].bytes, .layer = layer };
  return row;
}

uint32_t tensor_row(parser *p, const plan_word *name, const plan_tensor *described)
{
  struct {
    uint32_t name, site, dtype, rank;
    int64_t shape[PLAN_TENSOR_DIMS];
  } key;
  memset(&key, 0, sizeof key);
  key.name = intern(&p->names, name->text, name->length);
  key.site = described->site;
  key.dtype = described->dtype;
  key.rank = described->rank;
  memcpy(key.shape, described->shape, sizeof key.shape);
  uint32_t row = intern(&p->tensors, &key, sizeof key);
  assert(row <= p->plan->tensors.count && described->site < p->plan->sites.count);
  if (row == p->plan->tensors.count) {
    plan_tensor *made = ARRAY_PUSH(&p->plan->tensors);
    *made = *described;
    made->name = p->names.keys[key.name].bytes;
  }
  return row;
}

/* ---- ranks and lines ------------------------------------------------------------------------ */

static bool end_rank(parser *p)
{
  if (p->rank == NULL || p->lost) return true;
  assert(p->rank == &p->plan->ranks[p->rank_index]);
  if (p->rank->ops.count == 0 && !p->wrong)
    return diag_error(p->d, p->rank_at,
                      "rank %" PRIu32 " has no ops; omit a rank that is not part of the text",
                      p->rank_index);
  return validate_rank_end(&p->validator);
}

static bool begin_rank(parser *p, source_pos at)
{
  plan_word w = line_peek(&p->line);
  int64_t rank;
  diag_step(p->d, end_rank(p));
  if (!line_number(&p->line, "the number of a rank", 0, UINT32_MAX, &rank) ||
      !line_end(&p->line, "the end of the line"))
    return false;
  if (rank >= p->plan->rank_count)
    return diag_error(p->d, w.at, "rank %" PRId64 "; the plan has %" PRIu32 " ranks, from 0 on",
                      rank, p->plan->rank_count);
  if (p->rank != NULL && rank <= p->rank_index)
    return diag_error(p->d, w.at,
                      "rank %" PRId64 " comes after rank %" PRIu32 "; ranks come once and in order",
                      rank, p->rank_index);
  assert(p->rank == NULL || p->rank_index < rank);
  p->rank_index = (uint32_t)rank;
  p->rank = &p->plan->ranks[rank];
  assert(p->rank->ops.count == 0 && p->rank->buffers.count == 0);
  p->rank_at = at;
  p->in_ops = p->wrong = p->lost = false;
  validate_rank_begin(&p->validator, p->rank_index);
  return true;
}

static bool read_line_of_rank(parser *p)
{
  uint32_t which;
  source_pos at = line_peek(&p->line).at;
  if (!line_choice(&p->line, "an op, a phase, a resident or a rank", line_names, LINES, &which))
    return false;
  if (which == LINE_RESIDENT) return parse_resident(p, at);
  assert(p->rank != NULL && which < LINE_RESIDENT);
  p->in_ops = true;
  if (which >= OP_KINDS) return parse_mark(p, (mark_kind)(which - OP_KINDS));
  if (which == OP_MARK)
    return diag_error(p->d, at,
                      "found \"mark\"; expected the phase that it begins: setup, forward, "
                      "backward, finish or optimizer");
  return parse_op(p, (op_kind)which, at);
}

/* Whether ops of this kind only use what others have made. */
static bool only_uses(uint32_t kind)
{
  switch ((op_kind)kind) {
  case OP_FREE:
  case OP_HOST_FREE:
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_READ:
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ:
  case OP_HOST_WORK:
  case OP_SEND:
  case OP_RECV: return true;
  case OP_MARK:
  case OP_ALLOC:
  case OP_HOST_ALLOC:
  case OP_DISK_WRITE:
  case OP_RECORD:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END:
  case OP_KINDS: break;
  }
  return false;
}

/* The parser reads the next line in any case, and reports that line's own errors. */
static void note_wrong_line(parser *p, const plan_word *first)
{
  uint32_t kind = 0;
  while (kind < OP_KINDS && !word_is(first, line_names[kind]))
    kind++;
  p->wrong = true;
  p->lost |= !only_uses(kind);
  diag_go_on(p->d);
}

/* False: without a rank there is nothing to read a line for. */
static bool read_line(parser *p)
{
  plan_word w = line_peek(&p->line);
  bool begins = p->rank == NULL || word_is(&w, "rank");
  bool good = !begins ? read_line_of_rank(p) : line_expect(&p->line, "rank") && begin_rank(p, w.at);
  if (good) return true;
  if (p->rank == NULL) return false;
  note_wrong_line(p, &w);
  return true;
}

/* Finds the end of the line that begins at `l->next`; a plan is plain ASCII. */
static bool delimit(plan_line *l, const char *end)
{
  l->end = memchr(l->next, '\n', (size_t)(end - l->next));
  if (l->end == NULL) l->end = end;
  assert(l->next <= l->end && l->end <= end);
  for (const char *c = l->next; c < l->end; c++)
    if (*c < ' ' || *c > '~') {
      source_pos at = { l->at.file, l->at.line, (int)(c - l->next) + 1 };
      return diag_error(
          l->d, at,
          "byte 0x%02X; a plan contains only printable ASCII characters, blanks and newlines",
          (unsigned char)*c);
    }
  return true;
}

/* Moves to the next line that is neither empty nor a comment. False at the end of the text or after
 * a diag error. */
static bool next_line(parser *p, const char *end)
{
  plan_line *l = &p->line;
  while (l->end == NULL || l->end < end) {
    assert((l->end == NULL) == (l->at.line == 0) && "the first line begins at `next`");
    l->next = l->end == NULL ? l->next : l->end + 1;
    l->at = (source_pos){ l->at.file, l->at.line + 1, 1 };
    if (!delimit(l, end)) {
      if (p->rank == NULL) return false;
      note_wrong_line(p, &(plan_word){ .text = "" });
      continue;
    }
    plan_word w = line_peek(l);
    if (w.length > 0 && w.text[0] != '#') return true;
  }
  return false;
}

static bool read_version(parser *p)
{
  plan_word w = line_word(&p->line);
  if (!word_is(&w, "offsim-plan")) return diag_error(p->d, w.at, "this is not a plan; " FIRST_LINE);
  int64_t version;
  plan_word number = line_peek(&p->line);
  if (!line_number(&p->line, "the number of a version", 0, INT64_MAX, &version)) return false;
  if (version != PLAN_FORMAT_VERSION)
    return diag_error(p->d, number.at,
                      "version %" PRId64 " of the plan format; this offsim reads version %d",
                      version, PLAN_FORMAT_VERSION);
  return line_end(&p->line, "the end of the line");
}

/* "of 16": the global ranks that the pipeline ranks represent; by default as many as there are
 * pipeline ranks. */
static bool read_global_ranks(parser *p)
{
  plan_word w = line_peek(&p->line);
  int64_t ranks;
  if (!word_is(&w, "of")) return true;
  line_word(&p->line);
  w = line_peek(&p->line);
  if (!line_number(&p->line, "the number of global ranks", p->plan->rank_count, UINT32_MAX, &ranks))
    return false;
  if (ranks % p->plan->rank_count != 0)
    return diag_error(p->d, w.at,
                      "%" PRId64 " global ranks; expected a multiple of the %" PRIu32
                      " pipeline ranks, each of which represents equally many",
                      ranks, p->plan->rank_count);
  p->plan->global_ranks = (uint32_t)ranks;
  return true;
}

static bool read_ranks(parser *p)
{
  int64_t ranks;
  if (!line_expect(&p->line, "ranks") ||
      !line_number(&p->line, "the number of pipeline ranks", 1, PLAN_TEXT_RANKS, &ranks))
    return false;
  assert(p->plan->ranks == NULL && "the text says it once");
  *p->plan = plan_new((uint32_t)ranks, p->memory);
  return read_global_ranks(p) && line_end(&p->line, "the end of the line");
}

/* Which streams a text may rename: those whose only meaning is what is issued to them. */
static bool may_be_named(uint32_t stream)
{
  return stream != STREAM_COMPUTE && stream != STREAM_DISK_OUT && stream != STREAM_DISK_IN &&
         stream != STREAM_WEIGHTS && stream != STREAM_WEIGHTS_ODD && stream != STREAM_CPU &&
         stream != STREAM_HOST;
}

static bool is_taken(const parser *p, const plan_word *name)
{
  for (uint32_t s = 0; s < STREAMS; s++)
    if (word_is(name, p->stream_names[s]) || word_is(name, stream_name((plan_stream)s)))
      return true;
  return false;
}

static bool is_name(const plan_word *w)
{
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  return w->length > 0 && w->length <= STREAM_NAME_LIMIT && strchr(letters, w->text[0]) != NULL;
}

/* "streams copy_out copy_in": the text's own names. Each takes the place of the next name of the table that
 * may_be_named. */
static bool read_stream_names(parser *p)
{
  uint32_t stream = 0;
  for (plan_word w = line_peek(&p->line); w.length > 0; w = line_peek(&p->line)) {
    while (stream < STREAMS && !may_be_named(stream))
      stream++;
    if (!is_name(&w))
      return diag_error(p->d, w.at,
                        "\"%.*s\"; a stream's name begins with a letter and has at "
                        "most %d characters",
                        (int)(w.length > 60 ? 60 : w.length), w.text, STREAM_NAME_LIMIT);
    if (is_taken(p, &w))
      return diag_error(p->d, w.at, "there is a stream \"%.*s\" already", (int)w.length, w.text);
    if (stream == STREAMS)
      return diag_error(p->d, w.at, "too many streams; a plan has at most %d with names of its own",
                        NAMED_STREAMS);
    p->plan->own_streams[stream] = p->stream_names[stream] =
        arena_printf(p->memory, "%.*s", (int)w.length, w.text);
    stream++;
    line_word(&p->line);
  }
  return stream > 0 || diag_error(p->d, p->line.at, "\"streams\" is followed by names");
}

/* Moves to the next line; reports a text that ends too early, unless an error has ended it. */
static bool need_line(parser *p, const char *end, const char *expected)
{
  if (next_line(p, end)) return true;
  source_pos at = { p->line.at.file, p->line.at.line > 0 ? p->line.at.line : 1, 1 };
  return diag_ok(p->d) ? diag_error(p->d, at, "the text ends here; %s", expected) : false;
}

static bool read_all(parser *p, const char *end)
{
  if (!need_line(p, end, FIRST_LINE) || !read_version(p) ||
      !need_line(p, end, "expected \"ranks\" and their number") || !read_ranks(p))
    return false;
  uint32_t nowhere = site_row(p, -1, &(plan_word){ .text = "" });
  assert(nowhere == 0 && p->plan->sites.count == 1);
  for (uint32_t s = 0; s < STREAMS; s++)
    p->stream_names[s] = stream_name((plan_stream)s);
  if (!need_line(p, end, "expected \"rank 0\" and its ops")) return false;
  plan_word head = line_peek(&p->line);
  if (word_is(&head, "streams")) {
    line_word(&p->line);
    if (!read_stream_names(p) || !need_line(p, end, "expected \"rank 0\" and its ops"))
      return false;
  }
  do {
    if (!read_line(p)) return false;
  } while (next_line(p, end));
  return end_rank(p) && diag_ok(p->d) && validate_plan_end(&p->validator);
}

bool plan_parse(plan *p, const char *file, const char *text, size_t length, arena *a, diag *d)
{
  *p = (plan){ 0 };
  if (length > PLAN_TEXT_LIMIT_BYTES)
    return diag_error(d, (source_pos){ file, 0, 0 },
                      "the plan has %zu bytes; at most %d are allowed", length,
                      PLAN_TEXT_LIMIT_BYTES);
  arena scratch = { 0 };
  parser reader = { .plan = p, .memory = a, .d = d };
  reader.line = (plan_line){ .next = text, .at = { file, 0, 0 }, .d = d };
  reader.validator = (plan_validator){ .plan = p, .d = d };
  reader.names.memory = a;
  reader.sites.memory = reader.tensors.memory = &scratch;
  bool good = read_all(&reader, text + length);
  assert(good == diag_ok(d) && "a message for each refusal");
  validator_release(&reader.validator);
  arena_release(&scratch);
  if (good)
    plan_find_repeats(p, 1);
  else
    plan_release(p);
  return good;
}
