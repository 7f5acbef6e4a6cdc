/*
 * A file that is packed by gzip if its name ends in .gz, "-" is standard output. The same bytes
 * give the same packed bytes.
 *
 *     packed_file p;
 *     if (!packed_open(&p, path, d)) return false;
 *     fprintf(p.stream, ...);
 *     return packed_close(&p, d);
 */
#ifndef OFFSIM_TRACES_PACKED_H
#define OFFSIM_TRACES_PACKED_H

#include "sim/base/file.h"

typedef struct packed_file {
  FILE *stream; /* to write to */
  file_writer file;
  bool is_packed, is_stdout;
} packed_file;

/* False after a diag error; then nothing is open. */
bool packed_open(packed_file *p, const char *path, diag *d);
/* One of these ends it: close puts the file in its place (false after a diag error), discard leaves what was
 * there. */
bool packed_close(packed_file *p, diag *d);
void packed_discard(packed_file *p);

#endif
