/*
 * Files, whole: read at once, written at once or not at all.
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

/*
 * Output that appears complete or not at all: written beside `path` under a temporary name, then
 * renamed. What is no regular file, such as a pipe or /dev/stdout, is written to in place.
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

/* Called once, by main: when the program exits or a signal ends it, the temporary files of open
 * writers go. Signals that the program was started to ignore stay ignored; SIGKILL gives no chance. */
void file_remove_unfinished_at_end(void);

/* Everything printed so far has left: false after a diag error that tells why not. */
bool file_finish_stdout(diag *d);

#endif
