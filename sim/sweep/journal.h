/*
 * The file of a sweep: one line for each setting that was predicted (row_text.h). A sweep that ended
 * at any moment goes on from its file: what it has is not predicted again, and a last line that was
 * cut is removed.
 *
 * The fingerprint in each line is that of the settings as they were given and of the machine; a file
 * of another sweep is refused. The space is not part of it, so a sweep can be extended. Lines are in
 * the order in which the predictions ended.
 */
#ifndef OFFSIM_SIM_SWEEP_JOURNAL_H
#define OFFSIM_SIM_SWEEP_JOURNAL_H

#include "sim/sweep/row_text.h"

typedef struct journal {
  const char *path;  /* the caller's */
  const char *sweep; /* its fingerprint */
  row_format format;
  int descriptor; /* -1: closed */
} journal;

/* The fingerprint of a sweep: 16 hexadecimal digits. */
const char *sweep_fingerprint(const settings *given, const machine *m, arena *a);

/* Opens or begins the file, CSV if its name ends so; "-" is standard output, which has nothing. Marks
 * in done[space_count] the settings that the file has, which `take` gets without reasons, and all but
 * the first of equal settings of the space. False after a diag error: it cannot be read or written,
 * it is in use, or of another sweep. Close it in either case. */
bool journal_open(journal *j, const char *path, const sweep *w, bool *done, sweep_take *take,
                  void *to, arena *a, diag *d);
/* Appends a line, at once. False after a diag error: it cannot be written. */
bool journal_add(const journal *j, const sweep_row *row, diag *d);
/* Waits until the disk has what was added. False after a diag error. */
bool journal_sync(const journal *j, diag *d);
void journal_close(journal *j);

#endif
