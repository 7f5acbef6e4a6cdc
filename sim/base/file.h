/*
 * Whole files: read at once, written completely or not at all.
 */
#ifndef OFFSIM_SIM_BASE_FILE_H
#define OFFSIM_SIM_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"

/* Input texts are small; a limit keeps a mistaken file name from filling the memory. */
enum { FILE_TEXT_LIMIT_BYTES = 1 << 20 };

/* The file's bytes with a NUL after them, in the arena; "-" is standard input. NULL after a diag
 * error: the file cannot be read, or has more than `limit_bytes`. */
char *file_read(arena *a, const char *path, size_t limit_bytes, size_t *length, diag *d);

typedef enum file_kind { FILE_MISSING, FILE_FOLDER, FILE_OTHER } file_kind;

/* What file_read would find; "-" is FILE_OTHER. */
file_kind file_kind_of(const char *path);

/* Notes an input that is read in another way than by file_read: file_open refuses to replace it. */
void file_note_read(FILE *stream);
/* Whether the path is that of an input that was read or noted. */
bool file_was_read(const char *path);

/* An output that is standard output, "-". NULL: no output, so it is not. */
bool file_is_stdout(const char *path);

/*
 * Output that appears complete or not at all: written next to `path` under a temporary name, then
 * renamed. A path that is not a regular file, such as a pipe or /dev/stdout, is written in place. A
 * file that was read is refused: a mistyped command would replace its own input. "-" is standard
 * output; the caller prints nothing else there.
 *
 *     file_writer w;
 *     if (!file_open(&w, path, d)) return false;
 *     fprintf(w.stream, ...);
 *     return file_close(&w, d);          // or file_discard(&w)
 */
typedef struct file_writer {
  FILE *stream;
  char *path;
  char *temporary_path;
  bool in_place;
} file_writer;

bool file_open(file_writer *w, const char *path, diag *d);
bool file_close(file_writer *w, diag *d); /* reports a full disk; false leaves `path` untouched */
void file_discard(file_writer *w);

/* Call it once, in main: when the program exits or a signal ends it, the temporary files of open
 * writers are removed. Signals that were ignored at the start stay ignored. SIGKILL leaves them: the
 * next file_open of the same path removes them. */
void file_remove_unfinished_at_end(void);

/* Flushes everything printed so far. False after a diag error: it could not be written. */
bool file_finish_stdout(diag *d);

#endif
