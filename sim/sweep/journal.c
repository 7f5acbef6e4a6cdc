#include "sim/sweep/journal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "sim/base/file.h"
#include "sim/base/text.h"
#include "sim/machine/call_time.h"

/* ---- which sweep it is ---- */

static void put_machine(FILE *out, const machine *m)
{
  fprintf(out, "%s %s", m->name, m->gpu_name);
  for (uint32_t i = 0; i < MACHINE_KEYS; i++) {
    int64_t value;
    memcpy(&value, (const char *)m + machine_keys[i].offset, sizeof value);
    fprintf(out, " %" PRId64, value);
  }
  for (uint32_t i = 0; m->measured != NULL && i < m->measured->count; i++)
    fprintf(out, " %" PRId64 "/%" PRId64, m->measured->items[i].ps,
            m->measured->items[i].slowdown_permille);
  for (uint32_t i = 0; i < m->at_once.count; i++)
    contention_print(out, &m->at_once.items[i]);
}

const char *sweep_fingerprint(const settings *given, const machine *m, arena *a)
{
  char *text = NULL;
  size_t length;
  FILE *out = open_memstream(&text, &length);
  if (out == NULL) die_refused("no memory for the fingerprint of a sweep");
  settings_print(given, out);
  put_machine(out, m);
  fclose(out);
  uint64_t hash = XXH3_64bits(text, length);
  free(text);
  return arena_printf(a, "%016" PRIx64, hash);
}

/* ---- what the file has ---- */

/* The beginning of the line of one setting. */
typedef struct beginning {
  const char *text;
  size_t length;
  uint32_t index;
} beginning;

static int by_text(const void *left, const void *right)
{
  const beginning *a = left, *b = right;
  int order = strcmp(a->text, b->text);
  return order != 0 ? order : a->index < b->index ? -1 : a->index > b->index;
}

/* Sorted. What the space has twice counts as done but for the first. */
static beginning *beginnings_of(const journal *j, const space *of, bool *done, arena *a)
{
  uint32_t count = space_count(of);
  beginning *all = ARENA_ARRAY(a, beginning, count);
  for (uint32_t i = 0; i < count; i++) {
    candidate c = space_at(of, i);
    const char *text = row_begin(j->format, j->sweep, &c, a);
    all[i] = (beginning){ text, strlen(text), i };
  }
  qsort(all, count, sizeof *all, by_text);
  for (uint32_t i = 1; i < count; i++)
    if (strcmp(all[i - 1].text, all[i].text) == 0) done[all[i].index] = true;
  return all;
}

/* The line begins with the text. No beginning is one of another, so the order is that of texts. */
static int line_against(const void *line, const void *of)
{
  const beginning *b = of;
  return strncmp(line, b->text, b->length);
}

/* Of a line of another sweep, or of no sweep. */
static bool check_line(const journal *j, const char *line, int number, arena *a, diag *d)
{
  const char *own = arena_printf(a, j->format == ROW_JSON ? "{\"sweep\":\"%s\"," : "%s,", j->sweep);
  if (begins_with(line, own)) return true;
  const source_pos at = { j->path, number, 1 };
  bool other = j->format == ROW_CSV || begins_with(line, "{\"sweep\":\"");
  return diag_error(d, at,
                    other ? "it is of a sweep of other settings, or of another machine; "
                            "give another file"
                          : "this is no line of a sweep; give another file");
}

typedef struct reading {
  const journal *journal;
  const beginning *all; /* sorted */
  uint32_t count;
  bool *done;
  sweep_take *take;
  void *to;
} reading;

/* What the space has not stays in the file, and counts for nothing here. */
static bool take_line(const reading *x, const char *line, int number, diag *d)
{
  const beginning *found = bsearch(line, x->all, x->count, sizeof *x->all, line_against);
  if (found == NULL) return true;
  while (found > x->all && strcmp(found[-1].text, found->text) == 0)
    found--;
  if (x->done[found->index]) return true;
  sweep_row row = { .tried.order = found->index };
  if (!row_read(x->journal->format, line + found->length, &row))
    return diag_error(d, (source_pos){ x->journal->path, number, (int)found->length + 1 },
                      "this is no line of a sweep; give another file");
  x->done[found->index] = true;
  return x->take(x->to, &row, d);
}

/* Marks and takes what the lines have, and puts the end of the last complete line into *end_bytes. */
static bool read_lines(const reading *x, FILE *in, int64_t *end_bytes, arena *a, diag *d)
{
  const char *head = row_head(x->journal->format, a);
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  *end_bytes = 0;
  for (int number = 1; diag_ok(d) && (length = getline(&line, &room, in)) > 0; number++) {
    if (line[length - 1] != '\n') break;
    bool is_head = number == 1 && *head != '\0';
    if (is_head && strncmp(line, head, (size_t)length - 1) != 0)
      diag_error(d, (source_pos){ x->journal->path, 1, 1 },
                 "this is no head of a sweep; give another file");
    if (!is_head && check_line(x->journal, line, number, a, d)) take_line(x, line, number, d);
    *end_bytes += length;
  }
  free(line);
  return diag_ok(d);
}

/* ---- the file ---- */

static bool report(const journal *j, const char *doing, diag *d)
{
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)
    return diag_refused(d, "cannot %s %s: %s", doing, j->path, strerror(errno));
  return diag_error(d, (source_pos){ j->path, 0, 0 }, "cannot %s it: %s", doing, strerror(errno));
}

static bool append(const journal *j, const char *text, diag *d)
{
  for (size_t rest = strlen(text); rest > 0;) {
    ssize_t written = write(j->descriptor, text, rest);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return report(j, "write", d);
    text += written;
    rest -= (size_t)written;
  }
  return true;
}

bool journal_sync(const journal *j, diag *d)
{
  return fdatasync(j->descriptor) == 0 || errno == EINVAL || errno == EROFS ||
         report(j, "write", d);
}

/* A file that was there: what it has; its last line may have been cut. */
static bool go_on(const journal *j, const reading *x, int64_t *end_bytes, arena *a, diag *d)
{
  int copy = dup(j->descriptor);
  FILE *in = copy < 0 ? NULL : fdopen(copy, "rb");
  if (in == NULL) return report(j, "read", d);
  bool ok = read_lines(x, in, end_bytes, a, d);
  fclose(in);
  return ok && (ftruncate(j->descriptor, *end_bytes) == 0 || report(j, "write", d));
}

bool journal_open(journal *j, const char *path, const sweep *w, bool *done, sweep_take *take,
                  void *to, arena *a, diag *d)
{
  struct stat about;
  int64_t end_bytes = 0;
  *j = (journal){ .path = path,
                  .sweep = sweep_fingerprint(w->given, w->machine, a),
                  .format = ends_with(path, ".csv") ? ROW_CSV : ROW_JSON };
  j->descriptor = file_is_stdout(path) ? dup(STDOUT_FILENO)
                                       : open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_is_stdout(path)) return true;
  if (j->descriptor < 0 || fstat(j->descriptor, &about) != 0) return report(j, "open", d);
  if (!S_ISREG(about.st_mode))
    return diag_error(d, (source_pos){ path, 0, 0 }, "is no file that can be continued");
  if (flock(j->descriptor, LOCK_EX | LOCK_NB) != 0)
    return diag_error(d, (source_pos){ path, 0, 0 }, "another sweep is writing it");
  const reading x = { .journal = j,
                      .all = beginnings_of(j, w->space, done, a),
                      .count = space_count(w->space),
                      .done = done,
                      .take = take,
                      .to = to };
  if (!go_on(j, &x, &end_bytes, a, d)) return false;
  const char *head = row_head(j->format, a);
  return end_bytes > 0 || *head == '\0' || append(j, arena_printf(a, "%s\n", head), d);
}

bool journal_add(const journal *j, const sweep_row *row, diag *d)
{
  arena a = { 0 };
  bool ok = append(j, row_line(j->format, j->sweep, row, &a), d);
  arena_release(&a);
  return ok;
}

void journal_close(journal *j)
{
  if (j->descriptor >= 0) close(j->descriptor);
  j->descriptor = -1;
}
