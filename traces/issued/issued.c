#include "traces/issued/issued.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static const struct {
  const char *name;
  uint32_t words;
} kinds[] = {
#define X(id, words, name, meaning) { name, words },
  ISSUED_ROWS(X)
#undef X
};

const char *issued_kind_name(issued_kind kind)
{
  assert(kind < ISSUED_KINDS);
  return kinds[kind].name;
}

bool issued_looks_like(const uint8_t *bytes, size_t count)
{
  return count >= ISSUED_MAGIC_BYTES && memcmp(bytes, ISSUED_MAGIC, ISSUED_MAGIC_BYTES) == 0;
}

/* Returns how many of them there were. */
static size_t take_bytes(input *in, void *to, size_t count)
{
  const uint8_t *bytes;
  size_t taken = 0, some;
  while (taken < count && (some = input_look(in, &bytes)) > 0) {
    if (some > count - taken) some = count - taken;
    memcpy((uint8_t *)to + taken, bytes, some);
    in->next += some;
    taken += some;
  }
  return taken;
}

bool issued_open(issued_reader *r, input *in)
{
  uint8_t magic[ISSUED_MAGIC_BYTES];
  r->in = in;
  r->ended = false;
  return (take_bytes(in, magic, sizeof magic) == sizeof magic &&
          issued_looks_like(magic, sizeof magic)) ||
         input_wrong(in, 0, "no record of offsim record: it begins with \"%.15s\"", ISSUED_MAGIC);
}

const char *issued_name(const issued_row *row, size_t *length)
{
  const char *text = (const char *)(row->word + 1);
  size_t most = 8 * (size_t)(row->count - 1);
  assert(row->kind == ISSUED_NAME);
  *length = 0;
  while (*length < most && text[*length] != '\0')
    ++*length;
  return text;
}

bool issued_take_snapshot(const issued_row *row, issued_bytes *to, input *in)
{
  uint64_t bytes = row->word[0];
  assert(row->kind == ISSUED_SNAPSHOT);
  if (bytes > 8 * (uint64_t)(row->count - 1) || bytes > INT32_MAX - to->count)
    return input_wrong(in, input_offset(in), "%" PRIu64 " bytes of a snapshot in a row of %" PRIu32,
                       bytes, row->count);
  if (bytes > 0) memcpy(ARRAY_EXTEND(to, (uint32_t)bytes), row->word + 1, bytes);
  return true;
}

static bool cut(issued_reader *r, int64_t at)
{
  return input_wrong(r->in, at, "the record ends within a row; copy it again");
}

/* A record that was copied while it was written may have any number of zeros at its end. */
static bool take_row(issued_reader *r, issued_row *row)
{
  issued_header h;
  int64_t at = input_offset(r->in);
  size_t got = take_bytes(r->in, &h, sizeof h);
  if (r->in->failed || got == 0 || (got == sizeof h && h.kind == ISSUED_NOTHING)) return false;
  if (got < sizeof h) return cut(r, at);
  if (h.kind >= ISSUED_KINDS)
    return input_wrong(r->in, at, "a row of kind %d, of which this offsim knows %d", h.kind,
                       ISSUED_KINDS);
  if (h.words > ISSUED_ROW_WORDS || h.words < kinds[h.kind].words)
    return input_wrong(r->in, at,
                       "a row \"%s\" of %" PRIu32 " words; it has from %" PRIu32 " to %d",
                       kinds[h.kind].name, h.words, kinds[h.kind].words, ISSUED_ROW_WORDS);
  if (take_bytes(r->in, &row->time_ns, 8) < 8 ||
      take_bytes(r->in, r->words, 8 * (size_t)h.words) < 8 * (size_t)h.words)
    return r->in->failed ? false : cut(r, at);
  row->kind = (issued_kind)h.kind;
  row->flags = h.flags;
  row->thread = h.thread;
  row->count = h.words;
  row->word = r->words;
  return true;
}

bool issued_next(issued_reader *r, issued_row *row)
{
  do {
    if (!take_row(r, row)) return false;
    if (row->kind == ISSUED_END) r->ended = true;
  } while (row->kind == ISSUED_FILLER || row->kind == ISSUED_END);
  return true;
}
