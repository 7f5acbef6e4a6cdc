#include "sim/base/file.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

static bool report(diag *d, const char *path, const char *doing)
{
  return diag_error(d, (source_pos){ path, 0, 0 }, "cannot %s: %s", doing, strerror(errno));
}

/* ---- what was read is not replaced ------------------------------------------------------------- */

enum { NOTED_MOST = 256 };
static struct {
  dev_t device;
  ino_t number;
} noted[NOTED_MOST];
static uint32_t noted_count;

static bool is_noted(const struct stat *about)
{
  for (uint32_t i = 0; i < noted_count; i++)
    if (noted[i].device == about->st_dev && noted[i].number == about->st_ino) return true;
  return false;
}

void file_note_read(FILE *stream)
{
  struct stat about;
  if (fstat(fileno(stream), &about) != 0 || !S_ISREG(about.st_mode) || is_noted(&about)) return;
  if (noted_count == NOTED_MOST) return;
  noted[noted_count].device = about.st_dev;
  noted[noted_count++].number = about.st_ino;
}

bool file_was_read(const char *path)
{
  struct stat about;
  return stat(path, &about) == 0 && is_noted(&about);
}

/* ------------------------------------------------------------------------------------------------ */

file_kind file_kind_of(const char *path)
{
  struct stat about;
  if (strcmp(path, "-") == 0) return FILE_OTHER;
  if (stat(path, &about) != 0) return FILE_MISSING;
  return S_ISDIR(about.st_mode) ? FILE_FOLDER : FILE_OTHER;
}

char *file_read(arena *a, const char *path, size_t limit_bytes, size_t *length, diag *d)
{
  bool standard_input = strcmp(path, "-") == 0;
  FILE *stream = standard_input ? stdin : fopen(path, "rb");
  if (stream == NULL) {
    report(d, path, "open it");
    return NULL;
  }
  file_note_read(stream);
  char *text = arena_alloc(a, limit_bytes + 2, 1);
  *length = fread(text, 1, limit_bytes + 1, stream);
  bool failed = ferror(stream) != 0;
  if (failed) report(d, path, "read it");
  if (!standard_input) fclose(stream);
  if (failed) return NULL;
  if (*length > limit_bytes) {
    diag_error(d, (source_pos){ path, 0, 0 }, "is longer than %zu bytes, the limit for a text",
               limit_bytes);
    return NULL;
  }
  text[*length] = '\0';
  return text;
}
